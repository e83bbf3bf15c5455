// What is given back to the driver, and when: not while a stream waits for Weft, since the driver may let the
// giving back wait for that stream.
#include "device/cuda/deferred_free.h"

#include <barrier>
#include <thread>
#include <vector>

#include "api/ranks.h"
#include "cuda/graphs.h"
#include "device/cuda/block_pool.h"

namespace weft::testing::deferred_free_test {
namespace {

using cuda::BlockPool;
using cuda::DeferredFree;

constexpr size_t kBlock = 4 << 20;

/// A block that no pool has a use for; where it was.
std::byte* make_deferred(cuda::Device& device, BlockPool::Kind kind) {
  const cuda::Scope scope(device);
  BlockPool pool(device, kind);
  auto block = pool.take(kBlock);
  EXPECT_TRUE(block.ok());
  pool.give(*block);
  return block->data;
}

/// Calls that have given something back. Those of earlier tests' memory are over when it is made.
class GivenBack {
 public:
  GivenBack(const FakeControls& fake, const char* call) : fake_(fake), call_(call) {
    cuda::Device& device = **cuda::Device::open(0);
    for (const auto kind : {BlockPool::Kind::host, BlockPool::Kind::device}) {
      const char* const gives = kind == BlockPool::Kind::host ? "cuMemHostUnregister" : "cuMemFree";
      const uint64_t before = fake.calls(gives);
      make_deferred(device, kind);
      EXPECT_TRUE(eventually([&] { return fake.calls(gives) > before; }));
    }
    first_ = so_far();
  }
  GivenBack(const FakeControls& fake, BlockPool::Kind kind)
      : GivenBack(fake, kind == BlockPool::Kind::host ? "cuMemHostUnregister" : "cuMemFree") {}

  uint64_t count() const { return so_far() - first_; }
  /// Whether it becomes so many.
  bool becomes(uint64_t wanted) const {
    return eventually([&] { return count() >= wanted; }) && count() == wanted;
  }
  /// Whether it stays as it is, although the thread that gives back has looked.
  bool stays(uint64_t wanted) const {
    for (int look = 0; look < 20; ++look) {
      DeferredFree::instance().add_mapping(**cuda::Device::open(0), 0);  // wakes it
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return count() == wanted;
  }

 private:
  uint64_t so_far() const { return fake_.calls(call_); }
  const FakeControls& fake_;
  const char* call_;
  uint64_t first_ = 0;
};

struct SurplusMemory : ::testing::TestWithParam<BlockPool::Kind> {};

TEST_P(SurplusMemory, StaysWhileAStreamWaitsForWeft) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const GivenBack given(fake, GetParam());
  DeferredFree::instance().stream_waits();
  DeferredFree::instance().stream_waits();
  make_deferred(device, GetParam());
  EXPECT_TRUE(given.stays(0));
  DeferredFree::instance().stream_goes_on();
  EXPECT_TRUE(given.stays(0));
  DeferredFree::instance().stream_goes_on();
  EXPECT_TRUE(given.becomes(1));
  make_deferred(device, GetParam());
  EXPECT_TRUE(given.becomes(2));
}

TEST_P(SurplusMemory, StaysWhileAGraphIsThereAndGoesWithIt) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const GivenBack given(fake, GetParam());
  DeferredFree::instance().graph_begins();
  DeferredFree::instance().stream_waits();
  make_deferred(device, GetParam());
  DeferredFree::instance().stream_goes_on();
  EXPECT_TRUE(given.stays(0));
  DeferredFree::instance().graph_ends();
  EXPECT_TRUE(given.becomes(1));
}

// A thread of the driver's ends graphs. Whoever closes mappings may wait for long.
TEST(SurplusMappings, NobodyWaitsForTheThreadThatClosesThem) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const GivenBack closed(fake, "cuIpcCloseMemHandle");
  DeferredFree::instance().graph_begins();
  DeferredFree::instance().graph_begins();
  DeferredFree::instance().stream_waits();
  DeferredFree::instance().add_mapping(device, 0);  // the driver knows none there, which is only logged
  fake.block("cuIpcCloseMemHandle", 1);
  const auto closing = DeferredFree::instance().close_mappings();
  ASSERT_TRUE(closing.has_value());
  EXPECT_TRUE(closed.becomes(1));
  EXPECT_FALSE(closing->expired());
  DeferredFree::instance().graph_ends();
  DeferredFree::instance().stream_goes_on();
  DeferredFree::instance().stream_waits();
  DeferredFree::instance().add_mapping(device, 0);
  DeferredFree::instance().stream_goes_on();
  fake.block("cuIpcCloseMemHandle", 0);
  EXPECT_TRUE(eventually([&] { return closing->expired(); }));
  DeferredFree::instance().graph_ends();
  EXPECT_TRUE(closed.becomes(2));
  EXPECT_FALSE(DeferredFree::instance().close_mappings().has_value());
}

TEST(SurplusMappings, AreClosedInSpiteOfAGraphWhereTheyAreTooMany) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const GivenBack closed(fake, "cuIpcCloseMemHandle");
  DeferredFree::instance().graph_begins();
  for (size_t i = 0; i < DeferredFree::kMostMappings + 10; ++i)
    DeferredFree::instance().add_mapping(device, 0);
  EXPECT_TRUE(closed.becomes(10));
  DeferredFree::instance().graph_ends();
  EXPECT_TRUE(closed.becomes(DeferredFree::kMostMappings + 10));
}

TEST_P(SurplusMemory, OfAFailedOperationIsLentByNoOtherPool) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  for (const size_t bytes : {kBlock, size_t{5000}}) {
    DeferredFree::instance().stream_waits();
    std::byte* retired = nullptr;
    {
      BlockPool pool(device, GetParam());
      auto block = pool.take(bytes);
      ASSERT_TRUE(block.ok());
      retired = block->data;
      pool.retire(*block);
      auto next = pool.take(bytes);
      ASSERT_TRUE(next.ok());
      EXPECT_NE(next->data, retired);
      pool.give(*next);
    }
    {
      BlockPool pool(device, GetParam());
      std::vector<cuda::Block> taken;
      for (int i = 0; i < 200; ++i) {
        taken.push_back(*pool.take(bytes));
        EXPECT_NE(taken.back().data, retired);
      }
      for (const cuda::Block& block : taken) pool.give(block);
    }
    DeferredFree::instance().stream_goes_on();
  }
}

// The driver may take long to give back. A call that has to wait for that does so without a context's lock.
TEST(SurplusMemoryThatIsGivenBack, HoldsUpNoOtherCommunicator) {
  WEFT_NEED_FAKE(fake);
  std::barrier both(2);
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(Values(100, 1)), recv(100);
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.device = WEFT_DEVICE_HOST;
        weftComm_t host;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &host, &config));
        both.arrive_and_wait();
        if (me.rank == 0) {
          const uint64_t before = fake.calls("cuMemFree");
          fake.block("cuMemFree", 1);
          make_deferred(**cuda::Device::open(0), BlockPool::Kind::device);
          EXPECT_TRUE(eventually([&] { return fake.calls("cuMemFree") > before; }));
        }
        both.arrive_and_wait();
        std::thread caller([&] { EXPECT_EQ(all_reduce(send, recv, 100, me.comm, stream), weftSuccess); });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is there by then
        float one = 1, sum = 0;
        EXPECT_EQ(weftAllReduce(&one, &sum, 1, weftFloat, weftSum, host, nullptr), weftSuccess);
        both.arrive_and_wait();
        if (me.rank == 0) fake.block("cuMemFree", 0);
        caller.join();
        stream.synchronize();
        EXPECT_EQ(recv.get(), Values(100, 2));
        WEFT_OK(weftCommDestroy(host));
      },
      on_device);
}

/// Memory of the driver's that has not been given back.
uint64_t outstanding(const FakeControls& fake) {
  return fake.calls("cuMemAlloc") - fake.calls("cuMemFree") + fake.calls("cuMemHostRegister") -
         fake.calls("cuMemHostUnregister");
}

// The last graph may go after the last communicator, when no stream waits any more, or stay.
TEST(SurplusOfGraphs, ComesBackWithTheCommunicatorWhateverBecomesOfTheGraph) {
  WEFT_NEED_GRAPHS();
  WEFT_NEED_FAKE(fake);
  constexpr size_t kCount = 1 << 18;
  const DeviceArray<float> send(kCount), recv(kCount);
  const GivenBack quiet(fake, "cuMemFree");
  const uint64_t before = outstanding(fake);
  for (const bool graph_stays : {false, true}) {
    std::vector<std::unique_ptr<DeviceStream>> streams(2);
    std::vector<std::unique_ptr<Graph>> graphs(2);
    run_ranks(
        blocks(1, 2),
        [&](Rank& me) {
          const auto rank = static_cast<size_t>(me.rank);
          streams[rank] = std::make_unique<DeviceStream>();
          graphs[rank] = std::make_unique<Graph>(*streams[rank]);
          WEFT_OK(all_reduce(send, recv, kCount, me.comm, *streams[rank]));
          ASSERT_EQ(graphs[rank]->end(), cuda::kSuccess);
          graphs[rank]->launch();
          streams[rank]->synchronize();
        },
        on_device);
    if (!graph_stays) graphs.clear();
    EXPECT_TRUE(eventually([&] { return outstanding(fake) <= before; }))
        << outstanding(fake) - before << (graph_stays ? " with the graph" : "");
  }
}

TEST_P(SurplusMemory, IsUsedAgainBeforeTheDriverIsAskedForMore) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  const GivenBack nothing_else(fake, GetParam());
  DeferredFree::instance().stream_waits();
  std::byte* const deferred = make_deferred(device, GetParam());
  {
    BlockPool pool(device, GetParam());
    auto smaller = pool.take(kBlock / 2), again = pool.take(kBlock);
    ASSERT_TRUE(smaller.ok() && again.ok());
    EXPECT_NE(smaller->data, deferred);
    EXPECT_EQ(again->data, deferred);
    pool.give(*smaller);
    pool.give(*again);
  }
  DeferredFree::instance().stream_goes_on();
}

INSTANTIATE_TEST_SUITE_P(Kinds, SurplusMemory,
                         ::testing::Values(BlockPool::Kind::host, BlockPool::Kind::device),
                         [](const auto& info) {
                           return info.param == BlockPool::Kind::host ? "pinned" : "device";
                         });

}  // namespace
}  // namespace weft::testing::deferred_free_test
