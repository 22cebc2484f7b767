#include "cache/store/store.h"

#include "cache/store/local_store.h"

namespace quiver::cache {

Result<VerifiedItem> VerifiedItem::verify(const Sha256& expected, ByteSpan bytes) {
  if (sha256(bytes) != expected) {
    return error(Code::kCorrupt, "the {} bytes that came are not those of their hash",
                 bytes.size());
  }
  return VerifiedItem(expected, bytes);
}

VerifiedItem VerifiedItem::of_unknown(ByteSpan bytes) {
  return VerifiedItem(sha256(bytes), bytes);
}

Result<std::unique_ptr<Store>> Store::open(const StoreOptions& options, io::Files& files,
                                           Clock& clock, LogSink& log) {
  auto directory = TRY(Directory::open(options.directory, files));
  auto store = std::make_unique<LocalStore>(options, std::move(directory), files, clock, log);
  if (Status ok = store->recover(options.boot_id); !ok) return std::move(ok).error();
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace quiver::cache
