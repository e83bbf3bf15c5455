#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace weft {
namespace {

// Values that the authors of FNV publish.
TEST(Hash, IsFnv1a) {
  EXPECT_EQ(hash_32(""), 0x811c9dc5u);
  EXPECT_EQ(hash_32("a"), 0xe40c292cu);
  EXPECT_EQ(hash_32("foobar"), 0xbf9cf968u);
  EXPECT_EQ(hash_64("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_64("foobar"), 0x85944171f73967e8u);
}

TEST(Hash, GoesOnFromWhatCameBefore) {
  EXPECT_EQ(hash_32("bar", hash_32("foo")), hash_32("foobar"));
  EXPECT_EQ(hash_64("bar", hash_64("foo")), hash_64("foobar"));
  const std::string number("\x34\x12\0\0\0\0\0\0", 8);
  EXPECT_EQ(hash_32(uint64_t{0x1234}, hash_32("foo")), hash_32("foo" + number));
}

}  // namespace
}  // namespace weft
