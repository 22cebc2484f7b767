#include "base/checksum.h"

#include <gtest/gtest.h>

namespace quiver {
namespace {

TEST(Checksum32Stream, IsThatOfTheWhole) {
  std::string text(10'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i);
  Checksum32Stream stream;
  EXPECT_EQ(stream.value(), checksum32({}));
  for (std::size_t at = 0, step = 1; at < text.size(); at += step, step = step * 2 + 1) {
    stream.update(as_bytes(text.substr(at, step)));
  }
  EXPECT_EQ(stream.value(), checksum32(as_bytes(text)));
}

}  // namespace
}  // namespace quiver
