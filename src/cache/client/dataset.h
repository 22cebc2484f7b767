// Dataset: what a process holds to read items: the manifest, the session with the daemon, the
// descriptors of segments, and the way to the origin when there is no daemon.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/quiver_settings.h"
#include "base/result.h"
#include "cache/client/protocol.h"
#include "cache/manifest/manifest.h"
#include "cache/origin/origin.h"
#include "cache/view/job_board.h"
#include "cache/view/view.h"
#include "io/file.h"

namespace quiver::cache {

// Where one read came from.
enum class Tier : std::uint8_t {
  kPinned = 0,   // a hit on what the cache keeps
  kStaged = 1,   // a hit on what was fetched ahead, for this job or another
  kFetched = 2,  // the daemon fetched it while we waited
  kDirect = 3,   // read from the origin by this process
};
inline constexpr int kTiers = 4;

struct DatasetOptions {
  std::string manifest_path;
  OriginSettings origin;  // with_environment() already applied; empty url: the manifest's
  std::shared_ptr<RenewableCredentials> credentials;  // null: those of `origin`, for good
  Settings settings;
  std::string daemon_program;  // quiverd, to be started when none runs; empty: never start one
  std::string name;            // of the job, for status
};

// Counters of this process for this dataset. Monotone.
struct ReadStats {
  std::uint64_t items[kTiers] = {};
  std::uint64_t bytes[kTiers] = {};
  std::uint64_t stale = 0;    // words that pointed at what had just gone
  std::uint64_t corrupt = 0;  // checksums that did not match
  Bytes direct_origin_bytes;
};

// What all parts share and the process owns.
struct Environment {
  io::Files& files;
  io::HttpTransport& http;
  Clock& clock;
  LogSink& log;
};

// Owns its connections and descriptors. Opens nothing but the manifest and starts no thread before
// the first read; after a fork the child begins with nothing and opens its own. Any thread may
// read. Failure: whatever happens to the daemon, read() gives the right bytes or one typed error of
// the origin. While the daemon's heartbeat moves and the fetch is in flight it waits; when that
// stands still for 1 s, the socket closes or the daemon reports an error for the item, it reads the
// origin itself (bounded), warns once, and tries to start or join a daemon again at most each
// second.
class Dataset {
 public:
  static Result<std::shared_ptr<Dataset>> open(DatasetOptions options, Environment environment);
  virtual ~Dataset() = default;

  virtual const Manifest& manifest() const = 0;
  // Exactly out.size() == item.length bytes. Blocks.
  virtual Result<Tier> read(ItemId id, MutableByteSpan out, std::stop_token stop) = 0;
  // Reads only if it is here now: true when `out` holds it.
  virtual bool read_resident(ItemId id, MutableByteSpan out, Tier& tier) = 0;
  // Connects (or starts a daemon) when that has not been done; nullptr while there is no daemon.
  // The view stays mapped as long as the pointer lives.
  virtual std::shared_ptr<const ViewReader> view() = 0;
  // Asks the daemon to fetch these soon; returns at once. Nothing when there is no daemon.
  virtual void want(const std::vector<ItemId>& items) = 0;
  // Registers a rank and gives its board, which leaves when the pointer's last copy goes; to be
  // joined again when the daemon was replaced. kUnavailable without a daemon; kInvalid when the
  // rank is there already, in another process still after `patience`.
  using Token16 = std::array<std::uint8_t, 16>;
  virtual Result<std::shared_ptr<JobBoardWriter>> join(const Token16& job, std::uint32_t world,
                                                       std::uint32_t rank, std::uint32_t batch_size,
                                                       Duration patience) = 0;
  // Rises with each daemon that this process has (re)connected to; 0: none yet.
  virtual std::uint64_t generation() const = 0;
  // Tells the daemon how the job fares, for status; nothing when there is none.
  virtual void report(ReportRequest request) = 0;
  // Gives the daemon bytes that passed by and match their hash; true when it keeps them.
  virtual bool insert(const Sha256& hash, ByteSpan bytes) = 0;
  // Of a provisional manifest whose items have all been read through the daemon: writes the whole
  // one and goes on with that, as another dataset of the daemon (so generation() rises). False when
  // there is nothing to do, or not yet. No reads may be under way for an epoch that has begun.
  virtual Result<bool> complete() = 0;
  // The credentials have been renewed: tells the daemon. What it refuses as expired meanwhile is
  // told by whoever asked for it, when there are newer ones.
  virtual void credentials_renewed() = 0;
  virtual ReadStats stats() const = 0;
  virtual bool degraded() const = 0;  // reads go to the origin for want of a daemon
};

}  // namespace quiver::cache
