// The example of docs/dev/add-an-algorithm.md: what a developer copies has to be right.
#include <gtest/gtest.h>

#include "plan/schedule.h"
#include "plans.h"

namespace weft::plan {

std::span<const Algorithm> star_algorithms();  // of the page

namespace {

TEST(DocumentedAlgorithm, IsProvedInPlaceAndOutOfPlaceAndInStrictOrder) {
  const Algorithm& star = star_algorithms().front();
  const topology::Layout layout({0, 0, 1, 1, 1});
  for (const bool strict : {false, true}) {
    const Request request{.collective = Collective::all_reduce, .count = 100, .strict = strict};
    ASSERT_TRUE(star.fits(request, layout, testing::kShortIsEager).ok());
    const std::vector<Plan> plans = testing::make_all(star, request, layout, testing::kShortIsEager);
    for (const bool in_place : {false, true}) {
      const Status status = verify(plans, layout, testing::kShortIsEager, in_place);
      EXPECT_TRUE(status.ok()) << (strict ? "strict" : "default") << (in_place ? ", in place: " : ": ")
                               << status.message();
    }
  }
}

TEST(DocumentedAlgorithm, RefusesWhatIsNotEager) {
  const Request request{.collective = Collective::all_reduce, .count = 1 << 20};
  const Status status =
      star_algorithms().front().fits(request, topology::Layout({0, 1}), testing::kShortIsEager);
  EXPECT_NE(status.message().find("go eagerly everywhere"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace weft::plan
