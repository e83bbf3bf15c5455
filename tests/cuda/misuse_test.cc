// What GPU memory does when it is used wrongly or breaks, what takes no kernel, and ranks as processes, which
// reach each other's memory through CUDA IPC.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "api/processes.h"
#include "api/ranks.h"
#include "cuda/device_memory.h"

namespace weft::testing::misuse_test {
namespace {

using Values = std::vector<float>;

bool mentions(const char* text, const char* words) {
  return std::string(text).find(words) != std::string::npos;
}

// ---- Ranks as processes. First in the program, since a child must not inherit a driver that is in use.

int gather_and_add(Rank& me) {
  const int ordinal = me.rank % *cuda::Device::count();
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.device = ordinal;
  weftComm_t comm = nullptr;
  if (weftCommSplit(me.comm, 0, me.rank, &comm, &config) != weftSuccess) {
    std::fprintf(stderr, "rank %d: %s\n", me.rank, weftGetLastError(nullptr));
    return 2;
  }
  {
    const DeviceStream stream(ordinal);
    for (size_t count : {size_t{3}, size_t{3000}, size_t{200000}}) {
      Values mine(count), sum(count), gathered;
      for (int r = 0; r < me.size; ++r)
        for (size_t i = 0; i < count; ++i) {
          const float value = static_cast<float>(r + 1) * static_cast<float>(i % 13);
          if (r == me.rank) mine[i] = value;
          sum[i] += value;
          gathered.push_back(value);
        }
      const DeviceArray<float> send(mine, ordinal), reduced(count, ordinal), all(gathered.size(), ordinal);
      for (int round = 0; round < 3; ++round) {
        if (weftAllReduce(send.data(), reduced.data(), count, weftFloat, weftSum, comm, stream.weft()) ||
            weftAllGather(send.data(), all.data(), count, weftFloat, comm, stream.weft())) {
          std::fprintf(stderr, "rank %d: %s\n", me.rank, weftGetLastError(comm));
          return 3;
        }
      }
      stream.synchronize();
      if (weftResult_t health; weftCommGetAsyncError(comm, &health) || health) {
        std::fprintf(stderr, "rank %d: %s\n", me.rank, weftGetLastError(comm));
        return 4;
      }
      if (reduced.get() != sum || all.get() != gathered) return 5;
    }
  }
  return weftCommDestroy(comm) || weftCommDestroy(me.comm);
}

// A program whose buffers come and go, at the same addresses: what peers have mapped of the old ones is in
// the way of the new ones.
int gather_from_new_buffers(Rank& me) {
  const FakeControls fake;
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.device = 0;
  weftComm_t comm = nullptr;
  if (weftCommSplit(me.comm, 0, me.rank, &comm, &config) != weftSuccess) return 2;
  constexpr size_t kCount = 300000;
  std::vector<const float*> addresses;
  const DeviceStream stream;
  for (int round = 0; round < 3; ++round) {
    DeviceArray<float> send(Values(kCount, static_cast<float>(10 * round + me.rank)));
    DeviceArray<float> all(kCount * static_cast<size_t>(me.size));
    addresses.push_back(send.data());
    if (weftAllGather(send.data(), all.data(), kCount, weftFloat, comm, stream.weft())) return 3;
    stream.synchronize();
    weftResult_t health = weftSuccess;
    if (weftCommGetAsyncError(comm, &health) || health) {
      std::fprintf(stderr, "rank %d: %s\n", me.rank, weftGetLastError(comm));
      return 4;
    }
    Values expected;
    for (int r = 0; r < me.size; ++r)
      expected.insert(expected.end(), kCount, static_cast<float>(10 * round + r));
    if (all.get() != expected) return 5;
    float one = 1, sum = 0;  // nobody frees what another one is still reading
    if (weftAllReduce(&one, &sum, 1, weftFloat, weftSum, me.comm, nullptr)) return 6;
    send.free();
    all.free();
  }
  // Else this has tested nothing.
  if (fake.valid() && std::count(addresses.begin(), addresses.end(), addresses[0]) < 2) return 7;
  return weftCommDestroy(comm) || weftCommDestroy(me.comm);
}

TEST(MemoryDeathTest, OfAPeerThatIsFreedAndAllocatedAnewAtTheSameAddressIsMappedAgain) {
  const std::vector<int> statuses =
      run_processes(blocks(1, 3), [](Rank& me) { return cuda::driver() ? gather_from_new_buffers(me) : 77; });
  if (exited_with(statuses[0], 77)) GTEST_SKIP() << "no CUDA device";
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

class ProcessesDeathTest : public ::testing::TestWithParam<Nodes> {};

TEST_P(ProcessesDeathTest, ShareDevices) {
  const std::vector<int> statuses = run_processes(GetParam(), [](Rank& me) {
    if (!cuda::driver()) return 77;
    return gather_and_add(me);
  });
  if (exited_with(statuses[0], 77)) GTEST_SKIP() << "no CUDA device";
  for (int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

INSTANTIATE_TEST_SUITE_P(Nodes, ProcessesDeathTest, ::testing::Values(blocks(1, 3), blocks(2, 2)),
                         [](const auto& info) { return info.param.size() == 3 ? "aaa" : "aabb"; });

// ---- What the other tests rely on

void touch_device_memory() {
  const DeviceArray<char> array(1);
  *static_cast<volatile char*>(array.data()) = 1;
}

TEST(FakeDeathTest, DeviceMemoryFaultsWhereACpuTouchesIt) {
  WEFT_NEED_FAKE(fake);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(touch_device_memory(), "");
}

TEST(FakeDriver, AnAddressThatWasFreedServesDeviceMemoryAlone) {
  WEFT_NEED_FAKE(fake);
  constexpr size_t kBytes = 1234567;
  DeviceArray<char> first(kBytes);
  char* const address = first.data();
  first.free();
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  EXPECT_EQ(mmap(address, kBytes, PROT_READ | PROT_WRITE, flags, -1, 0), MAP_FAILED);
  const DeviceArray<char> second(kBytes);
  EXPECT_EQ(second.data(), address);
}

// ---- Calls that are refused

TEST(DeviceCalls, BuffersAndStreamsThatAreNotTheDevicesAreRefused) {
  WEFT_NEED_DEVICE();
  run_ranks(
      blocks(1, 1),
      [](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> good(100);
        Values on_host(100);
        const auto reduce = [&](const void* send, void* recv, size_t count, weftStream_t where) {
          return weftAllReduce(send, recv, count, weftFloat, weftSum, me.comm, where);
        };
        EXPECT_EQ(reduce(on_host.data(), good.data(), 100, stream.weft()), weftInvalidPointer);
        EXPECT_TRUE(mentions(weftGetLastError(nullptr), "sendbuff is")) << weftGetLastError(nullptr);
        EXPECT_TRUE(mentions(weftGetLastError(nullptr), "pass memory of that device"));
        EXPECT_EQ(reduce(good.data(), on_host.data(), 100, stream.weft()), weftInvalidPointer);
        EXPECT_TRUE(mentions(weftGetLastError(nullptr), "recvbuff is")) << weftGetLastError(nullptr);
        EXPECT_EQ(reduce(good.data(), good.data(), 101, stream.weft()), weftInvalidPointer);
        EXPECT_TRUE(mentions(weftGetLastError(nullptr), "ends after 400")) << weftGetLastError(nullptr);
        if (*cuda::Device::count() > 1) {
          const DeviceStream elsewhere(1);
          const DeviceArray<float> of_other(100, 1);
          EXPECT_EQ(reduce(good.data(), good.data(), 100, elsewhere.weft()), weftInvalidArgument);
          EXPECT_TRUE(mentions(weftGetLastError(nullptr), "another device or context"));
          EXPECT_EQ(reduce(of_other.data(), good.data(), 100, stream.weft()), weftInvalidPointer);
          EXPECT_TRUE(mentions(weftGetLastError(nullptr), "memory of CUDA device 1"));
        }
        good.free();
        EXPECT_EQ(reduce(good.data(), good.data(), 0, stream.weft()), weftSuccess);
        stream.synchronize();
      },
      on_device);
}

// ---- What goes wrong under way

TEST(DeviceFailures, ADriversErrorFailsTheCommunicatorAndLetsTheStreamGoOn) {
  WEFT_NEED_FAKE(fake);
  for (const char* call : {"cuMemcpyAsync", "cuEventRecord", "cuEventQuery"}) {
    run_ranks(
        blocks(1, 1),
        [&](Rank& me) {
          const DeviceStream stream;
          const DeviceArray<float> send(100), recv(100);
          fake.fail_after(call, 0, cuda::kIllegalAddress);
          (void)weftAllReduce(send.data(), recv.data(), 100, weftFloat, weftSum, me.comm, stream.weft());
          stream.synchronize();
          weftResult_t health = weftSuccess;
          WEFT_OK(weftCommGetAsyncError(me.comm, &health));
          EXPECT_EQ(health, weftUnhandledCudaError) << call;
          EXPECT_TRUE(mentions(weftGetLastError(me.comm), "illegal memory access"))
              << weftGetLastError(me.comm);
          EXPECT_TRUE(mentions(weftGetLastError(me.comm), "AllReduce of 100 float"))
              << weftGetLastError(me.comm);
        },
        on_device);
  }
}

// Of several ranks, after so many calls that went well.
TEST(DeviceFailures, ADriversErrorInTheMiddleEndsTheOperationOnAllRanks) {
  WEFT_NEED_FAKE(fake);
  for (const char* call : {"cuMemcpyAsync", "cuEventRecord", "cuEventQuery", "cuLaunchKernel"})
    for (const int good : {0, 1, 2}) {
      std::atomic<int> told_by_the_driver{0};
      std::barrier all(3);
      const uint64_t launches = fake.calls("cuLaunchKernel");
      run_ranks(
          blocks(1, 3),
          [&](Rank& me) {
            const DeviceStream stream;
            const size_t count = 300000;
            const DeviceArray<float> send(count), recv(count);
            all.arrive_and_wait();
            if (me.rank == 0) fake.fail_after(call, good, cuda::kIllegalAddress);
            all.arrive_and_wait();
            (void)weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, me.comm, stream.weft());
            stream.synchronize();
            if (std::string(call) == "cuLaunchKernel" && fake.calls("cuLaunchKernel") == launches) {
              all.arrive_and_wait();
              if (me.rank == 0) fake.fail_after(call, 0, cuda::kSuccess);
              return;  // reductions are the CPU's
            }
            weftResult_t health = weftSuccess;
            EXPECT_TRUE(eventually([&] {
              return weftCommGetAsyncError(me.comm, &health) != weftSuccess || health != weftSuccess;
            })) << call;
            EXPECT_TRUE(health == weftUnhandledCudaError || health == weftRemoteError) << call << health;
            EXPECT_TRUE(mentions(weftGetLastError(me.comm), "illegal memory access"))
                << weftGetLastError(me.comm);
            told_by_the_driver += health == weftUnhandledCudaError;
            all.arrive_and_wait();
          },
          on_device);
      if (fake.calls("cuLaunchKernel") > launches) {
        EXPECT_GE(told_by_the_driver, 1) << call;
      }
    }
}

TEST(DeviceFailures, ABufferThatIsFreedWhileInUseIsAnErrorThatNamesIt) {
  WEFT_NEED_FAKE(fake);
  run_ranks(
      blocks(1, 1),
      [&](Rank& me) {
        const DeviceStream stream;
        DeviceArray<float> send(100), recv(100);
        HeldStream held(stream);  // until the buffer is gone
        if (!held.held()) GTEST_SKIP() << "without stream memory operations a call waits for its stream";
        WEFT_OK(weftAllReduce(send.data(), recv.data(), 100, weftFloat, weftSum, me.comm, stream.weft()));
        send.free();
        held.let_go();
        stream.synchronize();
        weftResult_t health = weftSuccess;
        WEFT_OK(weftCommGetAsyncError(me.comm, &health));
        EXPECT_EQ(health, weftInvalidPointer);
        EXPECT_TRUE(mentions(weftGetLastError(me.comm), "sendbuff")) << weftGetLastError(me.comm);
        EXPECT_TRUE(mentions(weftGetLastError(me.comm), "freed")) << weftGetLastError(me.comm);
      },
      on_device);
}

TEST(DeviceFailures, AnAbortLetsAStreamGoOnThatWaitsForAPeer) {
  WEFT_NEED_FAKE(fake);
  run_ranks(
      blocks(2, 1),
      [](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(1000), recv(1000);
        if (me.rank == 0) {  // the other never comes
          const weftResult_t called =
              weftAllReduce(send.data(), recv.data(), 1000, weftFloat, weftSum, me.comm, stream.weft());
          EXPECT_TRUE(called == weftSuccess || called == weftRemoteError);
          WEFT_OK(weftCommAbort(me.comm));
          me.comm = nullptr;
          stream.synchronize();
        } else {
          weftResult_t health = weftSuccess;
          while (health == weftSuccess) {
            WEFT_OK(weftCommGetAsyncError(me.comm, &health));
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          EXPECT_EQ(health, weftRemoteError);
        }
      },
      on_device);
}

TEST(DeviceFailures, AStreamThatHasDiedBeforeTheOperationFailsItAndIsNotWaitedFor) {
  WEFT_NEED_FAKE(fake);
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "a call waits for its stream";
  run_ranks(
      blocks(1, 1),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(100), recv(100);
        HeldStream held(stream);
        WEFT_OK(weftAllReduce(send.data(), recv.data(), 100, weftFloat, weftSum, me.comm, stream.weft()));
        fake.break_device(0, cuda::kIllegalAddress);
        EXPECT_EQ(weftCommFinalize(me.comm), weftUnhandledCudaError);
        const std::string why = weftGetLastError(me.comm);
        EXPECT_TRUE(mentions(why.c_str(), "illegal memory access")) << why;
        EXPECT_TRUE(mentions(why.c_str(), "AllReduce of 100 float")) << why;
        EXPECT_EQ(weftCommDestroy(me.comm), weftSuccess);
        me.comm = nullptr;
        held.let_go();
        fake.break_device(0, cuda::kSuccess);
        stream.synchronize();
      },
      on_device);
}

// The call said that its stream was none.
TEST(DeviceFailures, ACallOnADeviceThatHasDiedSaysSo) {
  WEFT_NEED_FAKE(fake);
  run_ranks(
      blocks(1, 1),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(100), recv(100);
        fake.break_device(0, cuda::kIllegalAddress);
        EXPECT_EQ(weftAllReduce(send.data(), recv.data(), 100, weftFloat, weftSum, me.comm, stream.weft()),
                  weftUnhandledCudaError);
        EXPECT_TRUE(mentions(weftGetLastError(nullptr), "illegal memory access"))
            << weftGetLastError(nullptr);
        fake.break_device(0, cuda::kSuccess);
      },
      on_device);
}

TEST(DeviceFailures, AStreamThatDoesNotComeIsWaitedForUntilTheDeadlineWhenACommunicatorGoes) {
  WEFT_NEED_DEVICE();
  if (!(*cuda::Device::open(0))->has_memory_operations()) GTEST_SKIP() << "a call waits for its stream";
  run_ranks(
      blocks(1, 1),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> send(100), recv(100);
        HeldStream held(stream);
        WEFT_OK(weftAllReduce(send.data(), recv.data(), 100, weftFloat, weftSum, me.comm, stream.weft()));
        EXPECT_EQ(weftCommFinalize(me.comm), weftTimeout);
        const std::string why = weftGetLastError(me.comm);
        EXPECT_TRUE(mentions(why.c_str(), "stream has not come to it")) << why;
        EXPECT_TRUE(mentions(why.c_str(), "AllReduce of 100 float")) << why;
        held.let_go();
        stream.synchronize();  // goes on
      },
      [](weftConfig_t& config) {
        config.device = 0;
        config.timeoutSeconds = 0.2;
      });
}

TEST(DeviceFailures, HostMemoryOnOneRankAndGpuMemoryOnAnotherIsToldByName) {
  WEFT_NEED_DEVICE();
  run_ranks(blocks(1, 2), [](Rank& me) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = me.rank == 0 ? 0 : WEFT_DEVICE_HOST;
    weftComm_t comm;
    WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, &config));
    const size_t count = 1 << 20;
    weftResult_t health = weftSuccess;
    if (me.rank == 0) {
      const DeviceStream stream;
      const DeviceArray<float> buffer(2 * count);
      (void)weftAllGather(buffer.data(), buffer.data(), count, weftFloat, comm, stream.weft());
      stream.synchronize();
      WEFT_OK(weftCommGetAsyncError(comm, &health));
    } else {
      Values buffer(2 * count);
      health = weftAllGather(buffer.data() + count, buffer.data(), count, weftFloat, comm, nullptr);
    }
    EXPECT_TRUE(health == weftMismatch || health == weftRemoteError) << health;
    EXPECT_TRUE(mentions(weftGetLastError(comm), "GPU memory")) << weftGetLastError(comm);
    WEFT_OK(weftCommDestroy(comm));
  });
}

// ---- What takes no kernel, and no copy that the driver would have to make wait

TEST(DeviceCounts, MovingDataTakesNoKernelAndEveryCopyIsPinned) {
  WEFT_NEED_FAKE(fake);
  uint64_t launches = 0, pageable = 0;
  run_ranks(
      blocks(2, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const size_t count = 100000;
        const DeviceArray<float> send(4 * count), recv(4 * count);
        float round = 0, all = 0;
        const auto meet = [&] {  // all are here, and nobody goes on before
          weftConfig_t config = WEFT_CONFIG_INITIALIZER;
          config.device = WEFT_DEVICE_HOST;
          weftComm_t host;
          WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &host, &config));
          WEFT_OK(weftAllReduce(&round, &all, 1, weftFloat, weftSum, host, nullptr));
          WEFT_OK(weftCommDestroy(host));
        };
        meet();
        if (me.rank == 0) {
          launches = fake.calls("cuLaunchKernel");
          pageable = fake.calls("pageable copy");
        }
        meet();
        WEFT_OK(weftAllGather(send.data(), recv.data(), count, weftFloat, me.comm, stream.weft()));
        WEFT_OK(weftBcast(recv.data(), count, weftFloat, 1, me.comm, stream.weft()));
        WEFT_OK(weftAlltoAll(send.data(), recv.data(), count, weftFloat, me.comm, stream.weft()));
        WEFT_OK(weftGather(send.data(), recv.data(), count, weftFloat, 1, me.comm, stream.weft()));
        WEFT_OK(weftScatter(send.data(), recv.data(), count, weftFloat, 1, me.comm, stream.weft()));
        WEFT_OK(weftGroupStart());
        WEFT_OK(weftSend(send.data(), count, weftFloat, (me.rank + 1) % 4, me.comm, stream.weft()));
        WEFT_OK(weftRecv(recv.data(), count, weftFloat, (me.rank + 3) % 4, me.comm, stream.weft()));
        WEFT_OK(weftGroupEnd());
        stream.synchronize();
        meet();
        if (me.rank == 0) {
          EXPECT_EQ(fake.calls("cuLaunchKernel"), launches);
          EXPECT_EQ(fake.calls("pageable copy"), pageable);
        }
      },
      on_device);
}

// WEFT_CUDA_BLOCKS bounds a launch, so that launches of one rank must not run beside each other.
TEST(DeviceCounts, KernelsOfARankFollowEachOther) {
  WEFT_NEED_FAKE(fake);
  const int ranks = 4;
  const uint64_t launches = fake.calls("cuLaunchKernel"), streams = fake.calls("stream with kernels");
  run_ranks(
      blocks(2, ranks / 2),
      [](Rank& me) {
        const DeviceStream stream;
        const size_t count = 1 << 22;  // so long that a plan of several lanes is the quickest
        const DeviceArray<float> send(count), recv(count);
        for (int round = 0; round < 2; ++round)
          WEFT_OK(weftAllReduce(send.data(), recv.data(), count, weftFloat, weftSum, me.comm, stream.weft()));
        stream.synchronize();
      },
      on_device);
  const uint64_t launched = fake.calls("cuLaunchKernel") - launches;
  if (launched == 0) GTEST_SKIP() << "reductions are the CPU's";
  EXPECT_GT(launched, uint64_t{2 * ranks});  // several lanes
  EXPECT_EQ(fake.calls("stream with kernels") - streams, uint64_t{ranks});
}

// The others are in the middle of the same creation.
TEST(DeviceCreation, ThatFailsOnOneRankFailsOnAllWithItsReason) {
  WEFT_NEED_FAKE(fake);
  weftUniqueId id;
  WEFT_OK(weftGetUniqueId(&id));
  const RanksAtWork at_work;
  run_ranks(
      blocks(1, 1), [](Rank&) {}, on_device);  // the device has been looked at
  fake.fail_after("cuStreamCreate", 0, cuda::kOutOfMemory);
  std::string errors[2];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.hostId = "a";
      config.device = 0;
      config.timeoutSeconds = 600;
      weftComm_t comm = nullptr;
      if (weftCommInitRankConfig(&comm, 2, id, rank, &config) != weftSuccess)
        errors[rank] = weftGetLastError(nullptr);
      EXPECT_EQ(comm, nullptr);
    });
  for (std::thread& rank : ranks) rank.join();
  const int failed = errors[0].find("reports: ") == std::string::npos ? 0 : 1;
  EXPECT_TRUE(mentions(errors[failed].c_str(), "cuStreamCreateWithPriority")) << errors[failed];
  const std::string told = errors[1 - failed];
  EXPECT_NE(told.find("rank " + std::to_string(failed) + " reports: "), std::string::npos) << told;
  EXPECT_NE(told.find("cuStreamCreateWithPriority"), std::string::npos) << told;
}

}  // namespace
}  // namespace weft::testing::misuse_test
