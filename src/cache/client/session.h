// Session: one process's tie to one daemon for one dataset.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/guarded.h"
#include "cache/client/daemon_link.h"
#include "cache/client/protocol.h"
#include "cache/client/segment_table.h"
#include "cache/view/job_board.h"
#include "cache/view/view.h"

namespace quiver::cache {

// How a read of what the view says is here ended.
enum class Hit : std::uint8_t {
  kHit,
  kAbsent,   // the view does not have it here
  kStale,    // the word pointed at what had just gone
  kCorrupt,  // the checksum did not match
};

// Owns its connections (the first one carries the session, at most kMaxConnections in all), the
// mapped view and the descriptors of segments. Lives from a daemon's greeting until that daemon is
// gone; then it is lost, once and for ever, and the Dataset opens another. What it holds stays
// readable as long as somebody holds it. Any thread may call anything; a call over the wire takes a
// connection of its own out of the pool. After a fork the child calls only abandon_after_fork().
class Session : public std::enable_shared_from_this<Session> {
 public:
  // Proves the manifest over a greeted connection. Takes as long as the daemon works at it: of
  // millions of items that may be many seconds.
  // What is greeted stays the caller's where it fails.
  static Result<std::shared_ptr<Session>> open(Greeted&& greeted, const DaemonAddress& address,
                                               const Manifest& manifest, OriginSettings origin,
                                               Environment environment);
  ~Session();

  // Hands these credentials to the daemon, in place of those with which it was opened.
  Status renew(const RenewableCredentials::Now& credentials);
  std::uint64_t credentials_version() const { return credentials_version_; }
  void set_credentials_version(std::uint64_t version) { credentials_version_ = version; }

  // Reads the item if it is here now. Asks the daemon only for a descriptor that is not held yet.
  // `word`: where it was looked for.
  Hit read_resident(ItemId id, MutableByteSpan out, ViewWord& word);

  // An error that is not about the connection leaves the session as it is.
  // kTimeout also when all connections are busy: look whether it came all the same.
  Result<FetchReply> fetch(const std::vector<ItemId>& items, std::chrono::milliseconds wait);
  // kInvalid when the rank is there already. In this process: at once; in another one, which may
  // have died just now: when it still is after `patience`. The rank leaves with the pointer's last
  // copy, without a word where the daemon does not answer at once.
  Result<std::shared_ptr<JobBoardWriter>> join(JoinRequest request, Duration patience);
  Status report(ReportRequest request);
  // Tells that the item could not be read right at this place; the daemon looks at its copy. True
  // when the item is not there any more, so that it is worth asking for.
  bool damaged(ItemId id, const ViewWord& word, Bytes length);
  Result<InsertReply> insert(const Sha256& hash, ByteSpan bytes);
  // Of a provisional dataset: the hashes of all its items, or none while some are unread.
  Result<std::vector<Sha256>> contents();
  void contents_written(const Sha256& root);  // the daemon need not remember them

  const ViewReader& view() const { return view_; }
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  void lose() { lost_ = true; }
  // Whether the daemon's heartbeat has moved within the last second; a session whose has not is
  // lost. What it says is of no account: a container may have a clock of its own, and clocks leap.
  bool alive();

  // Closes this process's copies of the connections without a word, so that the daemon sees the
  // parent go. The object itself is left alone for ever: its locks may be held.
  void abandon_after_fork();
  // Whether this is one of its connections.
  bool holds(int fd) const;

 private:
  static constexpr std::size_t kMaxConnections = 4;

  struct Line {
    std::unique_ptr<rpc::Connection> connection;
    std::size_t slot = 0;
    bool first = false;  // carries the session
    bool last = false;   // when it was taken no other was left
  };
  struct Pool {
    std::vector<Line> idle;
    std::array<bool, kMaxConnections> taken{};
    Instant no_more_until{};  // the last attempt to make one failed
  };

  using Seat = std::pair<Token, std::uint32_t>;  // job and rank

  Session(ViewReader view, OpenReply opened, Token token, DaemonAddress address,
          Environment environment);
  Result<Line> take_line(Instant deadline);
  Result<Line> take_usable_line(Instant deadline);
  bool may_grow(const Pool& pool) const;
  void give_line(Line line);
  void adopt(Line& line, Greeted greeted, std::size_t slot);
  void drop(Line line);
  Result<rpc::Message> call(Request type, const std::string& payload, Duration patience);
  Result<rpc::Message> call_over(Line line, Request type, const std::string& payload,
                                 Instant deadline);
  Result<JobBoardWriter> ask_for_board(const JoinRequest& request, Duration patience);
  void leave(const Seat& seat);
  SegmentTable::Handle fetch_segment(SegmentId id);
  bool right(ItemId id, ByteSpan bytes);

  const ViewReader view_;
  const OpenReply opened_;
  const Token token_;
  const DaemonAddress address_;
  const Environment environment_;
  const std::shared_ptr<SegmentTable> segments_ = SegmentTable::of_process();
  const SegmentTable::Owner me_ = segments_->add_owner();
  Guarded<Pool> pool_;
  Guarded<std::set<Seat>> seats_;                      // of this process's ranks
  std::array<std::atomic<int>, kMaxConnections> fds_;  // of open connections; -1: none
  std::vector<std::atomic<std::uint64_t>> verified_;   // one bit an item: found right once
  std::atomic<std::uint32_t> reads_ = 0;               // for the sampling of later reads
  std::atomic<Instant> last_beat_, moved_at_;          // the heartbeat, and when we saw it move
  std::atomic<bool> lost_ = false;
  std::atomic<std::uint64_t> credentials_version_ = 0;  // that the daemon has
};

}  // namespace quiver::cache
