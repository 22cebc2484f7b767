#include "rpc/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>

namespace quiver::rpc {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const unsigned char c : bytes) out += fmt::format("{:02x}", c);
  return out;
}

TEST(Writer, IsLittleEndianWithoutPadding) {
  Writer w;
  w.u8(1).u16(0x0203).u32(0x04050607).u64(0x08090a0b0c0d0e0f).i32(-2).i64(-3).boolean(true);
  w.string("ab").bytes(as_bytes("c")).f64(1.0);
  EXPECT_EQ(w.size(), 1u + 2 + 4 + 8 + 4 + 8 + 1 + 6 + 5 + 8);
  EXPECT_EQ(hex(w.take()),
            "01"
            "0302"
            "07060504"
            "0f0e0d0c0b0a0908"
            "feffffff"
            "fdffffffffffffff"
            "01"
            "020000006162"
            "0100000063"
            "000000000000f03f");
  EXPECT_EQ(w.size(), 0u);
}

TEST(Reader, MirrorsTheWriter) {
  EXPECT_TRUE(rc::check(
      "what is written is read",
      [](std::uint8_t a, std::uint16_t b, std::uint32_t c, std::uint64_t d, std::int32_t e,
         std::int64_t f, bool g, const std::string& h, double i) {
        Writer w;
        const Sha256 hash = sha256(as_bytes(h));
        w.u8(a).u16(b).u32(c).u64(d).i32(e).i64(f).boolean(g).string(h).f64(i).sha256(hash);
        w.bytes(as_bytes(h));
        const std::string payload = w.take();
        Reader r(payload);
        RC_ASSERT(*r.u8() == a);
        RC_ASSERT(*r.u16() == b);
        RC_ASSERT(*r.u32() == c);
        RC_ASSERT(*r.u64() == d);
        RC_ASSERT(*r.i32() == e);
        RC_ASSERT(*r.i64() == f);
        RC_ASSERT(*r.boolean() == g);
        RC_ASSERT(*r.string() == h);
        RC_ASSERT(std::bit_cast<std::uint64_t>(*r.f64()) == std::bit_cast<std::uint64_t>(i));
        RC_ASSERT(*r.sha256() == hash);
        RC_ASSERT(as_text(*r.bytes()) == h);
        RC_ASSERT(r.done().has_value());
      }));
}

TEST(Reader, CarriesEveryDouble) {
  for (const double v : {0.0, -0.0, std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::denorm_min()}) {
    const std::string payload = Writer().f64(v).take();
    const double got = *Reader(payload).f64();
    EXPECT_EQ(got, v);
    EXPECT_EQ(std::signbit(got), std::signbit(v));
  }
  const std::string nan = Writer().f64(std::nan("")).take();
  EXPECT_TRUE(std::isnan(*Reader(nan).f64()));
}

TEST(Reader, EveryCutOfAPayloadIsCorrupt) {
  Writer w;
  w.u64(1).string("hello").sha256(Sha256{}).boolean(false);
  const std::string whole = w.take();
  for (std::size_t n = 0; n <= whole.size(); ++n) {
    Reader r(std::string_view(whole).substr(0, n));
    const auto parse = [&]() -> Status {
      TRY(r.u64());
      TRY(r.string());
      TRY(r.sha256());
      TRY(r.boolean());
      return r.done();
    };
    const Status parsed = parse();
    EXPECT_EQ(parsed.has_value(), n == whole.size()) << n;
    if (!parsed) {
      EXPECT_EQ(parsed.error().code, Code::kCorrupt);
    }
  }
}

TEST(Reader, RefusesWhatIsLeftAndWhatIsNoBoolean) {
  Reader left(std::string_view("ab"));
  EXPECT_EQ(*left.u8(), 'a');
  EXPECT_EQ(left.done().error().code, Code::kCorrupt);
  EXPECT_EQ(left.left(), 1u);
  EXPECT_EQ(Reader(std::string_view("\x02")).boolean().error().code, Code::kCorrupt);
}

TEST(Reader, AnnouncedLengthsAreCheckedBeforeTheyAreBelieved) {
  const std::string huge = Writer().u32(0xffffffff).u8(1).take();
  EXPECT_EQ(Reader(huge).string().error().code, Code::kCorrupt);
  EXPECT_EQ(Reader(huge).bytes().error().code, Code::kCorrupt);
  EXPECT_EQ(Reader(huge).count(1).error().code, Code::kCorrupt);
  const std::string two = Writer().u32(2).u64(1).u64(2).take();
  EXPECT_EQ(*Reader(two).count(8), 2u);
  EXPECT_EQ(Reader(two).count(9).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace quiver::rpc
