// Communicators that grow: their ranks and new ones make a larger one.
#include <latch>

#include "api/ranks.h"

namespace weft::testing {
namespace {

void check_sum(weftComm_t comm, int rank, int size) {
  int own = -1, count = 0;
  WEFT_OK(weftCommUserRank(comm, &own));
  WEFT_OK(weftCommCount(comm, &count));
  EXPECT_EQ(own, rank);
  EXPECT_EQ(count, size);
  std::vector<int> x(3000, rank);
  WEFT_OK(weftAllReduce(x.data(), x.data(), x.size(), weftInt32, weftSum, comm, nullptr));
  EXPECT_EQ(x.back(), size * (size - 1) / 2);
}

struct Growth : ::testing::TestWithParam<std::tuple<Nodes, Nodes>> {};

// Rank 1 makes the id. The parent goes on, and ends before its child.
TEST_P(Growth, KeepsItsRanksAndTakesNewOnes) {
  const auto& [old_nodes, new_nodes] = GetParam();
  const int before = static_cast<int>(old_nodes.size()), after = before + static_cast<int>(new_nodes.size());
  weftUniqueId id;
  std::latch made(1 + static_cast<int>(new_nodes.size()));
  const RanksAtWork at_work;
  std::vector<std::thread> joining;
  for (int rank = before; rank < after; ++rank)
    joining.emplace_back([&, rank] {
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.hostId = std::get<1>(GetParam())[static_cast<size_t>(rank - before)].c_str();
      weftComm_t grown = nullptr;
      made.arrive_and_wait();
      WEFT_OK(weftCommGrow(nullptr, after, &id, rank, &grown, &config));
      check_sum(grown, rank, after);
      check_sum(grown, rank, after);
      WEFT_OK(weftCommDestroy(grown));
    });
  run_ranks(old_nodes, [&](Rank& me) {
    weftComm_t grown = nullptr;
    if (me.rank == 1) {
      WEFT_OK(weftCommGetUniqueId(me.comm, &id));
      made.arrive_and_wait();
    }
    WEFT_OK(weftCommGrow(me.comm, after, me.rank == 1 ? &id : nullptr, -1, &grown, nullptr));
    check_sum(grown, me.rank, after);
    check_sum(me.comm, me.rank, before);
    WEFT_OK(weftCommDestroy(me.comm));
    me.comm = nullptr;
    check_sum(grown, me.rank, after);
    WEFT_OK(weftCommDestroy(grown));
  });
  for (std::thread& thread : joining) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Layouts, Growth,
                         ::testing::Values(std::tuple{blocks(1, 2), Nodes{"node0"}},
                                           std::tuple{blocks(2, 1), Nodes{"node1", "node2"}},
                                           std::tuple{blocks(1, 3), Nodes{"node1"}}));

TEST(Growing, OfRanksThatDisagreeIsRefusedOnAllOfThem) {
  run_ranks(blocks(2, 1), [](Rank& me) {
    weftUniqueId id;
    WEFT_OK(weftCommGetUniqueId(me.comm, &id));
    weftComm_t grown = me.comm;
    const auto refused = [&](weftResult_t result, weftResult_t expected, const std::string& part) {
      EXPECT_EQ(result, expected) << part;
      EXPECT_EQ(grown, nullptr);
      EXPECT_NE(std::string(weftGetLastError(nullptr)).find(part), std::string::npos)
          << weftGetLastError(nullptr);
      grown = me.comm;
    };
    refused(weftCommGrow(me.comm, 3, nullptr, -1, &grown, nullptr), weftInvalidArgument,
            "no rank passes a uniqueId");
    refused(weftCommGrow(me.comm, 3, &id, -1, &grown, nullptr), weftMismatch, "rank 1 is the second");
    refused(weftCommGrow(me.comm, 3 + me.rank, me.rank == 0 ? &id : nullptr, -1, &grown, nullptr),
            weftMismatch, "nRanks is");
    refused(weftCommGrow(me.comm, 2, &id, -1, &grown, nullptr), weftInvalidArgument,
            "must be more than the 2 ranks");
    refused(weftCommGrow(me.comm, 3, &id, me.rank, &grown, nullptr), weftInvalidRoot, "must be -1");
    refused(weftCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr), weftInvalidPointer, "a rank that joins");
    id.internal[5] ^= 1;
    refused(weftCommGrow(me.comm, 3, &id, -1, &grown, nullptr), weftInvalidUniqueId, "");
    check_sum(me.comm, me.rank, 2);
  });
}

}  // namespace
}  // namespace weft::testing
