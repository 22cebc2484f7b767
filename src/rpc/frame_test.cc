#include "rpc/frame.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <sstream>

namespace quiver::rpc {
namespace {

constexpr Bytes kLimit = 1_MiB;

// The bytes of tests/vectors/rpc_frame.hex: '#' begins a comment.
std::string golden() {
  std::ifstream in(QUIVER_SOURCE_DIR "/tests/vectors/rpc_frame.hex");
  std::string bytes, line, word;
  while (std::getline(in, line)) {
    std::istringstream words(line.substr(0, line.find('#')));
    while (words >> word) {
      for (std::size_t i = 0; i + 1 < word.size(); i += 2) {
        bytes.push_back(static_cast<char>(std::stoi(word.substr(i, 2), nullptr, 16)));
      }
    }
  }
  return bytes;
}

// The example of docs/formats/rpc.md: an error reply of type 7 to request 258.
TEST(Frame, TheGoldenBytesAreWhatWeWriteAndRead) {
  const std::string payload = encode_error({Code::kNoSpace, "full"});
  const FrameHeader header{.type = 7,
                           .flags = kFlagError,
                           .id = 258,
                           .payload_size = static_cast<std::uint32_t>(payload.size()),
                           .fd_count = 0};
  const auto head = encode_header(header);
  const std::string bytes = golden();
  ASSERT_EQ(bytes, std::string(as_text(head)) + payload);
  const auto read = decode_header(as_bytes(bytes).first(kHeaderSize), kLimit);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, header);
  const Error error = decode_error(as_bytes(bytes).subspan(kHeaderSize));
  EXPECT_EQ(error.code, Code::kNoSpace);
  EXPECT_EQ(error.message, "full");
}

TEST(Frame, HeadersComeBack) {
  EXPECT_TRUE(rc::check("encode, decode", [](std::uint16_t type, std::uint16_t flags,
                                             std::uint64_t id, std::uint32_t size) {
    const FrameHeader h{.type = type,
                        .flags = flags,
                        .id = id,
                        .payload_size = size % (1 << 20),
                        .fd_count = static_cast<std::uint16_t>(size % 254)};
    const auto bytes = encode_header(h);
    RC_ASSERT(decode_header(bytes, kLimit).value() == h);
  }));
}

TEST(Frame, MalformedHeadersAreRefused) {
  const FrameHeader good{.type = 1, .id = 1, .payload_size = 1 << 20, .fd_count = 253};
  auto bytes = encode_header(good);
  EXPECT_TRUE(decode_header(bytes, kLimit));
  EXPECT_EQ(decode_header(bytes, Bytes((1 << 20) - 1)).error().code, Code::kCorrupt);
  EXPECT_EQ(decode_header(ByteSpan(bytes).first(23), kLimit).error().code, Code::kCorrupt);
  bytes[20] = std::byte{254};  // one descriptor more than a message can have
  EXPECT_EQ(decode_header(bytes, kLimit).error().code, Code::kCorrupt);
  bytes[20] = std::byte{0};
  bytes[22] = std::byte{1};  // reserved
  EXPECT_EQ(decode_header(bytes, kLimit).error().code, Code::kCorrupt);
  bytes[22] = std::byte{0};
  bytes[3] = std::byte{'2'};
  EXPECT_EQ(decode_header(bytes, kLimit).error().code, Code::kVersion);
}

TEST(Frame, EveryCodeComesBack) {
  for (int c = 0; c <= static_cast<int>(Code::kIo); ++c) {
    const Error sent{static_cast<Code>(c), fmt::format("message {}", c)};
    const Error got = decode_error(as_bytes(encode_error(sent)));
    EXPECT_EQ(got.code, sent.code) << name(sent.code);
    EXPECT_EQ(got.message, sent.message);
  }
}

TEST(Frame, AnErrorThatCannotBeReadIsStillAnError) {
  EXPECT_EQ(decode_error({}).code, Code::kCorrupt);
  std::string unknown = encode_error({Code::kInvalid, "from the future"});
  unknown[0] = '\xff';
  EXPECT_EQ(decode_error(as_bytes(unknown)).code, Code::kIo);
  EXPECT_EQ(decode_error(as_bytes(unknown)).message, "from the future");
  EXPECT_EQ(decode_error(as_bytes(unknown + "x")).code, Code::kCorrupt);
}

}  // namespace
}  // namespace quiver::rpc
