#include "cache/client/protocol.h"

#include <concepts>
#include <type_traits>

#include "rpc/wire.h"

namespace quiver::cache {
namespace {

template <class M, class T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

// One list of fields per message, in the order of the wire; both directions walk it.
template <class V, Is<OriginSettings> M>
void fields(V& v, M& m) {
  v(m.url, m.endpoint, m.region, m.addressing, m.access_key, m.secret_key, m.session_token,
    m.ca_file, m.verify_tls, m.rate_limit, m.max_attempts, m.retry_budget, m.proxies.http,
    m.proxies.https, m.proxies.except);
}
template <class V, Is<HelloRequest> M>
void fields(V& v, M& m) {
  v(m.protocol, m.software, m.session);
}
template <class V, Is<HelloReply> M>
void fields(V& v, M& m) {
  v(m.protocol, m.software, m.pid, m.session, m.cache_directory);
}
template <class V, Is<OpenRequest> M>
void fields(V& v, M& m) {
  v(m.root, m.origin);
}
template <class V, Is<OpenReply> M>
void fields(V& v, M& m) {
  v(m.dataset, m.public_id, m.items, m.verify_one_in);
}
template <class V, Is<RenewRequest> M>
void fields(V& v, M& m) {
  v(m.dataset, m.credentials.access_key, m.credentials.secret_key, m.credentials.session_token);
}
template <class V, Is<JoinRequest> M>
void fields(V& v, M& m) {
  v(m.dataset, m.job, m.name, m.world, m.rank, m.batch_size);
}
template <class V, Is<LeaveRequest> M>
void fields(V& v, M& m) {
  v(m.dataset, m.job, m.rank);
}
template <class V, Is<SegmentsRequest> M>
void fields(V& v, M& m) {
  v(m.dataset, m.segments);
}
template <class V, Is<SegmentsReply> M>
void fields(V& v, M& m) {
  v(m.segments);
}
template <class V, Is<FetchRequest> M>
void fields(V& v, M& m) {
  v(m.dataset, m.items, m.wait_ms);
}
template <class V, Is<FetchResult> M>
void fields(V& v, M& m) {
  v(m.state, m.code, m.message);
}
template <class V, Is<FetchReply> M>
void fields(V& v, M& m) {
  v(m.results);
}
template <class V, Is<InsertRequest> M>
void fields(V& v, M& m) {
  v(m.hash, m.bytes);
}
template <class V, Is<InsertReply> M>
void fields(V& v, M& m) {
  v(m.kept);
}
template <class V, Is<InsertPartRequest> M>
void fields(V& v, M& m) {
  v(m.length, m.offset, m.hash, m.bytes);
}
template <class V, Is<DamagedRequest> M>
void fields(V& v, M& m) {
  v(m.dataset, m.item, m.segment, m.offset);
}
template <class V, Is<DamagedReply> M>
void fields(V& v, M& m) {
  v(m.gone);
}
template <class V, Is<ContentsRequest> M>
void fields(V& v, M& m) {
  v(m.dataset, m.root);
}
template <class V, Is<ContentsReply> M>
void fields(V& v, M& m) {
  v(m.unread);
}
template <class V, Is<ReportRequest> M>
void fields(V& v, M& m) {
  v(m.dataset, m.job, m.rank, m.epoch, m.step, m.steps, m.samples, m.hits, m.direct,
    m.waited_link_s, m.waited_decode_s);
}
template <class V, Is<StatusReply> M>
void fields(V& v, M& m) {
  v(m.json);
}
template <class V, Is<WarmRequest> M>
void fields(V& v, M& m) {
  v(m.dataset, m.wait_ms);
}
template <class V, Is<WarmReply> M>
void fields(V& v, M& m) {
  v(m.items, m.items_here, m.items_wanted, m.items_failed, m.bytes_here, m.bytes_wanted,
    m.first_error);
}
template <class V, Is<EvictRequest> M>
void fields(V& v, M& m) {
  v(m.public_id);
}
template <class V, Is<EvictReply> M>
void fields(V& v, M& m) {
  v(m.bytes, m.datasets);
}

constexpr std::size_t kLeastFetchResult = 7;  // state, code, an empty message

class Encoder {
 public:
  template <class... Ts>
  void operator()(const Ts&... values) {
    (one(values), ...);
  }
  std::string take() { return w_.take(); }

 private:
  void one(bool v) { w_.boolean(v); }
  void one(std::uint8_t v) { w_.u8(v); }
  void one(std::uint16_t v) { w_.u16(v); }
  void one(std::uint32_t v) { w_.u32(v); }
  void one(std::uint64_t v) { w_.u64(v); }
  void one(std::int32_t v) { w_.i32(v); }
  void one(double v) { w_.f64(v); }
  void one(Bytes v) { w_.u64(v.value); }
  void one(std::chrono::milliseconds v) { w_.i64(v.count()); }
  void one(const std::string& v) { w_.string(v); }
  void one(const Sha256& v) { w_.sha256(v); }
  void one(const Token& v) {
    for (const std::uint8_t b : v) w_.u8(b);
  }
  void one(const OriginSettings& v) { fields(*this, v); }
  void one(const FetchResult& v) { fields(*this, v); }
  template <class T>
  void one(const std::vector<T>& v) {
    w_.u32(static_cast<std::uint32_t>(v.size()));
    for (const T& element : v) one(element);
  }

  rpc::Writer w_;
};

// Keeps the first failure and reads nothing after it.
class Decoder {
 public:
  explicit Decoder(std::string_view payload) : r_(payload) {}
  template <class... Ts>
  void operator()(Ts&... values) {
    (one(values), ...);
  }
  Status finish(bool all) {
    if (status_ && all) status_ = r_.done();
    return std::move(status_);
  }

 private:
  template <class T, class R>
  void take(T& out, Result<R> (rpc::Reader::*read)()) {
    if (!status_) return;
    if (auto v = (r_.*read)()) {
      out = T(*std::move(v));
    } else {
      status_ = std::move(v).error();
    }
  }
  void one(bool& v) { take(v, &rpc::Reader::boolean); }
  void one(std::uint8_t& v) { take(v, &rpc::Reader::u8); }
  void one(std::uint16_t& v) { take(v, &rpc::Reader::u16); }
  void one(std::uint32_t& v) { take(v, &rpc::Reader::u32); }
  void one(std::uint64_t& v) { take(v, &rpc::Reader::u64); }
  void one(std::int32_t& v) { take(v, &rpc::Reader::i32); }
  void one(double& v) { take(v, &rpc::Reader::f64); }
  void one(Bytes& v) { take(v, &rpc::Reader::u64); }
  void one(std::chrono::milliseconds& v) { take(v, &rpc::Reader::i64); }
  void one(std::string& v) { take(v, &rpc::Reader::string); }
  void one(Sha256& v) { take(v, &rpc::Reader::sha256); }
  void one(Token& v) {
    for (std::uint8_t& b : v) one(b);
  }
  void one(OriginSettings& v) { fields(*this, v); }
  void one(FetchResult& v) {
    fields(*this, v);
    if (status_ && v.state > FetchResult::kFailed) {
      status_ = error(Code::kCorrupt, "a fetch result has the unknown state {}", v.state);
    }
  }
  template <class T>
  void one(std::vector<T>& v) {
    if (!status_) return;
    constexpr std::size_t least = std::same_as<T, FetchResult> ? kLeastFetchResult : sizeof(T);
    auto count = r_.count(least);
    if (!count) {
      status_ = std::move(count).error();
      return;
    }
    v.resize(*count);
    for (T& element : v) one(element);
  }

  rpc::Reader r_;
  Status status_;
};

// A greeting is understood across versions: later ones may append fields, which are skipped.
template <class M>
constexpr bool kMayGrow = std::same_as<M, HelloRequest> || std::same_as<M, HelloReply>;

}  // namespace

template <class M>
std::string encode(const M& message) {
  Encoder encoder;
  fields(encoder, message);
  return encoder.take();
}

template <class M>
Result<M> decode(std::string_view payload) {
  M message;
  Decoder decoder(payload);
  fields(decoder, message);
  if (Status all = decoder.finish(!kMayGrow<M>); !all) return std::move(all).error();
  return message;
}

#define QUIVER_MESSAGE(M)                   \
  template std::string encode<M>(const M&); \
  template Result<M> decode<M>(std::string_view)
QUIVER_MESSAGE(HelloRequest);
QUIVER_MESSAGE(HelloReply);
QUIVER_MESSAGE(OpenRequest);
QUIVER_MESSAGE(OpenReply);
QUIVER_MESSAGE(RenewRequest);
QUIVER_MESSAGE(JoinRequest);
QUIVER_MESSAGE(LeaveRequest);
QUIVER_MESSAGE(SegmentsRequest);
QUIVER_MESSAGE(SegmentsReply);
QUIVER_MESSAGE(FetchRequest);
QUIVER_MESSAGE(FetchReply);
QUIVER_MESSAGE(InsertRequest);
QUIVER_MESSAGE(InsertReply);
QUIVER_MESSAGE(InsertPartRequest);
QUIVER_MESSAGE(DamagedRequest);
QUIVER_MESSAGE(DamagedReply);
QUIVER_MESSAGE(ContentsRequest);
QUIVER_MESSAGE(ContentsReply);
QUIVER_MESSAGE(ReportRequest);
QUIVER_MESSAGE(StatusReply);
QUIVER_MESSAGE(WarmRequest);
QUIVER_MESSAGE(WarmReply);
QUIVER_MESSAGE(EvictRequest);
QUIVER_MESSAGE(EvictReply);
#undef QUIVER_MESSAGE

}  // namespace quiver::cache
