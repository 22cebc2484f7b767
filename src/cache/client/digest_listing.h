// What a digest finds at an address, and what of it becomes items.
#pragma once

#include <deque>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "cache/client/digest.h"
#include "cache/origin/origin.h"

namespace quiver::cache {

inline constexpr auto kProgressEvery = std::chrono::milliseconds(100);

// What becomes an item: an object, or a piece of one.
struct Pick {
  std::size_t object;  // into the listing
  std::int32_t label = kNoLabel;
  std::string_view key{};  // of the item; lives as long as the listing
  std::uint64_t offset = 0;
  Bytes length{};
  Sha256 hash{};
  bool piece = false;        // of an archive
  bool known = false;        // its hash is that of the last digest
  bool passed = false;       // it was hashed while its archive was read
  bool kept = false;         // the daemon has taken it
  bool provisional = false;  // `hash` is a name
};

// Moved, never copied: keys of picks lie in it.
struct Listing {
  Listing() = default;
  Listing(Listing&&) noexcept = default;
  Listing& operator=(Listing&&) noexcept = default;

  std::vector<ListedObject> objects;
  std::vector<Pick> picks;  // in the manifest's order
  std::vector<std::string> classes;
  std::deque<std::string> keys;  // of items that are no whole objects
  std::uint64_t directory_markers = 0, left_out = 0;
};

// The path of an address that is a directory.
std::optional<std::string> local_path(const std::string& url);
// kNotFound or kInvalid for an address that is a path but no directory.
Status check_directory(io::Files& files, const std::string& url);

// Everything below the origin's address, by the rules of the layout; of archives, each is one pick.
Result<Listing> list_folder(const DigestOptions& options, Origin& origin,
                            const std::function<void(const DigestProgress&)>& progress,
                            std::stop_token stop);

}  // namespace quiver::cache
