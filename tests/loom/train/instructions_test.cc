// Ranks whose CPUs round otherwise are told so, or refused where the run promises the same bits.
#include "engine/ranks.h"
#include "train/same_on_all.h"

namespace loom::testing {
namespace {

using ops::Instructions;
using ops::InstructionSet;

/// What three ranks are told that pretend to have these.
std::vector<Result<std::string>> told(const std::vector<Instructions>& all, bool strict) {
  std::vector<Result<std::string>> ends(all.size(), Result<std::string>(std::string("nothing")));
  on_ranks(static_cast<int>(all.size()), 1, [&](weftComm_t world) {
    int rank = 0;
    ASSERT_EQ(weftCommUserRank(world, &rank), weftSuccess);
    const auto own = static_cast<size_t>(rank);
    ends[own] = train::same_instructions(all[own], strict, world);
  });
  return ends;
}

constexpr Instructions of(InstructionSet set) { return {set, set}; }

TEST(Instructions, AlikeOnAllRanksNeedNoSentence) {
  for (const bool strict : {false, true})
    for (const Result<std::string>& end : told(std::vector(3, of(InstructionSet::avx2)), strict)) {
      LOOM_ASSERT_OK(end);
      EXPECT_EQ(*end, "");
    }
  EXPECT_EQ(*train::same_instructions(of(InstructionSet::avx2), true, nullptr), "") << "one rank";
}

TEST(Instructions, ThatDifferAreNotedOnEveryRankAndRefusedInStrictOrder) {
  const std::vector<Instructions> mixed = {of(InstructionSet::avx512), of(InstructionSet::avx512),
                                           of(InstructionSet::avx2)};
  for (const Result<std::string>& end : told(mixed, false)) {
    LOOM_ASSERT_OK(end);
    EXPECT_NE(end->find("rank 0 computes with avx512, rank 2 with avx2, "), std::string::npos) << *end;
    EXPECT_NE(end->find("; LOOM_INSTRUCTIONS=avx2 in every"), std::string::npos) << *end;
  }
  for (const Result<std::string>& end : told(mixed, true))
    EXPECT_TRUE(fails_with(end, Code::invalid_argument,
                           "parallel.strict: rank 0 computes with avx512, rank 2 with avx2"));
}

TEST(Instructions, OfTheLibraryOfProductsCountAsWell) {
  Instructions limited = of(InstructionSet::avx512);
  limited.products = InstructionSet::baseline;
  for (const Result<std::string>& end : told({of(InstructionSet::avx512), limited}, false)) {
    LOOM_ASSERT_OK(end);
    EXPECT_NE(end->find("rank 1 with avx512, products by baseline"), std::string::npos) << *end;
    EXPECT_NE(end->find("LOOM_INSTRUCTIONS=baseline"), std::string::npos) << *end;
  }
}

}  // namespace
}  // namespace loom::testing
