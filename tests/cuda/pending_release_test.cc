// What an operation that fails leaves on the device: it ends at once for its caller, however long the device
// takes; its memory and the caller's stream stay until the device is done with it.
#include "engine/gpu/pending_release.h"

#include <barrier>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "api/ranks.h"
#include "base/clock.h"
#include "cuda/graphs.h"
#include "engine/gpu/device_run.h"
#include "engine/ranks.h"

namespace weft::engine::pending_release_test {
namespace {

using plan::Collective;
using testing::FakeControls;

struct Leftovers : ::testing::TestWithParam<uint64_t> {};

// A peer may write to it until it has heard of the failure.
TEST_P(Leftovers, ScratchThatWasExposedIsNotLentAgainAfterAFailure) {
  WEFT_NEED_DEVICE();
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "a call waits for its end";
  const testing::RanksAtWork at_work;
  const uint64_t count = GetParam();
  std::latch failed(2);
  CommOptions options;
  options.device = 0;
  run_ranks(
      {"a", "a"},
      [&](Communicator& comm) {
        if (comm.rank() == 1) return failed.arrive_and_wait();
        const testing::DeviceStream stream;
        const testing::DeviceArray<int32_t> data(2 * count);
        Call call = in_place(Collective::all_to_all, data.data(), count);
        call.on_device = true;
        call.cuda_stream = stream.get();
        EXPECT_TRUE(comm.run(call).ok());
        EXPECT_TRUE(testing::eventually([&] {
          const Lock lock = comm.context().lock();
          return comm.operations().unfinished().front()->started;
        }));
        {
          const Lock lock = comm.context().lock();
          const Operation& op = *comm.operations().unfinished().front();
          const int scratch = static_cast<int>(plan::Space::scratch);
          EXPECT_TRUE(op.tables->exposes_inside[scratch]);
          const std::byte* const lent = op.memory.base[scratch];
          const uint64_t bytes = op.memory.bytes[scratch];
          DeviceExecutor& executor = *comm.on_device().executor;
          cuda::BlockPool& pool =
              op.device->on_device(plan::Space::scratch) ? executor.device_blocks() : executor.host_blocks();
          EXPECT_NE(lent, nullptr);
          comm.fail(fail(Code::aborted, "enough"), true);
          while (executor.has_releases()) (void)executor.settle();
          const cuda::Scope scope(executor.device());
          const auto next = pool.take(bytes);
          EXPECT_TRUE(next.ok() && next->data != lent);
          if (next) pool.give(*next);
        }
        stream.synchronize();
        failed.arrive_and_wait();
      },
      options);
}

// Every question was queued behind the others. After a thousand, 100 s, the driver waited for room in the
// queue, with the context's lock, and no operation came to its deadline any more.
TEST(DeviceThatDoesNothing, IsAskedOnce) {
  WEFT_NEED_FAKE(fake);
  auto executor = DeviceExecutor::open(0);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  testing::HeldStream held((*executor)->queue(0).stream());
  if (!held.held()) GTEST_SKIP() << "no stream waits here";
  const uint64_t before = fake.calls("cuEventRecord");
  int64_t now = now_ns();
  const auto ask = [&] { return (*executor)->alive(now += 1'000'000'000); };
  for (int time = 0; time < 3000; ++time) ASSERT_TRUE(ask().ok());
  EXPECT_EQ(fake.calls("cuEventRecord"), before + 1);
  fake.break_device(0, cuda::kIllegalAddress);
  EXPECT_FALSE(ask().ok());
  fake.break_device(0, 0);
  held.let_go();
  EXPECT_TRUE(testing::eventually([&] { return ask().ok(); }));
  const cuda::Scope scope((*executor)->device());
  EXPECT_TRUE((*executor)->queue(0).drain().ok());
}

// A piece of a slab, and a block of its own.
INSTANTIATE_TEST_SUITE_P(Counts, Leftovers, ::testing::Values(10000, 1 << 20),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace weft::engine::pending_release_test

namespace weft::testing::pending_release_test {
namespace {

constexpr size_t kCount = 1 << 18;

void on_device(weftConfig_t& config) { config.device = 0; }

/// Two ranks whose kernels stand still, from the moment when both have launched one.
struct HeldKernels {
  const FakeControls& fake;
  std::barrier<> both{2};
  uint64_t before = 0;

  void hold(const Rank& me) {
    if (me.rank == 0) {
      before = fake.calls("stream with kernels");
      fake.hold_kernels(1);
    }
    both.arrive_and_wait();
  }
  bool launched() const {
    return eventually([this] { return fake.calls("stream with kernels") >= before + 2; });
  }
  void let_go(const Rank& me) {
    both.arrive_and_wait();
    if (me.rank == 0) fake.hold_kernels(0);
  }
};

#define WEFT_NEED_HELD_KERNELS()                        \
  WEFT_NEED_FAKE(fake);                                 \
  if (!cuda::Kernels::load(**cuda::Device::open(0), 1)) \
  GTEST_SKIP() << "this build, or this device, has no kernels"

/// Aborts an AllReduce whose kernels wait. Where a stream cannot wait for a CPU the call itself waits, so
/// that it has a thread of its own.
void abort_while_held(Rank& me, HeldKernels& kernels, const DeviceArray<float>& send,
                      const DeviceArray<float>& recv, const DeviceStream& stream) {
  kernels.hold(me);
  std::thread caller([&] { (void)all_reduce(send, recv, kCount, me.comm, stream); });
  EXPECT_TRUE(kernels.launched());
  EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
  me.comm = nullptr;
  caller.join();
}

TEST(Aborts, DoNotWaitForKernelsAndOtherCommunicatorsGoOn) {
  WEFT_NEED_HELD_KERNELS();
  HeldKernels kernels{fake};
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream a, b;
        const DeviceArray<float> send(Values(kCount, 1)), recv(kCount), all(2 * kCount);
        weftComm_t other;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &other, nullptr));
        abort_while_held(me, kernels, send, recv, a);
        const StreamMark end(a);
        EXPECT_EQ(weftAllGather(send.data(), all.data(), kCount, weftFloat, other, b.weft()), weftSuccess);
        b.synchronize();
        EXPECT_EQ(all.get(), Values(2 * kCount, 1));
        EXPECT_FALSE(end.reached()) << "its own kernel may still write the buffer";
        kernels.let_go(me);
        a.synchronize();
        WEFT_OK(weftCommDestroy(other));
      },
      on_device);
}

TEST(Aborts, OfTheLastCommunicatorDoNotWaitForKernelsEither) {
  WEFT_NEED_HELD_KERNELS();
  HeldKernels kernels{fake};
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(Values(kCount, 1)), recv(kCount);
        abort_while_held(me, kernels, send, recv, stream);
        const StreamMark end(stream);
        EXPECT_FALSE(end.reached());
        kernels.let_go(me);
        stream.synchronize();
      },
      on_device);
}

// The handle names another stream on the thread that aborts.
TEST(Aborts, HoldTheDefaultStreamOfTheThreadThatHasCalled) {
  WEFT_NEED_HELD_KERNELS();
  HeldKernels kernels{fake};
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceArray<float> send(Values(kCount, 1)), recv(kCount);
        kernels.hold(me);
        std::barrier aborted(2), let_go(2);
        std::thread caller([&] {
          (void)weftAllReduce(send.data(), recv.data(), kCount, weftFloat, weftSum, me.comm,
                              reinterpret_cast<weftStream_t>(stream_of_thread()));
          const StreamMark end(stream_of_thread());
          aborted.arrive_and_wait();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          EXPECT_FALSE(end.reached()) << "its kernel may still write the buffer";
          let_go.arrive_and_wait();
          EXPECT_TRUE(eventually([&] { return end.reached(); }));
        });
        EXPECT_TRUE(kernels.launched());
        EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
        me.comm = nullptr;
        aborted.arrive_and_wait();
        let_go.arrive_and_wait();
        kernels.let_go(me);
        caller.join();
      },
      on_device);
}

TEST(Aborts, OfALaunchedGraphDoNotWaitForKernelsButItsStreamDoes) {
  WEFT_NEED_GRAPHS();
  WEFT_NEED_HELD_KERNELS();
  HeldKernels kernels{fake};
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(Values(kCount, 1)), recv(kCount);
        Graph graph(stream);
        WEFT_OK(all_reduce(send, recv, kCount, me.comm, stream));
        ASSERT_EQ(graph.end(), cuda::kSuccess);
        kernels.hold(me);
        graph.launch();
        const StreamMark end(stream);
        EXPECT_TRUE(kernels.launched());
        EXPECT_EQ(weftCommAbort(me.comm), weftSuccess);
        me.comm = nullptr;
        EXPECT_FALSE(end.reached());
        kernels.let_go(me);
        stream.synchronize();
        graph.launch();  // passes by
        stream.synchronize();
      },
      on_device);
}

}  // namespace
}  // namespace weft::testing::pending_release_test
