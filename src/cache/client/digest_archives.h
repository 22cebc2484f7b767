// Archives (tar) become the samples that they have: found, and hashed, while each is read once.
#pragma once

#include <string>
#include <vector>

#include "cache/client/digest_keeper.h"
#include "cache/client/digest_listing.h"
#include "cache/client/digest_previous.h"

namespace quiver::cache {

struct ArchiveAddress {
  std::string folder;              // the origin
  std::vector<std::string> names;  // below it, in order; empty: all archives there
};
// "…/train-{000..099}.tar" names a hundred archives, "…/x.tar" one. kInvalid for other braces.
Result<ArchiveAddress> archive_address(const std::string& url);

// The archives of these names, asked for one by one; without names, all below the origin.
Result<Listing> list_archives(const DigestOptions& options, const std::vector<std::string>& names,
                              Origin& origin,
                              const std::function<void(const DigestProgress&)>& progress,
                              std::stop_token stop);

struct IndexReport {
  std::uint64_t downloaded = 0, kept = 0;  // samples
  Bytes downloaded_bytes;
};

// Replaces each archive of the listing by its samples. An archive that is the one that was digested
// last is not read. With `options.lazy` only headers are, and no sample has a hash; else all have
// one but those longer than a window of 32 MiB. kCorrupt or kInvalid for what is no sound archive.
Result<IndexReport> index_archives(const DigestOptions& options, Origin& origin,
                                   const PreviousDigest& previous, DigestKeeper* keeper,
                                   Listing& listing,
                                   const std::function<void(const DigestProgress&)>& progress,
                                   std::stop_token stop);

}  // namespace quiver::cache
