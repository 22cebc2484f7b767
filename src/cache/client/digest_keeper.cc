#include "cache/client/digest_keeper.h"

#include <algorithm>
#include <cmath>

#include "io/process.h"

namespace quiver::cache {
namespace {

constexpr Duration kStart = std::chrono::seconds(10);
constexpr Duration kPatience = std::chrono::seconds(30);
constexpr double kFill = 0.95;  // of the limit: the staging window and the indexes need some

// What the daemon's limit comes to, by the rule that it uses itself.
std::uint64_t disk_limit(const Settings& settings, const std::string& directory, io::Files& files) {
  if (settings.disk_limit.size) return settings.disk_limit.size->value;
  const auto space = files.space(directory);
  if (!space) return 0;
  const auto total = static_cast<double>(space->total.value);
  const auto available = static_cast<double>(space->available.value);
  if (settings.disk_limit.share)
    return static_cast<std::uint64_t>(*settings.disk_limit.share * total);
  return static_cast<std::uint64_t>(std::max(0.0, std::min(0.2 * total, available - 0.15 * total)));
}

}  // namespace

std::unique_ptr<DigestKeeper> DigestKeeper::connect(const DigestOptions& options,
                                                    Environment environment, Bytes total) {
  const auto address = daemon_address(options.settings, environment.files, io::environment);
  Result<Greeted> greeted =
      address ? greet_or_start_daemon(*address, options.daemon_program, options.settings,
                                      environment, environment.clock.now() + kStart)
              : Result<Greeted>(address.error());
  if (!greeted) {
    log(environment.log, LogLevel::kWarning, "what is digested is not kept in the cache: {}",
        greeted.error().message);
    return nullptr;
  }
  const std::uint64_t limit =
      disk_limit(options.settings, address->cache_directory, environment.files);
  const double share =
      total.value == 0
          ? 1.0
          : std::min(1.0, kFill * static_cast<double>(limit) / static_cast<double>(total.value));
  std::unique_ptr<DigestKeeper> keeper(
      new DigestKeeper(*address, greeted->hello.session, environment, share));
  keeper->first_ = std::move(greeted->connection);
  return keeper;
}

std::unique_ptr<rpc::Connection> DigestKeeper::take() {
  std::unique_ptr<rpc::Connection> idle;
  const bool got = pool_.wait_for(
      std::stop_token{}, kPatience,
      [&](const Pool& pool) {
        return !pool.idle.empty() || pool.open < kMaxConnections || failed_;
      },
      [&](Pool& pool) {
        if (pool.idle.empty()) {
          ++pool.open;
          return;
        }
        idle = std::move(pool.idle.back());
        pool.idle.pop_back();
      });
  if (idle || !got || failed_) return idle;
  auto greeted = greet_daemon(address_, token_, environment_.clock.now() + kPatience);
  return greeted ? std::move(greeted->connection) : nullptr;
}

bool DigestKeeper::fail() {
  pool_.change([&](Pool&) { failed_ = true; });  // nobody waits any longer
  return false;
}

bool DigestKeeper::in_share(const Sha256& hash) const {
  return std::ldexp(static_cast<double>(hash.prefix()), -64) < share_;
}

bool DigestKeeper::keep(const Sha256& hash, ByteSpan bytes) {
  if (failed_ || !in_share(hash)) return false;
  auto connection = take();
  if (!connection) return fail();
  const auto kept = insert_item(*connection, environment_.clock, hash, bytes);
  if (!kept) return fail();
  pool_.change([&](Pool& pool) { pool.idle.push_back(std::move(connection)); });
  return *kept;
}

// Each on a connection of its own, for it may take long.
DigestKeeper::LongItem DigestKeeper::begin(Bytes length) {
  LongItem item(*this);
  if (failed_ || share_ <= 0) return item;
  auto greeted = greet_daemon(address_, token_, environment_.clock.now() + kPatience);
  if (!greeted) {
    fail();
    return item;
  }
  item.connection_ = std::move(greeted->connection);
  item.stream_.emplace(*item.connection_, environment_.clock, length);
  return item;
}

bool DigestKeeper::LongItem::add(ByteSpan piece, const std::optional<Sha256>& hash) {
  if (!stream_) return false;
  if (hash && !keeper_->in_share(*hash)) {
    stream_.reset(), connection_.reset();  // what the daemon has of it goes with the connection
    return false;
  }
  const auto kept = stream_->add(piece, hash.value_or(Sha256{}));
  if (!kept && kept.error().code != Code::kCorrupt) keeper_->fail();
  if (!kept || !*kept) stream_.reset(), connection_.reset();
  return kept && *kept;
}

}  // namespace quiver::cache
