// Fills the cache with a dataset, and empties it again.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/text.h"
#include "cache/client/user_settings.h"
#include "cache/view/view.h"
#include "exit_status.h"
#include "io/process.h"
#include "program_credentials.h"
#include "quiver_commands.h"
#include "quiver_progress.h"
#include "quiver_text.h"

namespace quiver {

using Json = nlohmann::json;

namespace {

Error interrupted() {
  return error(Code::kCancelled, "interrupted; what has come stays in the cache");
}

struct Opened {
  cache::OpenReply reply;
  io::Fd view;
  std::unique_ptr<ProgramCredentials> credentials;
};

Result<Opened> open(const Command& command, cache::Greeted& daemon, const cache::Manifest& manifest,
                    const std::string& target) {
  cache::OpenRequest request;
  request.root = manifest.root();
  const bool is_url = !target.ends_with(".qvm");
  const std::string url = is_url ? address_of(target) : std::string(manifest.origin_url());
  request.origin = TRY(cache::user_origin(url, command.settings, {}, command.environment.files));
  auto credentials = std::make_unique<ProgramCredentials>(command, url, request.origin);
  const std::vector<int> fds{manifest.descriptor()};
  auto reply = TRY(daemon.connection->call(
      static_cast<std::uint16_t>(cache::Request::kOpen), cache::encode(request), fds,
      command.environment.clock.now() + std::chrono::minutes(1)));
  if (reply.fds.size() != 1) return error(Code::kCorrupt, "the daemon's answer lacks the view");
  return Opened {
    TRY(cache::decode<cache::OpenReply>(reply.payload))
    , std::move(reply.fds[0]), std::move(credentials)
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
    if (command.stop.stop_requested()) return interrupted();
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
                              const Opened& opened) {
  const std::uint32_t dataset = opened.reply.dataset;
  Progress bar(command.environment.clock, "warm", command.json);
  for (;;) {
    if (opened.credentials->look()) {
      const cache::RenewRequest renew{dataset, opened.credentials->shared()->now().keys};
      TRY(daemon.connection->call(static_cast<std::uint16_t>(cache::Request::kRenew),
                                  cache::encode(renew), {},
                                  command.environment.clock.now() + std::chrono::minutes(1)));
    }
    auto reply = TRY(ask_daemon<cache::WarmReply>(daemon, cache::Request::kWarm,
                                                  cache::WarmRequest{dataset, 500},
                                                  command.environment.clock));
    // A share that shrinks meanwhile may have more here than it is still to hold.
    reply.items_here = std::min(reply.items_here, reply.items_wanted);
    reply.bytes_here = std::min(reply.bytes_here, reply.bytes_wanted);
    bar.show(reply.bytes_here, reply.bytes_wanted,
             part_of(Bytes(reply.bytes_here), Bytes(reply.bytes_wanted)));
    if (reply.items_here + reply.items_failed >= reply.items_wanted) return reply;
    if (command.stop.stop_requested()) return interrupted();
  }
}

// What is wrong with the end, if anything is.
std::optional<Error> shortfall(const cache::WarmReply& reply,
                               const std::optional<Verified>& verified) {
  if (reply.items_failed != 0) {
    return error(Code::kIo, "{} of {} did not come; the first: {}", count(reply.items_failed),
                 count_of(reply.items_wanted, "item"), reply.first_error);
  }
  if (reply.items != 0 && reply.items_here == 0) {
    return error(Code::kNoSpace, "nothing of it fits into the cache; raise disk_limit");
  }
  if (verified && verified->items < reply.items) {
    return error(Code::kNoSpace, "{} of {} are not in the cache; raise disk_limit",
                 count(reply.items - verified->items), count_of(reply.items, "item"));
  }
  return std::nullopt;
}

void print(const cache::WarmReply& reply, const std::optional<Verified>& verified, bool short_of) {
  fmt::print("here: {} of {}, {}\n", count(reply.items_here), count_of(reply.items_wanted, "item"),
             part_of(Bytes(reply.bytes_here), Bytes(reply.bytes_wanted)));
  if (reply.items_wanted < reply.items && !short_of) {
    fmt::print("its share of the cache holds these of its {}; raise disk_limit for more\n",
               count_of(reply.items, "item"));
  }
  if (verified) {
    fmt::print("{} of {} were read and are right\n", count_of(verified->items, "item"),
               count_of(verified->bytes, "byte"));
  }
}

void print_warm_json(const std::string& id, const cache::WarmReply& reply,
                     const std::optional<Verified>& verified, const std::optional<Error>& failure) {
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
  if (failure) out["error"] = error_json(*failure);
  print_json(out);
}

}  // namespace

Result<int> run_warm(const Command& command, const std::string& target, bool verifies) {
  const auto manifest = TRY(manifest_of(command, target));
  auto daemon = TRY(daemon_of(command, true));
  const auto opened = TRY(open(command, daemon, *manifest, target));
  const auto reply = TRY(fill(command, daemon, opened));
  std::optional<Verified> verified;
  if (verifies) verified = TRY(verify(command, daemon, opened, *manifest));
  const auto failure = shortfall(reply, verified);
  if (command.json) {
    print_warm_json(opened.reply.public_id, reply, verified, failure);
    return failure ? exit_status(failure->code) : 0;
  }
  print(reply, verified, failure.has_value());
  if (failure) return *failure;
  return 0;
}

namespace {

// What is to be evicted; a manifest where it was named by an address.
struct Victim {
  std::string id;  // empty: everything
  std::shared_ptr<const cache::Manifest> manifest;
};

Result<Victim> victim_of(const Command& command, const std::string& target, bool all) {
  if (all != target.empty()) {
    return error(Code::kInvalid,
                 "say what to evict: an id of 'quiver status', a URL, a manifest (.qvm), or --all");
  }
  Victim chosen;
  if (all) return chosen;
  if (target.find_first_of("/.") == std::string::npos) {
    chosen.id = target;
    return chosen;
  }
  auto manifest = manifest_of(command, target);
  if (!manifest && manifest.error().code == Code::kNotFound && !target.ends_with(".qvm")) {
    return error(Code::kNotFound,
                 "'{}' has not been digested here, so nothing of it is cached under that name; "
                 "'quiver status' lists what is",
                 target);
  }
  chosen.manifest = TRY(std::move(manifest));
  chosen.id = public_id(chosen.manifest->root());
  return chosen;
}

const Json* find(const Json& status, const std::string& id) {
  for (const Json& dataset : status["datasets"]) {
    if (dataset.value("id", "") == id) return &dataset;
  }
  return nullptr;
}

Error unknown(const Json& status, const std::string& what) {
  constexpr std::size_t kShown = 5;
  std::string ids;
  const Json& datasets = status["datasets"];
  for (std::size_t i = 0; i < std::min(kShown, datasets.size()); ++i) {
    ids += (i == 0 ? "" : ", ") + datasets[i].value("id", "?");
  }
  if (datasets.size() > kShown) ids += fmt::format(" and {} more", datasets.size() - kShown);
  return error(Code::kNotFound, "no dataset {} is cached here; {}", what,
               ids.empty() ? "'quiver status' says what is"
                           : fmt::format("'quiver status' lists what is: {}", ids));
}

int print(const Command& command, const cache::EvictReply& reply, const std::string& remark) {
  if (command.json) {
    print_json(Json{{"bytes", reply.bytes}, {"datasets", reply.datasets}});
  } else {
    fmt::print("{} evicted{}\n", format_bytes(Bytes(reply.bytes)), remark);
  }
  return 0;
}

// Why no more went, or what comes next.
std::string remark_on(const Json* dataset, const cache::EvictReply& reply) {
  if (dataset == nullptr) return "";
  if (reply.bytes == 0) {
    const std::uint64_t here = dataset->value("items_here", std::uint64_t{0});
    if (here == 0) return ": nothing of it was here";
    return fmt::format(": the {} of it that are here belong to other datasets too",
                       count_of(here, "item"));
  }
  return dataset->value("in_use", false) ? "; it is in use: jobs fetch it again as they need it"
                                         : "";
}

}  // namespace

Result<int> run_evict(const Command& command, const std::string& target, bool all) {
  const Victim chosen = TRY(victim_of(command, target, all));
  const auto& env = command.environment;
  const auto address = TRY(cache::daemon_address(command.settings, env.files, io::environment));
  if (!env.files.stat(address.cache_directory + "/quiver-cache")) {  // the marker of one
    if (all)
      return print(command, {},
                   fmt::format(": there is no cache in '{}'", address.cache_directory));
    return error(Code::kNotFound, "no dataset {} is cached here: there is no cache in '{}'", target,
                 address.cache_directory);
  }
  // Only a daemon knows what lies in the directory: it is started if none runs.
  auto daemon = TRY(daemon_of(command, true));
  const Json status = TRY(status_of(command, daemon));
  const Json* known = find(status, chosen.id);
  if (!all && known == nullptr) {
    const bool unclaimed = status["unclaimed"].value("items", std::uint64_t{0}) != 0;
    if (chosen.manifest == nullptr || !unclaimed) return unknown(status, target);
    // What a digest brought becomes the dataset's when it is opened.
    TRY(open(command, daemon, *chosen.manifest, target));
  }
  const auto reply = TRY(ask_daemon<cache::EvictReply>(daemon, cache::Request::kEvict,
                                                       cache::EvictRequest{chosen.id}, env.clock));
  if (!all && known == nullptr && reply.bytes == 0) return unknown(status, target);
  return print(command, reply, remark_on(known, reply));
}

}  // namespace quiver
