// Plans of staged copies: the verifier proves those of every collective that copy engines do, in place and
// not, in one round and in several.
#include "plan/staged_copies.h"

#include <gtest/gtest.h>

#include "plan/plans.h"

namespace weft::plan::testing {
namespace {

constexpr Collective kServed[] = {Collective::all_gather, Collective::broadcast, Collective::gather,
                                  Collective::scatter, Collective::all_to_all};

std::vector<Plan> make_all(const Request& request, int ranks, uint64_t staging_bytes) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < ranks; ++rank)
    plans.push_back(make_staged_copies(request, ranks, rank, staging_bytes));
  return plans;
}

TEST(StagedCopies, AreProvedForEveryCollective) {
  constexpr uint64_t kStaging = 8192;
  for (const Collective collective : kServed)
    for (const int ranks : {2, 3, 4, 8})
      for (const uint64_t count : {1u, 7u, 2048u, 5001u})
        for (int root = 0; root < (has_root(collective) ? ranks : 1); ++root) {
          const Request request{.collective = collective, .count = count, .element_bytes = 4, .root = root};
          const std::string what =
              fmt::format("{} of {} to {} of {}", name_of(collective), count, root, ranks);
          ASSERT_TRUE(staged_copies_fit(request, ranks, kStaging).ok()) << what;
          const std::vector<Plan> plans = make_all(request, ranks, kStaging);
          for (const bool in_place : {false, true}) {
            const Status proved = verify(plans, topology::Layout::blocks(1, ranks), {}, in_place);
            EXPECT_TRUE(proved.ok()) << what << (in_place ? ", in place: " : ": ") << proved.message();
          }
          for (const Plan& plan : plans) {
            EXPECT_LE(plan.scratch_bytes, kStaging) << what;
            EXPECT_EQ(plan.lanes(), 1) << what;
          }
        }
}

TEST(StagedCopies, ARoundOfAllGatherCopiesOncePerRankAndOnceIntoTheStaging) {
  const Request request{.collective = Collective::all_gather, .count = 1024, .element_bytes = 4};
  const Plan plan = make_staged_copies(request, 4, 1, 4096);
  EXPECT_EQ(std::count_if(plan.steps.begin(), plan.steps.end(),
                          [](const Step& step) { return step.kind == StepKind::copy; }),
            5);
  EXPECT_EQ(plan.scratch_bytes, 4096u);
}

TEST(StagedCopies, RefuseWhatTheyDoNotDo) {
  const auto why = [](const Request& request, int ranks, uint64_t staging_bytes) {
    return staged_copies_fit(request, ranks, staging_bytes).message();
  };
  EXPECT_NE(why({.collective = Collective::all_reduce, .count = 1}, 2, 4096).find("AllReduce"),
            std::string::npos);
  EXPECT_FALSE(why({.collective = Collective::broadcast, .count = 0}, 2, 4096).empty());
  EXPECT_FALSE(why({.collective = Collective::broadcast, .count = 1}, 1, 4096).empty());
  // 32 rounds of 4096 bytes, and one more.
  EXPECT_TRUE(why({.collective = Collective::broadcast, .count = 32 * 1024}, 2, 4096).empty());
  EXPECT_FALSE(why({.collective = Collective::broadcast, .count = 32 * 1024 + 1}, 2, 4096).empty());
  // No piece for each of so many readers.
  EXPECT_FALSE(why({.collective = Collective::scatter, .count = 1024}, 64, 4096).empty());
}

}  // namespace
}  // namespace weft::plan::testing
