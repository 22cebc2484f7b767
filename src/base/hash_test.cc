#include "base/hash.h"

#include <gtest/gtest.h>

namespace quiver {
namespace {

TEST(Sha256, KnowsTheStandardVector) {
  EXPECT_EQ(sha256(as_bytes("abc")).hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, StreamStartsAnewAfterFinish) {
  Sha256Stream s;
  s.update(as_bytes("ab"));
  s.update(as_bytes("c"));
  EXPECT_EQ(s.finish(), sha256(as_bytes("abc")));
  EXPECT_EQ(s.finish(), sha256({}));
}

TEST(Sha256, HexRoundTripsAndRefusesNonsense) {
  Sha256 h = sha256(as_bytes("x"));
  EXPECT_EQ(Sha256::from_hex(h.hex()).value(), h);
  EXPECT_FALSE(Sha256::from_hex("12"));
  EXPECT_FALSE(Sha256::from_hex(std::string(64, 'g')));
}

TEST(PublicId, RevealsNothingOfTheHash) {
  Sha256 h = sha256(as_bytes("secret"));
  EXPECT_EQ(public_id(h).size(), 16u);
  EXPECT_EQ(h.hex().find(public_id(h)), std::string::npos);
}

}  // namespace
}  // namespace quiver
