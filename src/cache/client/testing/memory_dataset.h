// A Dataset without a daemon, a disk or an origin, for the tests of what stands above it.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/guarded.h"
#include "cache/client/dataset.h"
#include "cache/sampler/permutation.h"
#include "io/memory.h"

namespace quiver::cache {

inline std::string content_of(std::uint32_t id) {
  std::string text = fmt::format("item {} ", id);
  text.resize(20 + id % 50, static_cast<char>('a' + id % 26));
  return text;
}

inline std::shared_ptr<const Manifest> memory_manifest(std::uint32_t items) {
  ManifestBuilder builder("memory:");
  for (std::uint32_t i = 0; i < items; ++i) {
    const std::string content = content_of(i);
    const auto object = builder.add_object(fmt::format("{}", i), {Bytes(content.size()), "", 1});
    builder.add_item(sha256(as_bytes(content)), Bytes(content.size()), fmt::format("{}", i),
                     kNoLabel, object, 0);
  }
  const std::string file = std::move(builder).finish().value();
  return Manifest::open(io::make_sealed_copy("m", as_bytes(file)).value(), "m", true).value();
}

// Holds a view that the test (as the daemon) writes. Items are readable always; what the view does
// not have takes `latency`. Any thread may call anything.
class MemoryDataset final : public Dataset {
 public:
  explicit MemoryDataset(std::uint32_t items, bool with_daemon = false)
      : manifest_(memory_manifest(items)) {
    if (with_daemon) start_daemon();
  }

  void start_daemon() {
    view_.with([&](View& v) {
      v.writer.emplace(ViewWriter::create(manifest_->size()).value());
      const io::Fd fd(::dup(v.writer->readers_fd()));
      v.reader = std::make_shared<const ViewReader>(ViewReader::map(fd, manifest_->size()).value());
      v.writer->beat(clock_.now());
      ++generation_;
    });
  }
  void stop_daemon() {
    view_.with([](View& v) {
      v.reader = nullptr;
      v.writer.reset();
    });
  }
  void pin(ItemId id) { publish(id, true); }
  // Ordered and arrived.
  void stage(ItemId id) {
    view_.with([&](View& v) { v.writer->order(id); });
    publish(id, false);
  }
  void order(ItemId id) {
    view_.with([&](View& v) { v.writer->order(id); });
  }
  void arrive(ItemId id) { publish(id, false); }
  void evict(ItemId id) {
    view_.with([&](View& v) {
      v.writer->clear(id);
      v.writer->set_counters({origin_, 0, 0, ++evicted_});
      v.writer->notify();
    });
  }
  void retire_until(std::uint64_t place) {
    view_.with([&](View& v) { v.writer->retire_until(place); });
  }
  void notify() {
    view_.with([](View& v) { v.writer->notify(); });
  }
  void read_from_origin(std::uint64_t bytes) {  // the daemon did
    view_.with([&](View& v) { v.writer->set_counters({origin_ += bytes, 0, 0, evicted_}); });
  }
  void fail(ItemId id) {
    failing_.with([&](auto& f) { f.insert(id); });
  }
  void set_latency(std::chrono::microseconds latency) { latency_ = latency.count(); }
  // A daemon that has the rank already, or whatever else join() is to say.
  void refuse_joins(std::optional<Error> why) {
    refusal_.with([&](auto& r) { r = std::move(why); });
  }
  // view() blocks for so long, as the first one does while a daemon starts.
  void set_connect_time(std::chrono::milliseconds time) { connect_time_ = time.count(); }
  // What want() asks for arrives at once.
  void answer_wants(bool yes) { answers_ = yes; }
  std::optional<BoardCopy> board() {
    const int fd = board_.with([](const io::Fd& b) { return b.get(); });
    io::RealFiles files;
    if (fd < 0) return std::nullopt;
    return read_job_board(files, fd, manifest_->size()).value();
  }
  std::vector<ItemId> wanted() {
    return wanted_.with([](const auto& w) { return w; });
  }
  std::uint64_t reads() const { return reads_; }
  int joins() const { return joins_; }
  std::uint64_t looks() const { return looks_; }  // at the view

  const Manifest& manifest() const override { return *manifest_; }
  Result<Tier> read(ItemId id, MutableByteSpan out, std::stop_token) override {
    ++reads_;
    if (failing_.with([&](const auto& f) { return f.contains(id); })) {
      return error(Code::kNotFound, "item {} is gone", id.value);
    }
    Tier tier = Tier::kDirect;
    if (!read_resident(id, out, tier)) {
      std::this_thread::sleep_for(std::chrono::microseconds(latency_));
      copy(id, out);
      if (reader()) {
        tier = Tier::kFetched;
        publish(id, false);
      } else {
        direct_ += out.size();
      }
    }
    return tier;
  }
  bool read_resident(ItemId id, MutableByteSpan out, Tier& tier) override {
    const auto v = reader();
    if (!v || v->word(id).residency() != Residency::kHere) return false;
    tier = v->word(id).pinned() ? Tier::kPinned : Tier::kStaged;
    copy(id, out);
    return true;
  }
  std::shared_ptr<const ViewReader> view() override {
    ++looks_;
    std::this_thread::sleep_for(std::chrono::milliseconds(connect_time_));
    return reader();
  }
  void want(const std::vector<ItemId>& items) override {
    if (!reader()) return;
    wanted_.with([&](auto& w) { w.insert(w.end(), items.begin(), items.end()); });
    for (const ItemId id : items) {
      if (answers_) publish(id, false);
    }
  }
  Result<std::shared_ptr<JobBoardWriter>> join(const Token16&, std::uint32_t, std::uint32_t,
                                               std::uint32_t, Duration) override {
    if (!reader()) return error(Code::kUnavailable, "no daemon");
    ++joins_;
    if (auto refusal = refusal_.with([](const auto& r) { return r; })) return *std::move(refusal);
    io::Fd fd = make_job_board(manifest_->size()).value();
    auto writer =
        std::make_shared<JobBoardWriter>(JobBoardWriter::map(fd, manifest_->size()).value());
    board_.with([&](io::Fd& b) { b = std::move(fd); });
    return writer;
  }
  std::uint64_t generation() const override { return generation_; }
  void report(ReportRequest) override {}
  bool insert(const Sha256&, ByteSpan) override { return false; }
  Result<bool> complete() override { return false; }
  void credentials_renewed() override {}
  ReadStats stats() const override {
    ReadStats stats;
    stats.direct_origin_bytes = Bytes(direct_);
    return stats;
  }
  bool degraded() const override { return !reader(); }

 private:
  struct View {
    std::optional<ViewWriter> writer;
    std::shared_ptr<const ViewReader> reader;
  };
  std::shared_ptr<const ViewReader> reader() const {
    return view_.with([](const View& v) { return v.reader; });
  }
  void publish(ItemId id, bool pinned) {
    view_.with([&](View& v) {
      if (!v.writer) return;
      v.writer->publish(id, ViewWord::here(SegmentId(1), 0, pinned), 1);
      v.writer->notify();
    });
  }
  static void copy(ItemId id, MutableByteSpan out) {
    const std::string content = content_of(id.value);
    CHECK(content.size() == out.size());
    std::memcpy(out.data(), content.data(), out.size());
  }

  RealClock clock_;
  std::shared_ptr<const Manifest> manifest_;
  Guarded<View> view_;
  Guarded<io::Fd> board_;
  Guarded<std::set<ItemId>> failing_;
  Guarded<std::vector<ItemId>> wanted_;
  Guarded<std::optional<Error>> refusal_;
  std::atomic<std::uint64_t> generation_ = 0, reads_ = 0, looks_ = 0, direct_ = 0;
  std::uint64_t evicted_ = 0, origin_ = 0;
  std::atomic<std::int64_t> latency_ = 0, connect_time_ = 0;
  std::atomic<bool> answers_ = false;
  std::atomic<int> joins_ = 0;
};

}  // namespace quiver::cache
