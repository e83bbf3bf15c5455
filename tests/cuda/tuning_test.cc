// The cost model's machine of a communicator of GPU memory: measured on the device at hand, kept under its
// name, the same on every rank. What the fake driver measures means nothing; that it is used does.
#include <atomic>
#include <filesystem>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "api/ranks.h"
#include "base/settings.h"
#include "cuda/device_memory.h"
#include "device/cuda/kernels.h"
#include "model/machine_cache.h"

namespace weft::testing {
namespace {

std::vector<model::Cached> measurements_of_gpus() {
  std::vector<model::Cached> found;
  for (const auto& entry : std::filesystem::directory_iterator(model::cache_directory())) {
    auto cached = model::read_cache(entry.path());
    EXPECT_TRUE(cached.ok()) << cached.status().message();
    if (!cached || !cached->has_value()) continue;
    for (const auto& [name, value] : (*cached)->facts.host)
      if (name == "gpu") found.push_back(**cached);
  }
  return found;
}

void add_up(Rank& me) {
  const DeviceStream stream;
  for (size_t count : {size_t{1}, size_t{5000}, size_t{300001}}) {
    const DeviceArray<float> send(std::vector<float>(count, static_cast<float>(me.rank + 1))), recv(count);
    WEFT_OK(weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, me.comm, stream.weft()));
    stream.synchronize();
    ASSERT_EQ(recv.get(), std::vector<float>(count, static_cast<float>(me.size * (me.size + 1) / 2)));
  }
}

TEST(GpuTuning, MeasuresADeviceOnceAndKeepsItUnderItsName) {
  WEFT_NEED_FAKE(fake);
  if (settings().tune == "off" || settings().tune_cache.empty())
    GTEST_SKIP() << "cuda.gpu_tuning runs this with WEFT_TUNE=auto and a cache of its own";
  std::filesystem::remove_all(model::cache_directory());
  const auto on_device = [](weftConfig_t& config) { config.device = 0; };
  run_ranks(blocks(2, 2), add_up, on_device);
  const auto first = measurements_of_gpus();
  ASSERT_EQ(first.size(), 1u);
  const model::Machine& machine = first.front().machine;
  EXPECT_EQ(machine.engines, 1);
  EXPECT_GT(machine.engine_us, 0);
  EXPECT_FALSE(machine.intra.by_cpu);
  EXPECT_GE(machine.memory.copy_cached, machine.memory.copy_large);
  const model::Machine defaults;
  EXPECT_NE(machine.memory.copy_large, defaults.memory.copy_large);
  EXPECT_NE(machine.memory.reduce_large, defaults.memory.reduce_large);
  std::string gpu;
  for (const auto& [name, value] : first.front().facts.host)
    if (name == "gpu") gpu = value;
  EXPECT_NE(gpu.find("fake device"), std::string::npos) << gpu;

  run_ranks(blocks(2, 2), add_up, on_device);
  const auto second = measurements_of_gpus();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second.front().machine.memory.copy_large, machine.memory.copy_large) << "it was measured again";
}

TEST(GpuTuning, ADriversErrorLeavesTheJobsMachine) {
  WEFT_NEED_FAKE(fake);
  if (settings().tune == "off" || settings().tune_cache.empty())
    GTEST_SKIP() << "cuda.gpu_tuning runs this with WEFT_TUNE=auto and a cache of its own";
  // Another layout: other facts than the other test's. Before it measures, each rank warms up five queues,
  // with 64 events each.
  constexpr int kWarmUps = 3 * 5 * 64;
  run_ranks(blocks(1, 3), [&](Rank& me) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = 0;
    if (me.rank == 0) fake.fail_after("cuEventRecord", kWarmUps, cuda::kIllegalAddress);
    weftComm_t comm;
    WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, &config));
    Rank on_gpu{me.rank, me.size, comm};
    add_up(on_gpu);
    WEFT_OK(weftCommDestroy(comm));
  });
}

// The creation waited for the device for ever, with the lock that its other communicators need.
TEST(GpuTuning, ADeviceThatDoesNothingIsAnErrorWithinTheTimeout) {
  WEFT_NEED_FAKE(fake);
  if (settings().tune == "off" || settings().tune_cache.empty() ||
      !cuda::Kernels::load(**cuda::Device::open(0), 1))
    GTEST_SKIP() << "cuda.gpu_tuning runs this with WEFT_TUNE=auto and a cache of its own";
  std::filesystem::remove_all(model::cache_directory());
  std::latch both_created(2), both_failed(2);
  run_ranks(blocks(1, 2), [&](Rank& me) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = 0;
    config.timeoutSeconds = 1;
    fake.hold_kernels(1);
    both_created.arrive_and_wait();
    weftComm_t comm = nullptr;
    const weftResult_t created = weftCommSplit(me.comm, 0, me.rank, &comm, &config);
    const std::string why = weftGetLastError(nullptr);
    EXPECT_NE(created, weftSuccess);
    if (me.rank == 0) {
      EXPECT_EQ(created, weftTimeout) << why;
      EXPECT_NE(why.find("CUDA device 0 (fake device"), std::string::npos) << why;
      EXPECT_NE(why.find("has not ended after 1 s"), std::string::npos) << why;
    }
    if (comm) (void)weftCommAbort(comm);
    (void)weftCommAbort(me.comm);  // does not wait for the device either
    me.comm = nullptr;
    both_failed.arrive_and_wait();
    fake.hold_kernels(0);
  });
}

// Ranks of host memory would not answer: nothing is measured, and the first operation tells.
void add_up_mixed_memory(Rank& me, weftComm_t comm, bool on_gpu) {
  const size_t count = 1 << 20;
  weftResult_t health = weftSuccess;
  if (on_gpu) {
    const DeviceStream stream;
    const DeviceArray<float> send(count), recv(count);
    (void)weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, comm, stream.weft());
    stream.synchronize();
    EXPECT_TRUE(eventually(
        [&] { return weftCommGetAsyncError(comm, &health) != weftSuccess || health != weftSuccess; }));
  } else {
    std::vector<float> send(count), recv(count);
    health = weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, comm, nullptr);
  }
  EXPECT_TRUE(health == weftMismatch || health == weftRemoteError) << me.rank << ": " << health;
  EXPECT_NE(std::string(weftGetLastError(comm)).find("GPU memory"), std::string::npos)
      << weftGetLastError(comm);
}

TEST(GpuTuning, HostMemoryOnOneRankAndGpuMemoryOnAnotherIsTold) {
  WEFT_NEED_FAKE(fake);
  if (settings().tune == "off" || settings().tune_cache.empty())
    GTEST_SKIP() << "cuda.gpu_tuning runs this with WEFT_TUNE=auto and a cache of its own";
  for (const bool warm : {false, true}) {
    std::filesystem::remove_all(model::cache_directory());
    if (warm) run_ranks(blocks(1, 2), add_up, [](weftConfig_t& config) { config.device = 0; });
    run_ranks(blocks(1, 2), [](Rank& me) {
      for (const int with_gpu : {0, 1}) {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.device = me.rank == with_gpu ? 0 : WEFT_DEVICE_HOST;
        weftComm_t comm;
        WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, &config));
        add_up_mixed_memory(me, comm, me.rank == with_gpu);
        WEFT_OK(weftCommDestroy(comm));
      }
    });
    std::atomic<int> first{0};
    std::atomic<std::thread::id> on_gpu;
    run_ranks(
        blocks(1, 2),
        [&](Rank& me) { add_up_mixed_memory(me, me.comm, on_gpu.load() == std::this_thread::get_id()); },
        [&](weftConfig_t& config) {
          if (first++ > 0) return;
          config.device = 0;
          on_gpu.store(std::this_thread::get_id());
        });
  }
}

// After the test above, which needs that nothing is kept of its layout. Each rank shrinks by itself, the
// others come later: it takes over what the first communicator has measured.
TEST(GpuTuning, ShrinkingSendsNothing) {
  WEFT_NEED_FAKE(fake);
  if (settings().tune == "off" || settings().tune_cache.empty())
    GTEST_SKIP() << "cuda.gpu_tuning runs this with WEFT_TUNE=auto and a cache of its own";
  std::latch shrunk(3);
  run_ranks(
      blocks(1, 3),
      [&](Rank& me) {
        weftComm_t rest = nullptr;
        if (me.rank != 2) shrunk.arrive_and_wait();
        EXPECT_EQ(weftCommShrink(me.comm, nullptr, 0, &rest, nullptr, WEFT_SHRINK_ABORT), weftSuccess)
            << weftGetLastError(nullptr);
        if (me.rank == 2) shrunk.arrive_and_wait();
        if (!rest) return;
        Rank left{me.rank, me.size, rest};
        add_up(left);
        WEFT_OK(weftCommDestroy(rest));
      },
      [](weftConfig_t& config) {
        config.device = 0;
        config.timeoutSeconds = 5;
      });
}

}  // namespace
}  // namespace weft::testing
