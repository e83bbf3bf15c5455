// A copy that survives memory which is not there.
#include "base/checked_copy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

namespace weft {
namespace {

TEST(CopyChecked, CopiesEveryByte) {
  std::vector<char> from(300'001), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31);
  EXPECT_TRUE(copy_checked(to.data(), from.data(), from.size()));
  EXPECT_EQ(to, from);
  EXPECT_TRUE(copy_checked(to.data(), from.data(), 0));
}

TEST(CopyChecked, SaysNoWhereMemoryIsGone) {
  constexpr size_t kPage = 4096;
  auto* const pages = static_cast<char*>(
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(pages + kPage, kPage, PROT_NONE), 0);
  const std::vector<char> from(2 * kPage, 'x');
  EXPECT_TRUE(copy_checked(pages, from.data(), kPage));
  EXPECT_FALSE(copy_checked(pages + kPage, from.data(), kPage));
  EXPECT_FALSE(copy_checked(pages, from.data(), 2 * kPage)) << "half of it is there";
  munmap(pages, 2 * kPage);
}

}  // namespace
}  // namespace weft
