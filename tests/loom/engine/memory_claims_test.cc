// Arenas that each fit and together do not are refused, on every rank and with how many would fit.
#include "engine/memory_claims.h"

#include "base/process_memory.h"
#include "engine/ranks.h"

namespace loom::testing {
namespace {

constexpr int64_t kMiB = 1 << 20;

engine::MemoryClaim claim(uint64_t machine, int64_t mib, uint64_t group = 0, int64_t group_mib = 0) {
  return {machine, 100 * kMiB, group, group_mib * kMiB, mib * kMiB};
}

TEST(MemoryClaims, AreThoseOfAllRanksOfAMachine) {
  const std::vector<engine::MemoryClaim> apart = {claim(1, 60), claim(2, 60), claim(3, 100)};
  LOOM_ASSERT_OK(engine::check_claims(apart));
  const std::vector<engine::MemoryClaim> together = {claim(1, 60), claim(2, 60), claim(2, 60), claim(2, 1)};
  EXPECT_TRUE(fails_with(
      engine::check_claims(together), Code::out_of_memory,
      "3 ranks of one machine, rank 1 and others, need 122 MiB for their arenas together, this "
      "machine has 100 MiB, which is enough for 1 of them: the others would do on another machine; "
      "more ranks that share the state, activation_checkpointing or a smaller microbatch need less"));
}

TEST(MemoryClaims, OfOneRankAreItsOwn) {
  const std::vector<engine::MemoryClaim> one = {claim(1, 101)};
  EXPECT_TRUE(fails_with(engine::check_claims(one), Code::out_of_memory,
                         "a rank needs 102 MiB for its arena, this machine has 100 MiB"));
  const std::vector<engine::MemoryClaim> with_small_ones = {claim(1, 1), claim(1, 101)};
  EXPECT_TRUE(fails_with(engine::check_claims(with_small_ones), Code::out_of_memory,
                         "is not enough for the largest, 102 MiB"));
}

TEST(MemoryClaims, OfAControlGroupAreCountedByItsLimit) {
  const std::vector<engine::MemoryClaim> two_groups = {claim(1, 20, 7, 40), claim(1, 20, 7, 40),
                                                       claim(1, 20, 8, 20), claim(1, 20)};
  LOOM_ASSERT_OK(engine::check_claims(two_groups));
  const std::vector<engine::MemoryClaim> one_group = {claim(1, 20), claim(1, 20, 7, 50), claim(1, 20, 7, 50),
                                                      claim(1, 20, 7, 50)};
  EXPECT_TRUE(fails_with(engine::check_claims(one_group), Code::out_of_memory,
                         "3 ranks in one control group, rank 1 and others, need 61 MiB for their arenas "
                         "together, the control group may have 50 MiB, which is enough for 2 of them"));
}

/// Whatever each thinks that it needs, all hear the same.
TEST(MemoryClaims, AreRefusedOnAllRanks) {
  std::vector<Status> ends(4);
  on_ranks(4, 2, [&](weftComm_t world) {
    program::Layout layout;
    layout.data = 4;
    const Result<engine::Groups> groups = engine::Groups::create(world, layout, false);
    LOOM_ASSERT_OK(groups);
    const int rank = groups->rank();
    LOOM_ASSERT_OK(engine::check_memory(1 << 20, *groups));
    ends[static_cast<size_t>(rank)] =
        engine::check_memory(rank == 3 ? 1 << 20 : machine_bytes() / 5 * 2, *groups);
  });
  for (const Status& end : ends) {
    EXPECT_TRUE(fails_with(end, Code::out_of_memory, "enough for 2 of them"));
    EXPECT_EQ(end.message(), ends[0].message());
  }
}

}  // namespace
}  // namespace loom::testing
