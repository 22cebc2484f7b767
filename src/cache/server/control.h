// Control: the daemon's state and decisions, on one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "cache/policy/allocation.h"
#include "cache/policy/fetch_queue.h"
#include "cache/policy/link_estimate.h"
#include "cache/server/control_context.h"
#include "cache/server/daemon_limits.h"
#include "cache/server/dataset_state.h"
#include "cache/server/fetch_wait.h"

namespace quiver::cache {

// Owns sessions, datasets and fetches; drives the fetch pool, the views and evictions. Lives as
// long as the daemon. Every method is for the control thread; others reach it through the
// EventQueue. Failure: a failing disk or origin fails the items concerned, is counted and shown by
// status(); the daemon goes on. Invariant: one fetch per content at a time, whoever wants it;
// whoever waits for it is answered when it is decided. Words of views are cleared before their
// segment is evicted.
class Control {
 public:
  explicit Control(const ControlContext& context);

  // control.cc: time, sessions, datasets
  Duration turn();  // does what is due; returns how long there is nothing to do
  bool stopping() const { return stopping_; }
  void stop() { stopping_ = true; }
  std::uint64_t open_session(const Token& token);
  Result<std::uint64_t> find_session(const Token& token) const;
  void close_session(std::uint64_t session);
  bool idle(Duration timeout) const;
  std::shared_ptr<const Manifest> manifest_of(const Sha256& root) const;
  struct Opened {
    std::uint32_t handle = 0;
    std::uint32_t items = 0;
    std::string public_id;
    int view_fd = -1;  // borrowed until the control thread goes on
  };
  Result<Opened> open_dataset(std::uint64_t session, std::unique_ptr<DatasetState> built,
                              SessionDataset way, std::uint64_t relocations);
  // Whether the memory budget has room for a dataset of this cost; makes some if it can.
  Status room_in_memory(Bytes cost);
  Result<SessionDataset*> dataset_of(std::uint64_t session, std::uint32_t handle);
  Status join(std::uint64_t session, const JoinRequest& request, io::Fd board);
  void leave(std::uint64_t session, const LeaveRequest& request);
  Status report(std::uint64_t session, const ReportRequest& request);

  // control_fetch.cc: single flight
  Status fetch(std::uint64_t session, const FetchRequest& request, std::shared_ptr<FetchWait> wait);
  // The session reads the dataset with these from now on; what waits for that is read now.
  Status renew(std::uint64_t session, const RenewRequest& request);
  void read_as(const Sha256& name, const Sha256& content);  // what nobody had read before
  void fetched(const Fetched& fetched, const Result<StoredAt>& result);
  Lane lane_for_insert(const Sha256& hash) const;
  void inserted(const Sha256& hash);
  void lost(const Sha256& hash);  // the store's copy was bad, and is found no more

  // control_staging.cc: boards and orders
  Result<WarmProgress> warm(std::uint64_t session, std::uint32_t handle);

  // control_moves.cc: what was staged and is to stay
  void moved(const Sha256& hash, Bytes length, SegmentId from, bool done);
  // Of items that changed their place or were lost: whoever builds a dataset meanwhile may have
  // seen the old ones.
  std::uint64_t relocations() const { return relocations_; }

  // control_room.cc: evictions
  Status make_room(Bytes length);
  // For what has been fetched: where somebody waits for it, what is only staged ahead goes.
  Status make_room_for(const Sha256& hash, Bytes length);
  EvictReply evict(const std::string& public_id);
  void rescan();  // items that the store did not show before may be found now

  // control_status.cc
  std::string status_json(const ServerFigures& figures) const;
  bool claimed(const Sha256& hash) const;  // by a dataset that somebody has opened

 private:
  struct Waiter {
    std::shared_ptr<FetchWait> wait;
    std::size_t index = 0;
    std::uint64_t session = 0;
  };
  struct Flight {
    DatasetState* dataset = nullptr;
    ItemId item;
    Bytes length;
    std::vector<Waiter> waiters;
    std::vector<std::pair<DatasetState*, ItemId>> guests;
    JobId for_job;              // that it was asked for first; 0: for none
    bool strict_rider = false;  // a strict one, that does not lead
    bool directed = false, staged = false, warm = false, submitted = false;
    int attempts = 0;
    Instant not_before{};
    std::uint64_t asked_by = 0;          // the session as which it was read last
    std::set<std::uint64_t> refused_to;  // sessions whose way to it gave a lasting error
  };
  // A session's way to the bytes of a flight.
  struct Way {
    std::uint64_t session = 0;
    SessionDataset* open = nullptr;
    ItemId item;
  };
  struct Failure {
    Sha256 dataset;  // its root; and where it was read: others have other ways to the same content
    std::string place;
    Error error;
    Instant until{};
  };
  using Flights = std::unordered_map<Sha256, Flight>;

  // control.cc
  void beat(Instant now);
  void each_second(Instant now);
  void drop_unused(Instant now);
  void drop_dataset(const Sha256& root);
  bool in_use(const DatasetState& dataset) const;
  Bytes memory() const;
  static Bytes rank_memory(const DatasetState& dataset);
  // All ranks of the session, or this one.
  void leave_jobs(DatasetState& dataset, std::uint64_t session, const LeaveRequest* one = nullptr);

  // control_fetch.cc
  void want(DatasetState& dataset, ItemId id, Waiter waiter);
  void note_asker(Flight& flight, const DatasetState& dataset, std::uint64_t session) const;
  void note_read(const Sha256& hash, const Flight& flight);
  std::optional<StoredAt> stored(const DatasetState& dataset, ItemId id) const;
  Flight& flight_for(DatasetState& dataset, ItemId id);
  void dispatch();
  static FetchQueue::Entry entry_of(const Sha256& hash, const Flight& flight);
  bool submit(const Sha256& hash, Flight& flight);
  std::optional<Way> way_for(const Sha256& hash, const Flight& flight, DatasetState& dataset,
                             bool refused);
  std::optional<Way> any_way_for(const Sha256& hash, const Flight& flight, bool refused);
  void note_refusal(Flight& flight, Code code);
  void publish(const Sha256& hash, const StoredAt& at);
  void fail(Flights::iterator flight, const Error& error);
  void not_stored(Flights::iterator flight, const Error& error);
  bool retry(const Sha256& hash, Flight& flight, const Error& error);
  void remember(const Sha256& hash, const Flight& flight, const Error& error);
  void answer(Flight& flight, const Error& error);
  void wake_delayed(Instant now);
  const Failure* remembered(const Sha256& hash, const DatasetState& dataset) const;
  std::optional<Error> too_large(const Item& item) const;
  Bytes fetch_memory() const { return context_.settings.memory_limit / limits::kFetchMemoryPart; }

  // control_staging.cc
  void look_at_boards(DatasetState& dataset, Instant now);
  void look_at_board(DatasetState& dataset, JobId job, RankEntry& rank, const BoardCopy& board,
                     Instant now);
  void follow_leader(DatasetState& dataset);
  void release(DatasetState& dataset);
  void order_more(DatasetState& dataset, Instant now);
  void warm_more(DatasetState& dataset);
  void stage(DatasetState& dataset, const Order& order);

  // control_moves.cc
  bool rescue(SegmentId id);
  bool rescue_item(const Sha256& hash, SegmentId from);

  // control_disk.cc
  bool check_directory(Instant now);
  void watch_disk(Instant now);
  void set_limit(Bytes limit);
  void disk_trouble(const Error& error);
  std::string trouble() const;

  // control_status.cc
  void note_rates(Instant now);
  OriginStats requests_of(const DatasetState& dataset) const;
  std::map<const DatasetState*, DatasetDemand> demands() const;

  // control_shares.cc
  struct Standing {  // the datasets in use, their demands, and what they have now
    std::vector<DatasetState*> datasets;
    Demands demands;
    Division division;
    std::vector<bool> known;  // whether the dataset has more than an equal part to expect
  };
  void reshare();
  void reconsider_shares(Instant now);
  void note_links();
  void note_job_rates();
  Standing standing() const;
  void divide(Standing& standing, Division division);
  Bytes shared_budget() const;
  WindowInputs window_inputs(const DatasetState& dataset, Bytes share, Bytes set_aside,
                             double link_per_second) const;
  Window window_of(const DatasetState& dataset, Bytes share, Bytes set_aside,
                   double link_per_second) const;
  void warn_of_small_share(DatasetState& dataset, const WindowInputs& in);

  // control_room.cc
  bool shrink(Instant now);
  bool staged_done(SegmentId id, Instant now);
  void evict_done(Instant now);
  bool evict_one();
  bool evict_staged();
  bool dismiss_guests();
  void evict_segment(SegmentId id);
  enum class Needed { kNothing, kSome, kAll };
  Needed needed(SegmentId id);
  const DatasetState* keeper_of(const Sha256& hash) const;
  const DatasetState* dataset_named(const std::string& public_id) const;
  void rescan_some(DatasetState& dataset);

  const ControlContext context_;
  std::map<Sha256, std::unique_ptr<DatasetState>> datasets_;
  std::map<std::uint64_t, SessionState> sessions_;
  std::uint64_t last_session_ = 0, last_job_ = 0, uses_ = 0;
  Instant idle_since_, started_, next_beat_{}, next_second_{}, next_window_{}, next_evict_{};
  bool stopping_ = false;

  Flights flights_;
  FetchQueue queue_;
  std::set<Sha256> delayed_;
  std::uint32_t in_pool_ = 0;
  Bytes in_pool_bytes_;
  std::unordered_map<Sha256, Failure> failures_;

  StagedHolds holds_;
  std::map<SegmentId, Instant> empty_since_;
  std::map<SegmentId, std::set<Sha256>> moving_;  // items on their way out of a staged segment
  std::set<SegmentId> rescued_;                   // what is to stay of these has been moved
  // How much of a segment is pinned by anybody: known until a share or a session changes.
  std::map<SegmentId, Needed> needed_;
  std::uint64_t relocations_ = 0;
  Adoption adoption_;
  std::vector<DatasetState*> divided_;  // between whom the budget was last divided, and how much
  std::vector<bool> divided_known_;
  Bytes divided_budget_;
  std::map<std::string, LinkEstimate> links_;
  std::set<DatasetState*> changed_;  // views whose readers are to be woken
  Bytes limit_;          // the disk limit now: less than the setting while others fill the disk
  Bytes writable_;       // what of it the disk took: less than the setting after it refused a write
  std::string trouble_;  // what the disk last said, for as long as it matters
  Instant trouble_since_{}, recreated_{}, next_warning_{};
  bool crowded_ = false;  // others fill the disk, and it matters
};

}  // namespace quiver::cache
