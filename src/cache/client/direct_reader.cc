#include "cache/client/direct_reader.h"

namespace quiver::cache {

DirectReader::DirectReader(OriginSettings settings, OriginContext context, int limit)
    : settings_(std::move(settings)), context_(context), free_(std::max(1, limit)) {}

Status DirectReader::read(const Manifest& manifest, ItemId id, MutableByteSpan out,
                          std::stop_token stop) {
  const bool admitted = free_.wait_for(
      stop, std::chrono::minutes(10), [](int n) { return n > 0; }, [](int& n) { --n; });
  if (!admitted) {
    return error(stop.stop_requested() ? Code::kCancelled : Code::kTimeout,
                 "item {} was not read: too many direct reads of the origin are under way",
                 manifest.item(id).key);
  }
  Status status;
  if (auto o = origin()) {
    status = read_verified(**o, manifest, id, out, stop);
  } else {
    status = std::move(o).error();
  }
  free_.change([](int& n) { ++n; });
  return status;
}

Result<std::shared_ptr<Origin>> DirectReader::origin() {
  return origin_.with([&](std::shared_ptr<Origin>& o) -> Result<std::shared_ptr<Origin>> {
    if (!o) {  // makes an object; nothing is asked of the network yet
      auto opened = open_origin(settings_, context_);
      if (!opened) return std::move(opened).error();
      o = *std::move(opened);
    }
    return o;
  });
}

Status DirectReader::read_verified(Origin& origin, const Manifest& manifest, ItemId id,
                                   MutableByteSpan out, std::stop_token stop) {
  const Item item = manifest.item(id);
  const ObjectRef object = manifest.object(item.object);
  const ReadRequest request{.key = std::string(object.key),
                            .offset = item.offset,
                            .expected = {object.size, std::string(object.etag), object.mtime_ns}};
  for (int attempt = 0; attempt < 2; ++attempt) {  // a second look tells noise from another object
    if (auto read = origin.read(request, out, stop); !read) return read;
    body_bytes_ += out.size();
    if (item.provisional || sha256(out) == *item.hash) return {};
  }
  return error(Code::kChanged,
               "the bytes of {} at {} are not those of the manifest: the object has changed; make "
               "the manifest anew with `quiver digest`",
               item.key, origin.url());
}

}  // namespace quiver::cache
