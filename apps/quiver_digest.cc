// Makes a manifest, fills the cache with a dataset, empties it again.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "base/text.h"
#include "cache/client/digest.h"
#include "cache/client/user_settings.h"
#include "cache/view/view.h"
#include "quiver_commands.h"
#include "quiver_progress.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

Result<cache::Layout> layout_of(const std::string& name) {
  if (name == "image_folder") return cache::Layout::kImageFolder;
  if (name == "files") return cache::Layout::kFiles;
  return error(Code::kInvalid, "there is no layout '{}'; write image_folder or files", name);
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

namespace {

struct Opened {
  cache::OpenReply reply;
  io::Fd view;
};

Result<Opened> open(const Command& command, cache::Greeted& daemon, const cache::Manifest& manifest,
                    const std::string& target) {
  cache::OpenRequest request;
  request.root = manifest.root();
  const bool is_url = !target.ends_with(".qvm");
  request.origin = TRY(cache::user_origin(is_url ? target : std::string(manifest.origin_url()),
                                          command.settings, {}, command.environment.files));
  const std::vector<int> fds{manifest.descriptor()};
  auto reply = TRY(daemon.connection->call(
      static_cast<std::uint16_t>(cache::Request::kOpen), cache::encode(request), fds,
      command.environment.clock.now() + std::chrono::minutes(1)));
  if (reply.fds.size() != 1) return error(Code::kCorrupt, "the daemon's answer lacks the view");
  return Opened {
    TRY(cache::decode<cache::OpenReply>(reply.payload))
    , std::move(reply.fds[0])
  };
}

struct Verified {
  std::uint64_t items = 0, bytes = 0;
};

// Counts what can be read and is right, a segment at a time. What is not right is no error here: it
// is not counted.
Result<Verified> verify(const Command& command, cache::Greeted& daemon, const Opened& opened,
                        const cache::Manifest& manifest) {
  const auto view = TRY(cache::ViewReader::map(opened.view, manifest.size()));
  std::map<std::uint32_t, std::vector<ItemId>> segments;
  for (std::uint32_t i = 0; i < manifest.size(); ++i) {
    const auto word = view.word(ItemId(i));
    if (word.residency() == cache::Residency::kHere) {
      segments[word.segment().value].push_back(ItemId(i));
    }
  }
  Verified sum;
  std::vector<std::byte> buffer;
  for (const auto& [number, items] : segments) {
    if (command.stop.stop_requested()) return error(Code::kCancelled, "stopped");
    auto reply = TRY(daemon.connection->call(
        static_cast<std::uint16_t>(cache::Request::kSegments),
        cache::encode(cache::SegmentsRequest{opened.reply.dataset, {number}}), {},
        command.environment.clock.now() + std::chrono::minutes(1)));
    if (reply.fds.size() != 1) continue;  // it has been evicted
    for (const ItemId id : items) {
      const cache::Item item = manifest.item(id);
      buffer.resize(item.length.value);
      const auto got =
          command.environment.files.pread(reply.fds[0].get(), buffer, view.word(id).offset());
      if (!got || *got != buffer.size() || sha256(buffer) != *item.hash) continue;
      ++sum.items;
      sum.bytes += buffer.size();
    }
  }
  return sum;
}

Result<cache::WarmReply> fill(const Command& command, cache::Greeted& daemon,
                              std::uint32_t dataset) {
  Progress bar(command.environment.clock, "warm", command.json);
  for (;;) {
    const auto reply = TRY(ask_daemon<cache::WarmReply>(daemon, cache::Request::kWarm,
                                                        cache::WarmRequest{dataset, 500},
                                                        command.environment.clock));
    bar.show(reply.bytes_here, reply.bytes_wanted,
             fmt::format("{} of {}", format_bytes(Bytes(reply.bytes_here)),
                         format_bytes(Bytes(reply.bytes_wanted))));
    if (reply.items_here + reply.items_failed >= reply.items_wanted) return reply;
    if (command.stop.stop_requested()) return error(Code::kCancelled, "stopped");
  }
}

void print(const Command& command, const std::string& id, const cache::WarmReply& reply,
           const std::optional<Verified>& verified) {
  if (!command.json) {
    fmt::print("{} of {} items are here ({}); the share holds {}\n", reply.items_here, reply.items,
               format_bytes(Bytes(reply.bytes_here)), format_bytes(Bytes(reply.bytes_wanted)));
    if (verified) {
      fmt::print("{} items of {} bytes were read and are right\n", verified->items,
                 verified->bytes);
    }
    return;
  }
  Json out{{"id", id},
           {"items", reply.items},
           {"items_here", reply.items_here},
           {"items_wanted", reply.items_wanted},
           {"items_failed", reply.items_failed},
           {"bytes_here", reply.bytes_here},
           {"bytes_wanted", reply.bytes_wanted},
           {"first_error", reply.first_error}};
  if (verified) {
    out["items_verified"] = verified->items;
    out["bytes_verified"] = verified->bytes;
  }
  fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

Result<int> run_warm(const Command& command, const std::string& target, bool verifies) {
  const auto manifest = TRY(manifest_of(command, target));
  auto daemon = TRY(daemon_of(command, true));
  const auto opened = TRY(open(command, daemon, *manifest, target));
  const auto reply = TRY(fill(command, daemon, opened.reply.dataset));
  std::optional<Verified> verified;
  if (verifies) verified = TRY(verify(command, daemon, opened, *manifest));
  print(command, opened.reply.public_id, reply, verified);
  if (reply.items_failed != 0) {
    return error(Code::kIo, "{} items did not come; the first: {}", reply.items_failed,
                 reply.first_error);
  }
  if (reply.items != 0 && reply.items_here == 0) {
    return error(Code::kNoSpace, "nothing of it fits into the cache; raise disk_limit");
  }
  if (verified && verified->items < reply.items) {
    return error(Code::kNoSpace, "{} of {} items are not in the cache; raise disk_limit",
                 reply.items - verified->items, reply.items);
  }
  return 0;
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
