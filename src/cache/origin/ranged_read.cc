#include "cache/origin/ranged_read.h"

#include <cstring>

#include "cache/origin/text.h"

namespace quiver::cache {
namespace {

constexpr std::size_t kMaxStray = 64 << 10;

bool weak(std::string_view etag) {
  return etag.starts_with("W/");
}

bool same_etag(std::string_view a, std::string_view b) {
  if (weak(a)) a.remove_prefix(2);
  if (weak(b)) b.remove_prefix(2);
  return a == b;
}

}  // namespace

Status check_range(const ReadRequest& request, std::size_t length) {
  const std::uint64_t size = request.expected.size.value;
  if (any_version(request.expected)) return {};
  if (request.offset > size || length > size - request.offset) {
    return error(Code::kInvalid, "{}: bytes {}+{} lie beyond its {} bytes", request.key,
                 request.offset, length, size);
  }
  return {};
}

std::optional<Failure> RangedRead::attempt() {
  io::HttpRequest request = call_.make();
  io::HttpPhase reached{};
  request.reached = &reached;
  // An item may be larger than what a request takes by itself.
  request.max_body = std::max(request.max_body, Bytes(out_.size()));
  request.headers.emplace_back("Range", fmt::format("bytes={}-{}", first(), last()));
  const std::string& etag = wanted_.expected.etag;
  if (!etag.empty() && !weak(etag)) request.headers.emplace_back("If-Match", etag);
  request.on_headers = [this](const io::HttpResponse& answer) { return verdict(judge(answer)); };
  judged_ = stray_ = false;
  stray_body_.clear();
  auto answer = client_.context_.http.perform(
      request, [this](ByteSpan piece) { return verdict(take(piece)); }, stop_);
  if (answer) return conclude(*answer);
  if (judged_) return Failure{std::move(answer).error().context(call_.what)};
  return HttpClient::transport_failure(std::move(answer).error().context(call_.what), reached);
}

Status RangedRead::verdict(Status judged) {
  judged_ = !judged;
  return judged;
}

Status RangedRead::judge(const io::HttpResponse& answer) {
  if (answer.status == 206) return judge_partial(answer);
  if (answer.status == 200) return judge_whole(answer);
  if (answer.status > 200 && answer.status < 300) {
    return error(Code::kCorrupt, "HTTP {} is no answer to a read", answer.status);
  }
  return {};
}

Status RangedRead::judge_partial(const io::HttpResponse& answer) {
  const auto range = parse_content_range(answer.header("content-range"));
  if (!range) return error(Code::kCorrupt, "the answer does not say which bytes it holds");
  if (auto same = judge_version(answer, range->total); !same) return same;
  if (range->total && range->last < last() && range->last + 1 == *range->total) {
    return error(Code::kShort, "the object ends at byte {}", *range->total);
  }
  if (range->first != first() || range->last != last()) {
    return error(Code::kCorrupt, "bytes {}-{} were asked for, {}-{} came", first(), last(),
                 range->first, range->last);
  }
  return {};
}

// A 200 holds the whole object. It will do when all of it was asked for, also in place of a resumed
// rest: then the read starts over.
Status RangedRead::judge_whole(const io::HttpResponse& answer) {
  const auto length = parse_number(answer.header("content-length"));
  const bool all = wanted_.offset == 0 &&
                   (any_version(wanted_.expected) || wanted_.expected.size.value == out_.size());
  if (!all || (length && *length != out_.size())) {
    stray_ = true;
    return {};
  }
  if (auto same = judge_version(answer, length); !same) return same;
  filled_ = 0;
  return {};
}

Status RangedRead::judge_version(const io::HttpResponse& answer,
                                 std::optional<std::uint64_t> size) {
  ObjectVersion& expected = wanted_.expected;
  const auto etag = answer.header("etag");
  const auto mtime = parse_http_date(answer.header("last-modified"));
  if (any_version(expected)) {
    // Only where the answer says enough to recognise the same version again.
    if (size) expected = {Bytes(*size), std::string(etag), mtime};
    return {};
  }
  if (size && *size != expected.size.value) {
    return changed(fmt::format("it has {} bytes, not {}", *size, expected.size.value));
  }
  if (!etag.empty() && !expected.etag.empty()) {
    if (!same_etag(etag, expected.etag)) {
      return changed(fmt::format("its ETag is {}, not {}", etag, expected.etag));
    }
  } else if (mtime != 0 && expected.mtime_ns != 0) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    if (mtime / kSecond != expected.mtime_ns / kSecond) return changed("it was modified");
  }
  return {};
}

Error RangedRead::changed(std::string_view how) const {
  return error(Code::kChanged,
               "the object has changed at the origin ({}); digest the dataset again", how);
}

Status RangedRead::take(ByteSpan piece) {
  if (auto admitted = client_.admit(Bytes(piece.size()), stop_); !admitted) return admitted;
  if (stray_) {
    stray_body_ += as_text(piece.first(std::min(piece.size(), kMaxStray - stray_body_.size())));
    // An error that is longer than this is none; the rest is not worth its bytes.
    if (stray_body_.size() < kMaxStray) return {};
    return error(Code::kCorrupt, "bytes {}-{} were asked for, the whole object came", first(),
                 last());
  }
  if (piece.size() > out_.size() - filled_) {
    return error(Code::kCorrupt, "more bytes came than the {} asked for", out_.size());
  }
  std::memcpy(out_.data() + filled_, piece.data(), piece.size());
  filled_ += piece.size();
  furthest_ = std::max(furthest_, filled_);
  return {};
}

std::optional<Failure> RangedRead::conclude(const io::HttpResponse& answer) {
  if (answer.status == 416 && any_version(wanted_.expected)) {
    return Failure{error(Code::kShort, "{}: the object ends before byte {}", call_.what, first())};
  }
  if (answer.status < 200 || answer.status > 299) return call_.refused(answer);
  io::HttpResponse disguise;
  disguise.status = answer.status;
  disguise.headers = answer.headers;
  if (stray_) {
    disguise.body = std::move(stray_body_);
    if (call_.disguised(disguise.body)) return call_.refused(disguise);
    const auto length = parse_number(answer.header("content-length"));
    if (length && !any_version(wanted_.expected) && *length != wanted_.expected.size.value) {
      return Failure{
          changed(fmt::format("it has {} bytes, not {}", *length, wanted_.expected.size.value))
              .context(call_.what)};
    }
    return Failure{error(Code::kCorrupt,
                         "{}: bytes {}-{} were asked for, the whole object came; "
                         "the server must support ranges",
                         call_.what, first(), last())};
  }
  if (filled_ == out_.size()) return std::nullopt;
  if (answer.status == 200 && filled_ <= kMaxStray) {
    disguise.body = as_text(out_.first(filled_));
    if (call_.disguised(disguise.body)) {
      filled_ = 0;
      return call_.refused(disguise);
    }
  }
  return Failure{error(Code::kShort, "{}: the answer ended after {} of {} bytes", call_.what,
                       filled_, out_.size()),
                 RetryClass::kShort};
}

}  // namespace quiver::cache
