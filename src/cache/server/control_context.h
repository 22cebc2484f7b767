// What Control is wired to, and what it is told and tells of sessions and the server.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/quiver_settings.h"
#include "cache/server/dataset_state.h"
#include "cache/server/fetch_pool.h"

namespace quiver::cache {

// What a session has open: the dataset, and its own way to the bytes.
struct SessionDataset {
  DatasetState* dataset = nullptr;
  std::shared_ptr<Origin> origin;
  std::shared_ptr<const Manifest> manifest;  // its places may differ from another session's
  std::shared_ptr<RenewableCredentials> credentials;  // of the origin
  Instant refused_until{};                            // they were, lately
};

struct SessionState {
  Token token{};
  std::vector<SessionDataset> datasets;
};

struct WarmProgress {
  WarmReply reply;
  bool done = false;
};

// What a fetching thread brought, or did not.
struct Fetched {
  Sha256 asked;    // the name of the flight
  Sha256 content;  // another one only where nobody had read the item before
  Bytes length;
  bool disk = false;  // an error is one of the cache's disk, not of the origin
};

// What a digest brought and no dataset that was opened since has claimed.
struct Unclaimed {
  std::uint64_t items = 0;
  Bytes bytes;
};

// What others than the control thread know of the daemon.
struct ServerFigures {
  Unclaimed unclaimed;
  std::size_t connections = 0;
  Bytes requests;  // memory of large ones that are being handled: what is inserted
};

struct ControlContext {
  const Settings& settings;
  Store& store;
  FetchPool& pool;
  io::Files& files;
  const Clock& clock;
  LogSink& log;
  Bytes disk_limit;
  std::string cache_directory, version;
  std::uint64_t pid = 0;
};

}  // namespace quiver::cache
