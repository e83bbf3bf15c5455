// Misspelt names, and names that mean nothing.
#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

const std::vector<std::string_view> kKnown = {"rails", "intra.alpha_us", "inter.alpha_us", "inter.by_cpu"};

TEST(NearestName, IsFoundWithinSoManyLetters) {
  EXPECT_EQ(nearest_name("rail", kKnown, 2), "rails");
  EXPECT_EQ(nearest_name("inter.alfa_us", kKnown, 4), "inter.alpha_us");
  EXPECT_EQ(nearest_name("inter.alfa_us", kKnown, 1), "");
  EXPECT_EQ(nearest_name("frob", kKnown, 2), "");
  EXPECT_EQ(nearest_name("", kKnown, 0), "");
}

TEST(NearestName, KnowsTheWholeOfAPart) {
  EXPECT_EQ(nearest_name("inter.al", kKnown, 1), "inter.alpha_us");
  EXPECT_EQ(nearest_name("by_cpu", kKnown, 1), "inter.by_cpu");
}

}  // namespace
}  // namespace weft
