// Hashes of whole files: any bit that changes, anywhere, changes them.
#include "base/hash.h"

#include <set>

#include "base/file.h"
#include "support.h"

namespace loom {
namespace {

TEST(Hashes, OfManyBytesHaveEveryBitAndTheLength) {
  std::set<uint64_t> seen;
  std::string text;
  for (size_t length = 0; length < 100; ++length, text += '\0')
    EXPECT_TRUE(seen.insert(hash_of(std::as_bytes(std::span(text)))).second) << length;
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_TRUE(seen.insert(hash_of(std::as_bytes(std::span(text)))).second) << bit;
    text[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
}

TEST(Hashes, OfFilesDependOnTheContentAlone) {
  const testing::TemporaryFolder folder;
  std::set<uint64_t> seen;
  for (const size_t size : {size_t{0}, size_t{5}, (size_t{1} << 20) - 1, size_t{1} << 20,
                            (size_t{1} << 20) + 1, size_t{3} << 20}) {
    std::string content(size, 'x');
    testing::put_file(folder / "a", content);
    testing::put_file(folder / "b", content);
    const Result<uint64_t> a = hash_of_file(folder / "a"), b = hash_of_file(folder / "b");
    LOOM_ASSERT_OK(a);
    EXPECT_EQ(*a, *b);
    EXPECT_TRUE(seen.insert(*a).second) << size;
    if (size == 0) continue;
    content.back() ^= 1;
    testing::put_file(folder / "b", content);
    EXPECT_TRUE(seen.insert(*hash_of_file(folder / "b")).second) << size;
  }
  EXPECT_TRUE(testing::fails_with(hash_of_file(folder / "none"), Code::not_found, "none"));
}

}  // namespace
}  // namespace loom
