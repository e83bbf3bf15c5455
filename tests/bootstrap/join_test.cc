// Joining and all-gathering: every shape of the tree and of the links, with ranks as threads.
#include <cstring>

#include "base/clock.h"
#include "bootstrap/neighbours.h"
#include "bootstrap/ranks.h"
#include "bootstrap/tree.h"

namespace weft::bootstrap {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSlowedDown = true;
#else
constexpr bool kSlowedDown = false;
#endif

class JoinTest : public testing::TestWithParam<int> {};

TEST_P(JoinTest, EveryRankGathersWhatEveryRankGave) {
  const int ranks = GetParam();
  const UniqueId id = make_id();
  on_each_rank(ranks, [&](int rank) {
    Joined joined = Bootstrap::join(id, rank, ranks, soon());
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    Bootstrap& self = **joined;
    EXPECT_EQ(self.rank(), rank);
    EXPECT_EQ(self.ranks(), ranks);
    for (int round = 0; round < 3; ++round) {
      const int mine[2] = {rank * 10 + round, -rank};
      Result<std::vector<std::byte>> all = self.all_gather(std::as_bytes(std::span(mine)), soon());
      ASSERT_TRUE(all.ok()) << all.status().message();
      ASSERT_EQ(all->size(), sizeof mine * static_cast<size_t>(ranks));
      for (int other = 0; other < ranks; ++other) {
        int got[2];
        std::memcpy(got, all->data() + sizeof got * static_cast<size_t>(other), sizeof got);
        ASSERT_EQ(got[0], other * 10 + round);
        ASSERT_EQ(got[1], -other);
      }
    }
    ASSERT_TRUE(self.start({}).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, JoinTest, testing::Values(1, 2, 3, 16, 17, 18, 64, 256));

TEST(Join, OverIpv6) {
  Result<UniqueId> id = create_unique_id("::1");
  if (!id.ok()) GTEST_SKIP() << "no IPv6 here: " << id.status().message();
  const auto members = join_all(*id, 3);
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0]->addresses(2).front().substr(0, 6), "[::1]:");
}

TEST(Join, AThousandRanks) {
  const int ranks = kSlowedDown ? 200 : 1000;
  const int64_t begin_ns = now_ns();
  {
    const auto members = join_all(make_id(), ranks);
    ASSERT_EQ(members.size(), static_cast<size_t>(ranks));
    std::printf("%d ranks as threads joined in %.3f s\n", ranks,
                static_cast<double>(now_ns() - begin_ns) / 1e9);
    for (const auto& member : members) ASSERT_TRUE(member->start({}).ok());
  }
  std::printf("… and were gone after %.3f s\n", static_cast<double>(now_ns() - begin_ns) / 1e9);
}

}  // namespace
}  // namespace weft::bootstrap
