// Collectives in one kernel that reads and writes the buffers of other ranks, on the fake driver: ranks of
// one process with one device and with two, ranks of several processes, rows of long and short calls, and
// what calls cost.
#include <cstring>
#include <memory>
#include <random>

#include "api/processes.h"
#include "api/ranks.h"
#include "cuda/collective_calls.h"
#include "cuda/plan_path.h"

namespace weft::testing::exposed_plan_test {
namespace {

using namespace plan_paths;
using collective_calls::call;
using collective_calls::given;
using collective_calls::kAllToAll;
using collective_calls::kCollectives;
using collective_calls::summed;
using collective_calls::Values;

constexpr size_t kLong = 100'003;  // floats, with a part that is no multiple of 16 bytes

/// Long and short calls of every collective, in an order that the seed gives, on two streams.
void call_in_a_row(Rank& me, uint64_t seed, int ordinal) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const DeviceStream streams[] = {DeviceStream(ordinal), DeviceStream(ordinal)};
  std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
  std::vector<std::pair<size_t, Values>> expected;
  for (int round = 0; round < 2 * kCollectives; ++round) {
    const bool is_long = random() % 3 != 0, in_place = random() % 2 == 0;
    const size_t count = is_long ? kLong : 1 + random() % 300;
    const int which = (round + static_cast<int>(seed)) % kCollectives;
    const DeviceStream& stream = streams[random() % 2];
    for (int side = 0; side < 2; ++side)
      arrays.push_back(std::make_unique<DeviceArray<float>>(count * static_cast<size_t>(me.size), ordinal));
    DeviceArray<float>&send = *arrays[arrays.size() - 2], &recv = *arrays.back();
    Values result = call(which, in_place, count, round, me, send, recv, stream.weft());
    // A long AlltoAll in place needs more scratch than kernels have.
    const bool by_steps = is_long && in_place && which == kAllToAll;
    const char* const by = !is_long ? "one_hop_kernel" : by_steps ? "direct" : "direct_kernel";
    EXPECT_EQ(algorithm_of(me.comm), by) << which << (in_place ? " in place" : "");
    expected.emplace_back(arrays.size() - 1, std::move(result));
  }
  for (const DeviceStream& stream : streams) stream.synchronize();
  for (size_t i = 0; i < expected.size(); ++i) {
    Values got = arrays[expected[i].first]->get();
    got.resize(expected[i].second.size());
    ASSERT_EQ(got, expected[i].second) << "seed " << seed << ", call " << i;
  }
}

TEST(PlanPathExposed, LongAndShortCallsInARowAreRight) {
  WEFT_NEED_PLAN_PATH();
  const auto room = static_cast<int>((*cuda::PlanKernels::of(**cuda::Device::open(0)))->resident_blocks());
  for (const int ranks : {2, 3, 4, 8}) {
    if (room / 2 / ranks <= ranks) continue;  // plans have a lane for each rank, and one more
    for (uint64_t seed = 1; seed <= (ranks == 8 ? 1u : 3u); ++seed)
      run_ranks(
          blocks(1, ranks), [&](Rank& me) { call_in_a_row(me, seed, 0); }, on_device);
  }
}

TEST(PlanPathExposed, RanksOfOneProcessWithDevicesOfTheirOwnReachEachOther) {
  WEFT_NEED_PLAN_PATH();
  if (*cuda::Device::count() < 2) GTEST_SKIP() << "this machine has one CUDA device";
  run_ranks(blocks(1, 2), [](Rank& me) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = me.rank;
    weftComm_t comm;
    WEFT_OK(weftCommSplit(me.comm, 0, me.rank, &comm, &config));
    Rank with_device{me.rank, me.size, comm};
    for (uint64_t seed = 1; seed <= 2; ++seed) call_in_a_row(with_device, seed, me.rank);
    WEFT_OK(weftCommDestroy(comm));
  });
}

/// Peers of another process do not reach a caller's buffer: it is staged.
TEST(PlanPathExposedOfProcessesDeathTest, StagesBuffersAndIsRight) {
  constexpr int kNoDevice = 77;
  const std::vector<int> statuses = run_processes(blocks(1, 2), [](Rank& me) {
    if (!can_have_processes(2)) return kNoDevice;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.device = me.rank;
    weftComm_t comm;
    if (weftCommSplit(me.comm, 0, me.rank, &comm, &config) != weftSuccess) return 2;
    Rank with_device{me.rank, me.size, comm};
    for (uint64_t seed = 1; seed <= 3; ++seed) call_in_a_row(with_device, seed, me.rank);
    if (::testing::Test::HasFailure()) return 3;
    return weftCommDestroy(comm) || weftCommDestroy(me.comm) ? 4 : 0;
  });
  if (exited_with(statuses[0], kNoDevice)) GTEST_SKIP() << "no two CUDA devices, or no plan kernels";
  for (const int status : statuses) EXPECT_TRUE(exited_with(status, 0)) << status;
}

// ---- What is not for a kernel

TEST(PlanPathExposed, TheLongestGoStepByStep) {
  WEFT_NEED_PLAN_PATH();
  run_ranks(
      blocks(1, 2),
      [](Rank& me) {
        const DeviceStream stream;
        const size_t count = (4 << 20) / sizeof(float);
        DeviceArray<float> send(given(me.rank, count + 1, 0)), recv(count + 1);
        for (const bool is_longer : {false, true, false}) {
          WEFT_OK(weftAllReduce(send.data(), recv.data(), count + is_longer, weftFloat, weftSum, me.comm,
                                stream.weft()));
          EXPECT_EQ(algorithm_of(me.comm) == "direct_kernel", !is_longer);
        }
        stream.synchronize();
        EXPECT_EQ(recv.get(), summed(2, count + 1, 0));
      },
      on_device);
}

// ---- Failures

TEST(PlanPathExposed, RanksThatCallSomethingElseAreToldWhat) {
  WEFT_NEED_PLAN_PATH();
  for (const size_t other : {size_t{16}, 2 * kLong, kLong + 1})
    expect_other_length_is_told(blocks(1, 2), kLong, other);
}

// ---- Pre-multiplied sums

/// The bits of a communicator of host memory, from a scalar of the host on one rank and of the device on the
/// other.
TEST(PlanPathExposed, PreMultipliedSumsHaveTheHostsBits) {
  WEFT_NEED_PLAN_PATH();
  for (const size_t count : {size_t{5}, size_t{3000}}) {
    std::vector<Values> of_host(2), of_kernel(2);
    const auto inputs = [&](const Rank& me) {
      Values v(count);
      std::mt19937 random(static_cast<unsigned>(me.rank + 7));
      for (float& x : v) x = static_cast<float>(random() % 100'000) / 7.0f - 5'000;
      return v;
    };
    const auto scalar_of = [](const Rank& me) { return me.rank == 0 ? 0.3f : 1.7f; };
    run_ranks(blocks(1, 2), [&](Rank& me) {
      float scalar = scalar_of(me);
      weftRedOp_t op;
      WEFT_OK(weftRedOpCreatePreMulSum(&op, &scalar, weftFloat, weftScalarHostImmediate, me.comm));
      const Values send = inputs(me);
      Values& recv = of_host[static_cast<size_t>(me.rank)];
      recv.resize(count);
      WEFT_OK(weftAllReduce(send.data(), recv.data(), count, weftFloat, op, me.comm, nullptr));
    });
    run_ranks(
        blocks(1, 2),
        [&](Rank& me) {
          const DeviceStream stream;
          float scalar = scalar_of(me);
          const DeviceArray<float> on_gpu(Values{scalar}), send(inputs(me)), recv(count);
          weftRedOp_t op;
          if (me.rank == 0)
            WEFT_OK(weftRedOpCreatePreMulSum(&op, &scalar, weftFloat, weftScalarHostImmediate, me.comm));
          else WEFT_OK(weftRedOpCreatePreMulSum(&op, on_gpu.data(), weftFloat, weftScalarDevice, me.comm));
          WEFT_OK(weftAllReduce(send.data(), recv.data(), count, weftFloat, op, me.comm, stream.weft()));
          EXPECT_EQ(algorithm_of(me.comm), "one_hop_kernel");
          stream.synchronize();
          of_kernel[static_cast<size_t>(me.rank)] = recv.get();
          EXPECT_EQ(send.get(), inputs(me));
        },
        on_device);
    for (const size_t rank : {size_t{0}, size_t{1}})
      EXPECT_EQ(std::memcmp(of_host[rank].data(), of_kernel[rank].data(), count * sizeof(float)), 0);
  }
}

// The kernel read the other device's memory itself.
TEST(PlanPathExposed, AScalarInAnotherDevicesMemoryIsCopied) {
  WEFT_NEED_PLAN_PATH();
  if (*cuda::Device::count() < 2) GTEST_SKIP() << "this machine has one CUDA device";
  constexpr size_t kCount = 100;
  run_ranks(
      blocks(1, 2),
      [&](Rank& me) {
        const DeviceStream stream;
        const DeviceArray<float> scalar(Values{3}, 1), send(Values(kCount, 2)), recv(kCount);
        weftRedOp_t op;
        WEFT_OK(weftRedOpCreatePreMulSum(&op, scalar.data(), weftFloat, weftScalarDevice, me.comm));
        WEFT_OK(weftAllReduce(send.data(), recv.data(), kCount, weftFloat, op, me.comm, stream.weft()));
        EXPECT_EQ(algorithm_of(me.comm), "one_hop_kernel");
        stream.synchronize();
        EXPECT_EQ(recv.get(), Values(kCount, 12));
      },
      on_device);
}

// ---- Driver calls

/// One launch, and before it the argument checks, which ask for the stream's context, whether it is captured,
/// and where two buffers are. The progress thread reads words in pinned memory.
TEST(PlanPathExposed, ACallIsOneLaunchAndAtMostFourMoreCalls) {
  WEFT_NEED_PLAN_PATH();
  WEFT_NEED_FAKE(fake);
  // Every 100 ms the progress thread asks the device of each rank whether it works.
  constexpr uint64_t kOfQuestions = 3 * 4 * 4;
  for (const int ranks : {2, 4})
    for (int which = 0; which < kCounted; ++which)
      for (const size_t count : {size_t{16}, kLong}) {
        const CallCounts counts = count_calls(fake, blocks(1, ranks), which, count);
        const std::string what = fmt::format("collective {} of {} floats, {} ranks", which, count, ranks);
        std::printf("%-50s caller %llu; of 10 calls of all ranks launches %llu, progress %llu\n",
                    what.c_str(), static_cast<unsigned long long>(counts.caller),
                    static_cast<unsigned long long>(counts.launches),
                    static_cast<unsigned long long>(counts.progress));
        EXPECT_EQ(counts.launches, CallCounts::kCalls * static_cast<uint64_t>(ranks)) << what;
        EXPECT_LE(counts.caller, 5u) << what;
        EXPECT_LE(counts.progress, kOfQuestions) << what;
      }
}

}  // namespace
}  // namespace weft::testing::exposed_plan_test
