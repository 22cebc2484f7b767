// Makes a manifest, or renews it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cache/client/digest.h"
#include "cache/client/user_settings.h"
#include "program_credentials.h"
#include "quiver_commands.h"
#include "quiver_progress.h"
#include "quiver_text.h"

namespace quiver {
namespace {

// An address that holds nothing of the kind: what else it may be is said in terms of this command.
Error with_cure(Error failure, const DigestArguments& arguments) {
  const bool folders = failure.message.find("class folder") != std::string::npos ||
                       failure.message.find("for the classes") != std::string::npos;
  if (failure.code == Code::kInvalid && folders && arguments.layout == "image_folder") {
    failure.message += " (here: --layout files, or --allow-empty for empty class folders)";
  }
  const bool is_path = arguments.url.find("://") == std::string::npos;
  const bool of_data = !failure.message.starts_with("the manifest");
  if (is_path && of_data && failure.code == Code::kDenied) {
    failure.message += "; make it readable for you, or leave it out of the folder";
  } else if (failure.code == Code::kUnreachable) {
    failure.message += "; check the address, the setting endpoint and the network";
  }
  return failure;
}

// `kinds`: what its files were to be.
void print(const cache::DigestReport& report, std::string_view kinds) {
  fmt::print("{}{}, {}\n", count_of(report.items, "item"),
             report.classes == 0 ? "" : fmt::format(" in {} classes", count(report.classes)),
             format_bytes(report.bytes));
  std::string how =
      fmt::format("{} read ({})", count(report.downloaded), format_bytes(report.downloaded_bytes));
  if (report.kept != 0) how += fmt::format(", {} of them kept in the cache", count(report.kept));
  if (report.unchanged != 0) how += fmt::format("; {} unchanged", count(report.unchanged));
  const std::uint64_t known = report.downloaded + report.unchanged;
  if (known < report.items) {
    how += fmt::format("; {} with the store's own checksum", count(report.items - known));
  }
  fmt::print("{}\n", how);
  if (report.renewed) {
    fmt::print("since the last digest: {} added, {} changed, {} removed\n", count(report.added),
               count(report.changed), count(report.removed));
  }
  if (report.left_out != 0) {
    fmt::print("{} left out: no {}\n", count_of(report.left_out, "file"), kinds);
  }
  fmt::print("manifest {} (dataset {})\n", report.manifest_path, report.public_id);
}

}  // namespace

Result<int> run_digest(const Command& command, const DigestArguments& arguments) {
  cache::DigestOptions options;
  options.origin = TRY(cache::user_origin(address_of(arguments.url), command.settings, {},
                                          command.environment.files));
  ProgramCredentials credentials(command, address_of(arguments.url), options.origin);
  options.credentials = credentials.shared();
  options.layout = TRY(cache::layout_of(arguments.layout));
  options.manifest_path = arguments.manifest;
  options.allow_empty = arguments.allow_empty;
  options.fresh = arguments.fresh;
  options.settings = command.settings;
  options.daemon_program = command.settings.enabled ? command.daemon_program : "";
  Progress bar(command.environment.clock, "digest", command.json);
  const auto made = cache::digest(
      options, command.environment,
      [&](const cache::DigestProgress& p) {
        credentials.look();
        if (p.listing) {
          return bar.show(0, 0, fmt::format("{} listed", count_of(p.objects_listed, "object")));
        }
        bar.show(p.items_done, p.items_total,
                 fmt::format("{} of {} {}, {}", count(p.items_done), count(p.items_total),
                             p.archives ? "archives" : "items", format_bytes(p.bytes_done)));
      },
      command.stop);
  bar.finish();
  if (command.stop.stop_requested() && !made) {
    return error(Code::kCancelled, "interrupted; no manifest was written");
  }
  if (!made) return with_cure(made.error(), arguments);
  const cache::DigestReport& report = *made;
  if (!command.json) {
    print(report, options.layout == cache::Layout::kWebDataset ? "archives" : "images");
    return 0;
  }
  print_json({{"manifest", report.manifest_path},
              {"id", report.public_id},
              {"items", report.items},
              {"classes", report.classes},
              {"bytes", report.bytes.value},
              {"downloaded", report.downloaded},
              {"downloaded_bytes", report.downloaded_bytes.value},
              {"kept", report.kept},
              {"renewed", report.renewed},
              {"unchanged", report.unchanged},
              {"added", report.added},
              {"changed", report.changed},
              {"removed", report.removed},
              {"left_out", report.left_out},
              {"directory_markers", report.directory_markers}});
  return 0;
}

}  // namespace quiver
