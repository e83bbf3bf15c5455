// What is given back to the driver, and when: not while a stream waits for Weft, since the driver may let the
// giving back wait for that stream.
#include "device/cuda/surplus.h"

#include "cuda/device_memory.h"
#include "device/cuda/block_pool.h"

namespace weft::testing {
namespace {

using cuda::BlockPool;
using cuda::Surplus;

constexpr size_t kBlock = 4 << 20;

/// A block that no pool has a use for; where it was.
std::byte* make_surplus(cuda::Device& device, BlockPool::Kind kind) {
  const cuda::Scope scope(device);
  BlockPool pool(device, kind);
  auto block = pool.take(kBlock);
  EXPECT_TRUE(block.ok());
  pool.give(*block);
  return block->data;
}

struct SurplusMemory : ::testing::TestWithParam<BlockPool::Kind> {
  static uint64_t given_back(const FakeControls& fake) {
    return fake.calls(GetParam() == BlockPool::Kind::host ? "cuMemHostUnregister" : "cuMemFree");
  }
};

TEST_P(SurplusMemory, StaysWhileAStreamWaitsForWeft) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const uint64_t before = given_back(fake);
  Surplus::instance().stream_waits();
  Surplus::instance().stream_waits();
  make_surplus(device, GetParam());
  EXPECT_EQ(given_back(fake), before);
  Surplus::instance().stream_goes_on();
  EXPECT_EQ(given_back(fake), before);
  Surplus::instance().stream_goes_on();
  EXPECT_EQ(given_back(fake), before + 1);
  make_surplus(device, GetParam());
  EXPECT_EQ(given_back(fake), before + 2);
}

TEST_P(SurplusMemory, StaysWhileAGraphIsThereAndGoesWithTheNextStreams) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const uint64_t before = given_back(fake);
  Surplus::instance().graph_begins();
  Surplus::instance().stream_waits();
  make_surplus(device, GetParam());
  Surplus::instance().stream_goes_on();
  EXPECT_EQ(given_back(fake), before);
  Surplus::instance().graph_ends();
  EXPECT_EQ(given_back(fake), before) << "the end of a graph may not call CUDA";
  Surplus::instance().stream_waits();
  Surplus::instance().stream_goes_on();
  EXPECT_EQ(given_back(fake), before + 1);
}

TEST_P(SurplusMemory, IsUsedAgainBeforeTheDriverIsAskedForMore) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  Surplus::instance().stream_waits();
  std::byte* const surplus = make_surplus(device, GetParam());
  {
    BlockPool pool(device, GetParam());
    auto smaller = pool.take(kBlock / 2), again = pool.take(kBlock);
    ASSERT_TRUE(smaller.ok() && again.ok());
    EXPECT_NE(smaller->data, surplus);
    EXPECT_EQ(again->data, surplus);
    pool.give(*smaller);
    pool.give(*again);
  }
  Surplus::instance().stream_goes_on();
}

INSTANTIATE_TEST_SUITE_P(Kinds, SurplusMemory,
                         ::testing::Values(BlockPool::Kind::host, BlockPool::Kind::device),
                         [](const auto& info) {
                           return info.param == BlockPool::Kind::host ? "pinned" : "device";
                         });

}  // namespace
}  // namespace weft::testing
