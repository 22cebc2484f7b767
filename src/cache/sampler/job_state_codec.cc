// The bytes of a RankState: docs/formats/state.md.
#include <bit>
#include <cstring>

#include "base/check.h"
#include "cache/sampler/job_state.h"

namespace quiver::cache {
namespace {

constexpr std::string_view kMagic = "QVRS";
constexpr std::uint32_t kVersion1 = 1;
constexpr std::uint8_t kRaw = 0, kRuns = 1;

template <class T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint8_t>(value >> (8 * i))));
  }
}

void put_varint(std::string& out, std::uint32_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// The first item from `from` on that is (`in`) or is not in the set; its size when there is none.
std::uint32_t find(const ItemSet& set, std::uint32_t from, bool in) {
  const std::uint64_t flip = in ? 0 : ~std::uint64_t{0};
  std::uint64_t ignored = (std::uint64_t{1} << (from & 63)) - 1;
  for (std::size_t w = from >> 6; w < set.words().size(); ++w) {
    const std::uint64_t bits = (set.words()[w] ^ flip) & ~ignored;
    if (bits != 0) {
      const std::uint64_t at = w * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
      return static_cast<std::uint32_t>(std::min<std::uint64_t>(at, set.size()));
    }
    ignored = 0;
  }
  return set.size();
}

// Lengths of runs, absent first, up to the last present item. Gives up when it passes `limit`.
std::string runs_of(const ItemSet& set, std::size_t limit) {
  std::string out;
  bool present = false;
  for (std::uint32_t at = 0; out.size() <= limit;) {
    const std::uint32_t end = find(set, at, !present);
    if (!present && end == set.size()) break;
    put_varint(out, end - at);
    at = end;
    present = !present;
  }
  return out;
}

void put_set(std::string& out, const ItemSet& set) {
  const std::size_t raw_size = (static_cast<std::size_t>(set.size()) + 7) / 8;
  std::string body = runs_of(set, raw_size);
  const bool runs = body.size() < raw_size || raw_size == 0;
  if (!runs) {
    body.clear();
    for (std::size_t i = 0; i < raw_size; ++i) {
      body.push_back(static_cast<char>(set.words()[i / 8] >> (8 * (i % 8))));
    }
  }
  put(out, runs ? kRuns : kRaw);
  put(out, static_cast<std::uint32_t>(body.size()));
  out += body;
}

// Reads from the front of what is left; every taker says kCorrupt at the end of the bytes.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  Result<std::string_view> take(std::size_t n) {
    if (rest_.size() < n) return error(Code::kCorrupt, "the state ends too early");
    const auto front = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return front;
  }

  template <class T>
  Result<T> number() {
    const std::string_view bytes = TRY(take(sizeof(T)));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value |= std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
    }
    return static_cast<T>(value);
  }

  Result<std::uint32_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      const auto byte = TRY(number<std::uint8_t>());
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) {
        if (value > UINT32_MAX) break;
        return static_cast<std::uint32_t>(value);
      }
    }
    return error(Code::kCorrupt, "a run in the state is longer than any dataset");
  }

  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

void fill(std::vector<std::uint64_t>& words, std::uint64_t from, std::uint64_t to) {
  for (; from < to && from % 64 != 0; ++from) words[from / 64] |= std::uint64_t{1} << (from % 64);
  for (; from + 64 <= to; from += 64) words[from / 64] = ~std::uint64_t{0};
  for (; from < to; ++from) words[from / 64] |= std::uint64_t{1} << (from % 64);
}

Result<ItemSet> take_set(Reader& in, std::uint32_t size) {
  const auto kind = TRY(in.number<std::uint8_t>());
  const auto length = TRY(in.number<std::uint32_t>());
  const std::string_view body = TRY(in.take(length));
  const std::size_t raw_size = (static_cast<std::size_t>(size) + 7) / 8;
  if (kind > kRuns) return error(Code::kCorrupt, "the state has a bitmap of unknown kind {}", kind);
  if (kind == kRaw && length != raw_size) {
    return error(Code::kCorrupt, "a bitmap in the state has {} bytes, not {}", length, raw_size);
  }
  std::vector<std::uint64_t> words((static_cast<std::size_t>(size) + 63) / 64);
  if (kind == kRaw) {
    for (std::size_t i = 0; i < raw_size; ++i) {
      words[i / 8] |= std::uint64_t{static_cast<std::uint8_t>(body[i])} << (8 * (i % 8));
    }
    return ItemSet::from_words(size, std::move(words));
  }
  Reader runs(body);
  bool present = false;
  for (std::uint64_t at = 0; !runs.empty(); present = !present) {
    const std::uint64_t end = at + TRY(runs.varint());
    if (end > size) return error(Code::kCorrupt, "a bitmap in the state has bits beyond its end");
    if (present) fill(words, at, end);
    at = end;
  }
  return ItemSet::from_words(size, std::move(words));
}

Result<RankState> take_state(Reader& in) {
  const auto items = TRY(in.number<std::uint32_t>());
  if (items > kMostStateItems) {
    return error(Code::kCorrupt, "the state is of {} items; at most {} can be", items,
                 kMostStateItems);
  }
  RankState state(items);
  state.seed = TRY(in.number<std::uint64_t>());
  state.epoch = TRY(in.number<std::uint64_t>());
  state.step = TRY(in.number<std::uint32_t>());
  state.world = TRY(in.number<std::uint32_t>());
  state.rank = TRY(in.number<std::uint32_t>());
  state.batch_size = TRY(in.number<std::uint32_t>());
  state.pads = TRY(in.number<std::uint32_t>());
  const auto mode = TRY(in.number<std::uint8_t>());
  const auto length = TRY(in.number<std::uint8_t>());
  if (state.rank >= state.world || state.batch_size == 0 || mode > 1) {
    return error(Code::kCorrupt, "the state has rank {} of {}, batch size {}, mode {}", state.rank,
                 state.world, state.batch_size, mode);
  }
  state.mode = mode == 0 ? "strict" : "substitute";
  state.dataset = std::string(TRY(in.take(length)));
  const std::string_view chain = TRY(in.take(state.chain.bytes.size()));
  std::memcpy(state.chain.bytes.data(), chain.data(), chain.size());
  state.delivered = TRY(take_set(in, state.items));
  state.delivered_before = TRY(take_set(in, state.items));
  if (!in.empty()) return error(Code::kCorrupt, "the state has bytes after its end");
  return state;
}

}  // namespace

std::string encode(const RankState& state) {
  CHECK(state.items <= kMostStateItems && state.dataset.size() <= 255);
  CHECK(state.mode == "strict" || state.mode == "substitute");
  std::string out(kMagic);
  put(out, kVersion1);
  put(out, state.items);
  put(out, state.seed);
  put(out, state.epoch);
  put(out, state.step);
  put(out, state.world);
  put(out, state.rank);
  put(out, state.batch_size);
  put(out, state.pads);
  put(out, static_cast<std::uint8_t>(state.mode == "strict" ? 0 : 1));
  put(out, static_cast<std::uint8_t>(state.dataset.size()));
  out += state.dataset;
  out.append(reinterpret_cast<const char*>(state.chain.bytes.data()), state.chain.bytes.size());
  put_set(out, state.delivered);
  put_set(out, state.delivered_before);
  put(out, checksum32(as_bytes(out)));
  return out;
}

Result<RankState> decode_rank_state(std::string_view bytes) {
  Reader in(bytes);
  if (TRY(in.take(kMagic.size())) != kMagic) {
    return error(Code::kCorrupt, "this is not the state of a job");
  }
  const auto version = TRY(in.number<std::uint32_t>());
  if (version != kVersion1) {
    return error(Code::kVersion, "the state has version {}; this Quiver reads version {}", version,
                 kVersion1);
  }
  constexpr std::size_t kHead = kMagic.size() + sizeof version, kSum = sizeof(std::uint32_t);
  if (bytes.size() < kHead + kSum) return error(Code::kCorrupt, "the state ends too early");
  const std::string_view body = bytes.substr(0, bytes.size() - kSum);
  if (TRY(Reader(bytes.substr(body.size())).number<std::uint32_t>()) !=
      checksum32(as_bytes(body))) {
    return error(Code::kCorrupt, "the state does not match its checksum");
  }
  Reader rest(body.substr(kHead));
  return take_state(rest);
}

}  // namespace quiver::cache
