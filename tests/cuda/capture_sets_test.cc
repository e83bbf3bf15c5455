// Sets of control memory of captures: which one a capture gets, on all ranks alike, and when it is cleared.
#include "engine/gpu/capture_sets.h"

#include <memory>
#include <vector>

#include "cuda/device_memory.h"
#include "engine/gpu/plan_memory.h"

namespace weft::testing::capture_sets_test {
namespace {

using engine::CaptureSets;
using engine::NodeBoard;

constexpr int kRanks = 3;
constexpr uint32_t kSets = 2;

struct Ranks {
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope{device};
  std::vector<std::shared_ptr<NodeBoard>> boards{NodeBoard::create(device, 0, kRanks).take()};
  std::vector<CaptureSets> sets;
  std::vector<int> cleared;

  Ranks() : cleared(kRanks) {
    for (int rank = 1; rank < kRanks; ++rank)
      boards.push_back(NodeBoard::open(device, rank, kRanks, *boards[0]->offer()).take());
    for (const auto& board : boards) sets.emplace_back(board, kSets);
  }
  uint32_t find(int rank, uint32_t capture) {
    const auto at = static_cast<size_t>(rank);
    const auto set = sets[at].find(capture, [&](uint32_t) {
      ++cleared[at];
      return Status();
    });
    EXPECT_TRUE(set.ok()) << set.status().message();
    return set.ok() ? *set : 99;
  }
  void destroy(int rank, uint32_t set, uint32_t capture) {
    boards[static_cast<size_t>(rank)]->note_set_unused(set, capture);
  }
};

TEST(CaptureSets, AreDifferentAsLongAsGraphsExist) {
  WEFT_NEED_DEVICE();
  Ranks ranks;
  for (int rank : {1, 0, 2}) {
    EXPECT_EQ(ranks.find(rank, 1), 1u);
    EXPECT_EQ(ranks.find(rank, 2), 2u);
    EXPECT_EQ(ranks.find(rank, 3), 0u);
  }
}

TEST(CaptureSets, ASetIsClearedByAllRanksBeforeItIsUsedAgain) {
  WEFT_NEED_DEVICE();
  Ranks ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    for (const uint32_t capture : {1u, 2u}) EXPECT_EQ(ranks.find(rank, capture), capture);
  for (int rank : {0, 1}) ranks.destroy(rank, 1, 1);
  EXPECT_EQ(ranks.find(0, 3), 0u);
  EXPECT_EQ(ranks.cleared[0], 0) << "a kernel of rank 2 may still use it";
  ranks.destroy(2, 1, 1);
  EXPECT_EQ(ranks.find(1, 3), 0u) << "rank 0 has chosen";
  EXPECT_EQ(ranks.cleared[1], 1);
  EXPECT_EQ(ranks.find(2, 3), 0u);
  EXPECT_EQ(ranks.find(1, 4), 0u) << "rank 0 has not cleared it";
  EXPECT_EQ(ranks.find(0, 4), 0u);
  EXPECT_EQ(ranks.find(2, 4), 0u);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(ranks.find(rank, 5), 1u);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks.find(rank, 6), 0u);
    EXPECT_EQ(ranks.cleared[static_cast<size_t>(rank)], 1);
  }
}

/// Rank 0 chooses when the others have not come to the captures before.
TEST(CaptureSets, ARankThatIsBehindGetsWhatWasChosenThen) {
  WEFT_NEED_DEVICE();
  Ranks ranks;
  std::vector<uint32_t> chosen;
  for (uint32_t capture = 1; capture <= 5; ++capture) {
    chosen.push_back(ranks.find(0, capture));
    if (chosen.back()) ranks.destroy(0, chosen.back(), capture);
  }
  EXPECT_EQ(chosen, (std::vector<uint32_t>{1, 2, 0, 0, 0}));
  for (int rank : {1, 2})
    for (uint32_t capture = 1; capture <= 5; ++capture)
      EXPECT_EQ(ranks.find(rank, capture), chosen[capture - 1]);
}

TEST(CaptureSets, ARankThatIsTooFarBehindIsTold) {
  WEFT_NEED_DEVICE();
  Ranks ranks;
  for (uint32_t capture = 1; capture <= NodeBoard::kChoices + 1; ++capture) (void)ranks.find(0, capture);
  const auto late = ranks.sets[1].find(1, [](uint32_t) { return Status(); });
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.status().message().find("captures of CUDA graphs ahead"), std::string::npos);
}

// What was taken for captures stayed as long as the communicator.
TEST(CaptureSets, WhatWasTakenForASetIsUsedAgainWhenTheSetIsCleared) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const auto executor = engine::DeviceExecutor::open(0).take();
  const cuda::Scope scope(device);
  std::shared_ptr<NodeBoard> board = NodeBoard::create(device, 0, 1).take();
  const auto memory = engine::PlanMemory::create(*executor, board, 0, 1, kSets).take();
  ASSERT_TRUE(memory->take_more(3 << 20, 1).ok());
  const uint64_t allocations = fake.calls("cuMemAlloc");
  for (int graph = 0; graph < 20; ++graph) {
    ASSERT_TRUE(memory->clear_set(1).ok());
    ASSERT_TRUE(memory->take_more(3 << 20, 1).ok());
  }
  EXPECT_EQ(fake.calls("cuMemAlloc"), allocations);
}

}  // namespace
}  // namespace weft::testing::capture_sets_test
