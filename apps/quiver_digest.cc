// Makes a manifest, fills the cache with a dataset, empties it again.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/text.h"
#include "cache/client/digest.h"
#include "cache/client/user_settings.h"
#include "quiver_commands.h"
#include "quiver_progress.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

Result<cache::Layout> layout_of(const std::string& name) {
  if (name == "image-folder") return cache::Layout::kImageFolder;
  if (name == "files") return cache::Layout::kFiles;
  return error(Code::kInvalid, "there is no layout '{}'; write image-folder or files", name);
}

// A manifest's path, or the URL of which one was made.
Result<std::shared_ptr<const cache::Manifest>> manifest_of(const Command& command,
                                                           const std::string& target) {
  io::Files& files = command.environment.files;
  if (target.ends_with(".qvm")) return cache::Manifest::open(files, target, true);
  const auto origin = TRY(cache::user_origin(target, command.settings, {}, files));
  for (const auto layout : {cache::Layout::kImageFolder, cache::Layout::kFiles}) {
    const std::string path = cache::manifest_path_for(command.settings, origin, layout);
    if (files.stat(path)) return cache::Manifest::open(files, path, true);
  }
  return error(Code::kNotFound, "'{}' has no manifest yet; make one with 'quiver digest {}'",
               target, target);
}

Result<cache::OpenReply> open(const Command& command, cache::Greeted& daemon,
                              const cache::Manifest& manifest, const std::string& target) {
  cache::OpenRequest request;
  request.root = manifest.root();
  const bool is_url = !target.ends_with(".qvm");
  request.origin = TRY(cache::user_origin(is_url ? target : std::string(manifest.origin_url()),
                                          command.settings, {}, command.environment.files));
  const std::vector<int> fds{manifest.descriptor()};
  return ask_daemon<cache::OpenReply>(daemon, cache::Request::kOpen, request,
                                      command.environment.clock, fds);
}

}  // namespace

Result<int> run_digest(const Command& command, const DigestArguments& arguments) {
  cache::DigestOptions options;
  options.origin =
      TRY(cache::user_origin(arguments.url, command.settings, {}, command.environment.files));
  options.layout = TRY(layout_of(arguments.layout));
  options.manifest_path = arguments.manifest;
  options.settings = command.settings;
  options.daemon_program = command.settings.enabled ? command.daemon_program : "";
  Progress bar(command.environment.clock, "digest", command.json);
  const auto report = TRY(cache::digest(
      options, command.environment,
      [&bar](const cache::DigestProgress& p) {
        if (p.listing) return bar.show(0, 0, fmt::format("{} objects listed", p.objects_listed));
        bar.show(p.items_done, p.items_total,
                 fmt::format("{} of {} items, {}", p.items_done, p.items_total,
                             format_bytes(p.bytes_done)));
      },
      command.stop));
  bar.finish();
  if (command.json) {
    fmt::print("{}\n", Json{{"manifest", report.manifest_path},
                            {"id", report.public_id},
                            {"items", report.items},
                            {"classes", report.classes},
                            {"bytes", report.bytes.value},
                            {"downloaded", report.downloaded},
                            {"downloaded_bytes", report.downloaded_bytes.value},
                            {"kept", report.kept},
                            {"not_images", report.not_images},
                            {"directory_markers", report.directory_markers}}
                           .dump(-1, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  fmt::print("{} items in {} classes, {}; {} read from the origin, {} of them kept in the cache\n",
             report.items, report.classes, format_bytes(report.bytes),
             format_bytes(report.downloaded_bytes), report.kept);
  if (report.not_images != 0) fmt::print("{} other files were left out\n", report.not_images);
  fmt::print("manifest {} (dataset {})\n", report.manifest_path, report.public_id);
  return 0;
}

Result<int> run_warm(const Command& command, const std::string& target) {
  const auto manifest = TRY(manifest_of(command, target));
  auto daemon = TRY(daemon_of(command, true));
  const auto opened = TRY(open(command, daemon, *manifest, target));
  Progress bar(command.environment.clock, "warm", command.json);
  cache::WarmReply reply;
  for (bool going = true; going;) {
    reply = TRY(ask_daemon<cache::WarmReply>(daemon, cache::Request::kWarm,
                                             cache::WarmRequest{opened.dataset, 500},
                                             command.environment.clock));
    bar.show(reply.bytes_here, reply.bytes_wanted,
             fmt::format("{} of {}", format_bytes(Bytes(reply.bytes_here)),
                         format_bytes(Bytes(reply.bytes_wanted))));
    going = reply.items_here + reply.items_failed < reply.items_wanted;
    if (command.stop.stop_requested()) return error(Code::kCancelled, "stopped");
  }
  bar.finish();
  if (command.json) {
    fmt::print("{}\n", Json{{"id", opened.public_id},
                            {"items", reply.items},
                            {"items_here", reply.items_here},
                            {"items_wanted", reply.items_wanted},
                            {"items_failed", reply.items_failed},
                            {"bytes_here", reply.bytes_here},
                            {"bytes_wanted", reply.bytes_wanted},
                            {"first_error", reply.first_error}}
                           .dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{} of {} items are here ({}); the share holds {}\n", reply.items_here, reply.items,
               format_bytes(Bytes(reply.bytes_here)), format_bytes(Bytes(reply.bytes_wanted)));
  }
  if (reply.items_failed == 0) return 0;
  return error(Code::kIo, "{} items did not come; the first: {}", reply.items_failed,
               reply.first_error);
}

Result<int> run_evict(const Command& command, const std::string& target, bool all) {
  cache::EvictRequest request;
  if (!all) {
    if (target.empty()) {
      return error(Code::kInvalid, "say what to evict: an id of 'quiver status', a URL, or --all");
    }
    const bool is_id = target.find_first_of("/.") == std::string::npos;
    request.public_id = is_id ? target : public_id(TRY(manifest_of(command, target))->root());
  }
  auto daemon = TRY(daemon_of(command, false));
  const auto reply = TRY(ask_daemon<cache::EvictReply>(daemon, cache::Request::kEvict, request,
                                                       command.environment.clock));
  if (command.json) {
    fmt::print("{}\n", Json{{"bytes", reply.bytes}, {"datasets", reply.datasets}}.dump());
  } else {
    fmt::print("{} evicted\n", format_bytes(Bytes(reply.bytes)));
  }
  return 0;
}

}  // namespace quiver
