// The messages between a training process and its daemon. docs/formats/daemon.md has the bytes.
//
// A session is one process's. Its first connection opens it (Hello with an empty session); further
// connections of the process join it by its token, so that each reading thread has one of its own.
// When the first connection closes the session ends: its jobs, boards and credentials go with it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "base/units.h"
#include "cache/origin/origin.h"

namespace quiver::cache {

inline constexpr std::uint32_t kProtocolVersion = 2;

enum class Request : std::uint16_t {
  kHello = 1,
  kOpen = 2,      // a dataset: proves the manifest, brings the origin and its credentials
  kJoin = 3,      // a rank of a job: gets its board
  kSegments = 4,  // descriptors
  kFetch = 5,     // directed reads: wait for items, or learn why they do not come
  kInsert = 6,    // content that passed by (digest, direct reads)
  kReport = 7,    // how the job fares, for status
  kStatus = 8,
  kWarm = 9,
  kEvict = 10,
  kStop = 11,
  kLeave = 12,       // a rank ends before its process does
  kDamaged = 13,     // an item was read wrong, or could not be, where the view says it lies
  kInsertPart = 14,  // as kInsert, of an item that is too long for one message
  kContents = 15,    // the hashes of a provisional dataset that has been read whole
  kRenew = 16,       // other credentials for a dataset that is open
};

using Token = std::array<std::uint8_t, 16>;  // random; all zero: none

struct HelloRequest {
  std::uint32_t protocol = kProtocolVersion;
  std::string software;  // "quiver-cache 0.1.0 (python 3.11)"
  Token session{};
};
struct HelloReply {
  std::uint32_t protocol = kProtocolVersion;
  std::string software;
  std::uint64_t pid = 0;
  Token session{};
  std::string cache_directory;
};

// With one descriptor: the manifest as a sealed memfd. The reply brings the view's descriptor.
struct OpenRequest {
  Sha256 root;
  OriginSettings origin;
};
struct OpenReply {
  std::uint32_t dataset = 0;  // this session's handle of it
  std::string public_id;
  std::uint32_t items = 0;
  std::uint32_t verify_one_in = 64;  // 0: never on reading; 1: always
};

// From now on the session's reads of the dataset are made with these; the reply is empty.
struct RenewRequest {
  std::uint32_t dataset = 0;
  Credentials credentials;
};

// The reply brings the board's descriptor and nothing else. A rank that is already there, alive, in
// the same job is kInvalid.
struct JoinRequest {
  std::uint32_t dataset = 0;
  Token job{};       // the same on all ranks; made by rank 0
  std::string name;  // for status: argv[0] or what the user says
  std::uint32_t world = 1, rank = 0, batch_size = 1;
};

// The rank's board goes, and its place in the job is free. One that is not there is no error.
struct LeaveRequest {
  std::uint32_t dataset = 0;
  Token job{};
  std::uint32_t rank = 0;
};

// Descriptors of those segments that are still there, at most 253; the reply names them in order.
struct SegmentsRequest {
  std::uint32_t dataset = 0;
  std::vector<std::uint32_t> segments;
};
struct SegmentsReply {
  std::vector<std::uint32_t> segments;
};

// The daemon fetches these ahead of what it stages. Answers when all are decided or `wait_ms` is
// over, whichever is first.
struct FetchRequest {
  std::uint32_t dataset = 0;
  std::vector<std::uint32_t> items;
  std::uint32_t wait_ms = 0;
};
struct FetchResult {
  enum State : std::uint8_t { kHere = 0, kPending = 1, kFailed = 2 };
  std::uint8_t state = kPending;
  std::uint16_t code = 0;  // Code, of kFailed
  std::string message;
};
struct FetchReply {
  std::vector<FetchResult> results;  // one per item, in order
};

// Bytes that match their hash; kept while there is room. Never an error for want of room.
struct InsertRequest {
  Sha256 hash;
  std::string bytes;
};
struct InsertReply {
  bool kept = false;
};

// The bytes of an item in order, over one connection. The first part (offset 0) begins it, the last
// (which ends at `length`) has its hash, that of the others is not looked at. Not kept: there is no
// room, and no more of it need be sent. Parts of another item, or the connection's end, drop what
// was begun.
struct InsertPartRequest {
  std::uint64_t length = 0, offset = 0;
  Sha256 hash;
  std::string bytes;
};
inline constexpr std::size_t kInsertPart = 512 << 10;  // longer items are sent in such parts

// The daemon looks at its own copy there, and drops one that is bad. `gone`: the item is not there
// (any more), so that it is worth asking for; else the copy is right.
struct DamagedRequest {
  std::uint32_t dataset = 0;
  std::uint32_t item = 0;
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
};
struct DamagedReply {
  bool gone = false;
};

// The reply brings the hashes of all items in order, 32 bytes each, as a sealed memfd, once all
// have been read. `root`: of the manifest that the client has made of them; the daemon need not
// remember.
struct ContentsRequest {
  std::uint32_t dataset = 0;
  Sha256 root{};  // zero: not yet
};
struct ContentsReply {
  std::uint32_t unread = 0;  // items; 0 comes with the descriptor
};

struct ReportRequest {
  std::uint32_t dataset = 0;
  Token job{};
  std::uint32_t rank = 0;
  std::uint64_t epoch = 0;
  std::uint32_t step = 0, steps = 0;
  std::uint64_t samples = 0, hits = 0, direct = 0;  // of this epoch
  double waited_link_s = 0, waited_decode_s = 0;
};

struct StatusReply {
  std::string json;
};

// Asks for the dataset's share to be filled; the reply says how far it is (exact cached bytes).
struct WarmRequest {
  std::uint32_t dataset = 0;
  std::uint32_t wait_ms = 0;
};
struct WarmReply {
  std::uint64_t items = 0, items_here = 0, items_wanted = 0, items_failed = 0;
  std::uint64_t bytes_here = 0, bytes_wanted = 0;  // wanted: what the share can hold
  std::string first_error;
};

struct EvictRequest {
  std::string public_id;  // empty: everything
};
struct EvictReply {
  std::uint64_t bytes = 0, datasets = 0;
};

// Encoding and decoding of each of them. Decoding never trusts: kCorrupt.
template <class M>
std::string encode(const M& message);
template <class M>
Result<M> decode(std::string_view payload);

}  // namespace quiver::cache
