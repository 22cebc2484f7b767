#include "cache/client/digest_lazy.h"

#include "io/process.h"

namespace quiver::cache {

namespace {

constexpr std::string_view kLazy = ".lazy.qvm", kWhole = ".qvm";
constexpr std::size_t kSecret = 32;

void add(Sha256Stream& digest, std::string_view text) {
  const std::uint64_t size = text.size();
  digest.update(std::as_bytes(std::span(&size, 1)));
  digest.update(as_bytes(text));
}

}  // namespace

std::string lazy_manifest_path(const std::string& path) {
  std::string stem = path;
  if (stem.ends_with(kWhole)) stem.resize(stem.size() - kWhole.size());
  return stem + std::string(kLazy);
}

std::string complete_manifest_path(const std::string& lazy_path) {
  std::string stem = lazy_path;
  if (stem.ends_with(kLazy)) stem.resize(stem.size() - kLazy.size());
  return stem + std::string(kWhole);
}

Result<ProvisionalNames> ProvisionalNames::open(io::Files& files, const std::string& folder,
                                                const OriginSettings& origin) {
  const std::string path = folder + "/provisional-secret";
  auto secret = io::read_file(files, path, Bytes(kSecret));
  if (!secret || secret->size() != kSecret) {
    std::string made(kSecret, '\0');
    TRY(io::random_bytes(std::as_writable_bytes(std::span(made))));
    TRY(files.make_directories(folder, 0700));
    TRY(io::write_file_atomically(files, path, as_bytes(made)));
    secret = TRY(io::read_file(files, path, Bytes(kSecret)));  // another process's, perhaps
  }
  std::string prefix = "quiver provisional name 1";
  for (const std::string& part : {*secret, origin.endpoint, origin.url, origin.access_key}) {
    prefix += sha256(as_bytes(part)).hex();
  }
  return ProvisionalNames(std::move(prefix));
}

Sha256 ProvisionalNames::name(std::string_view key, const ObjectVersion& version,
                              std::uint64_t offset, Bytes length) const {
  Sha256Stream digest;
  add(digest, prefix_);
  add(digest, key);
  add(digest, version.etag);
  for (const std::uint64_t number :
       {version.size.value, static_cast<std::uint64_t>(version.mtime_ns), offset, length.value}) {
    digest.update(std::as_bytes(std::span(&number, 1)));
  }
  return digest.finish();
}

}  // namespace quiver::cache
