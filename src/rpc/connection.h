// Messages over a Unix socket: framed, with descriptors, under deadlines.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/units.h"
#include "io/socket.h"
#include "rpc/frame.h"

namespace quiver::rpc {

inline constexpr Bytes kDefaultPayloadLimit = 64_MiB;  // with room for an item that is sent whole

// For replies that may take long: asked after each `slice` without a byte of the reply whether to
// go on waiting.
struct Patience {
  const Clock& clock;
  Duration slice;
  std::function<bool()> go_on;
};

// Asked before a payload of this size is received, so that what comes in has a bound in memory: may
// wait, and what it gives lives as long as the message. An error breaks the connection.
using Admission = std::function<Result<std::shared_ptr<void>>(Bytes payload, Instant deadline)>;

struct Message {
  std::uint16_t type = 0;
  std::uint16_t flags = 0;  // bit 0: kFlagError; the others are the user's
  std::uint64_t id = 0;     // of the request; a reply repeats it. 0: about the connection itself
  std::string payload;
  std::vector<io::Fd> fds;
  bool fds_lost = false;  // this process had no room for them: there are none
  std::shared_ptr<void> admitted = nullptr;
};

// One side of a connection. Owns the socket, and closes it when destroyed.
//
// Threads: one at a time may use it (CHECKed by a flag, for a lock would be held across I/O);
// shutdown(), stop_reading() and broken() may come from any thread.
// Failure: after any failure of the transport (time-out included: half a frame may have passed) it
// is broken, and every later use is kUnavailable; make a new one. An error reply breaks nothing,
// and neither does a refusal before the first byte was sent (kInvalid) nor a lack of descriptors
// for what a message brought (kNoSpace). Invariant: between two calls the stream stands at the
// start of a frame, or it is broken.
class Connection {
 public:
  explicit Connection(io::UnixSocket socket, Bytes payload_limit = kDefaultPayloadLimit);
  static Result<std::unique_ptr<Connection>> connect(const std::string& path, Instant deadline,
                                                     Bytes payload_limit = kDefaultPayloadLimit);

  // kInvalid for more than io::kMaxFdsPerMessage descriptors or a payload above the limit. The
  // caller keeps its descriptors.
  Status send(const Message& message, Instant deadline);
  Status send(std::uint16_t type, std::uint16_t flags, std::uint64_t id, ByteSpan payload,
              std::span<const int> fds, Instant deadline);

  // Waits until something can be received, the peer closed, or kTimeout, which breaks nothing: for
  // those who may wait long for a message to begin but not for it to end.
  Status wait(Instant deadline);
  // Memory grows only as bytes arrive. A reply with kFlagError is a value here.
  Result<Message> receive(Instant deadline, const Admission& admission = nullptr);

  // Sends a request under a fresh id and returns its reply; an error reply becomes the error.
  Result<Message> call(std::uint16_t type, std::string_view payload, std::span<const int> fds,
                       Instant deadline, const Patience* patience = nullptr);

  Result<io::PeerCredentials> peer() const { return socket_.peer(); }
  bool broken() const { return broken_.load(); }
  void shutdown();      // both ways; wakes whoever sends or receives
  void stop_reading();  // wakes whoever receives; what is being sent still gets through

 private:
  class Use;
  Result<FrameHeader> frame(std::uint16_t type, std::uint16_t flags, std::uint64_t id,
                            ByteSpan payload, std::span<const int> fds) const;
  Status send_frame(const FrameHeader& header, ByteSpan payload, std::span<const int> fds,
                    Instant deadline);
  Result<Message> receive_frame(Instant deadline, const Admission& admission = nullptr);
  Status wait_patiently(Instant deadline, const Patience& patience);

  io::UnixSocket socket_;
  const Bytes payload_limit_;
  std::uint64_t last_id_ = 0;
  std::atomic<bool> in_use_ = false;
  std::atomic<bool> broken_ = false;
};

}  // namespace quiver::rpc
