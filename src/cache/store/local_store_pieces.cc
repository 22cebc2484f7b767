// Items that come in pieces: see IncomingItem. The index is written last, so that a start finds
// either all of the item or data without an index, which it deletes.
#include <fcntl.h>

#include "base/checksum.h"
#include "cache/store/local_store.h"

namespace quiver::cache {

class LocalStore::Pieces final : public IncomingItem {
 public:
  // The segment is in the catalog, open, with room for all of it booked.
  Pieces(LocalStore& store, SegmentId id, Bytes length, io::Fd data)
      : store_(store), id_(id), length_(length.value), data_(std::move(data)) {}
  ~Pieces() override {
    data_.reset();
    if (!finished_) store_.evict(id_);
  }

  std::uint64_t received() const override { return received_; }
  std::uint64_t length() const override { return length_; }

  Status add(ByteSpan piece) override {
    if (piece.size() > length_ - received_) {
      return error(Code::kInvalid, "an item of {} bytes goes on beyond its end", length_);
    }
    if (!still_there()) return evicted();
    TRY(store_.files_.pwrite(data_.get(), piece, received_));
    received_ += piece.size();
    sha_.update(piece);
    checksum_.update(piece);
    return {};
  }

  Result<StoredAt> finish(const Lane& lane, const Sha256& expected) override {
    if (received_ != length_ || sha_.finish() != expected) {
      return error(Code::kCorrupt, "the {} bytes that came are not those of their hash", received_);
    }
    if (lane.group.size() > kMaxGroupBytes) {
      return error(Code::kInvalid, "a group of {} letters is too much", lane.group.size());
    }
    if (const auto there = store_.find(expected)) return *there;  // somebody was faster
    const IndexRow row{expected, 0, length_, checksum_.value()};
    const io::Fd index = TRY(store_.directory_->open_index(id_, O_WRONLY | O_CREAT | O_EXCL));
    TRY(store_.files_.pwrite(index.get(), encode_row(row), kRowBytes));
    TRY(store_.files_.pwrite(index.get(), encode_header(id_, lane), 0));
    data_.reset();
    const auto at = store_.catalog_.with([&](Catalog& c) {
      c.set_lane(id_, lane);
      return c.is_open(id_) ? c.add_item(id_, row) : std::nullopt;
    });
    if (!at) return evicted();
    finished_ = at->segment == id_;  // else another writer was faster
    if (finished_) store_.settle_sealed(id_);
    return *at;
  }

 private:
  bool still_there() const {
    return store_.catalog_.with([&](const Catalog& c) { return c.is_open(id_); });
  }
  Error evicted() const {
    return error(Code::kNoSpace, "segment {} was evicted while an item was written to it",
                 id_.value);
  }

  LocalStore& store_;
  const SegmentId id_;
  const std::uint64_t length_;
  io::Fd data_;
  std::uint64_t received_ = 0;
  Sha256Stream sha_;
  Checksum32Stream checksum_;
  bool finished_ = false;
};

Result<std::unique_ptr<IncomingItem>> LocalStore::begin_item(Bytes length) {
  if (length.value >= kSegmentBytes) {
    return error(Code::kInvalid, "an item of {} bytes is too much", length.value);
  }
  const Bytes growth = growth_of_new(length);
  TRY(reserve_patiently(growth));
  const auto begin = [&]() -> Result<std::unique_ptr<IncomingItem>> {
    const SegmentId id = TRY(next_number());
    io::Fd data = TRY(directory_->open_data(id, O_WRONLY | O_CREAT | O_EXCL));
    catalog_.with([&](Catalog& c) {
      c.add_segment(id, Lane{"incoming"}, true);
      c.set_allocated(id, growth);
    });
    return std::make_unique<Pieces>(*this, id, length, std::move(data));
  };
  auto item = begin();
  catalog_.with([&](Catalog& c) { c.unreserve(growth); });
  if (!item) return std::move(item).error().context("beginning a segment");
  return item;
}

}  // namespace quiver::cache
