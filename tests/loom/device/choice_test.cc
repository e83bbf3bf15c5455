#include "device/choice.h"

#include <cstdlib>

#include "support.h"

namespace loom::testing {
namespace {

using device::FoundGpu;
using device::Wanted;

const FoundGpu kFirst{0, "CUDA device 0 (an H100)", ""}, kNone{-1, "", "no driver"};

TEST(DeviceChoice, ARankTakesTheGpuOfItsLocalRankAndSharesWhereThereAreFewer) {
  for (const auto& [local_rank, ordinal] : {std::pair{0, 0}, {1, 1}, {2, 0}, {5, 1}})
    EXPECT_EQ(device::look_for_gpu(Wanted::automatic, local_rank, cuda::ElementType::bf16).ordinal, ordinal);
  EXPECT_EQ(device::look_for_gpu(Wanted::cuda, 0, cuda::ElementType::fp32).description,
            "CUDA device 0 (fake device, compute capability 9.0)");
  EXPECT_EQ(device::look_for_gpu(Wanted::cpu, 0, cuda::ElementType::fp32).ordinal, -1);
}

TEST(DeviceChoice, AllRanksHaveAGpuOrNoneUsesIt) {
  std::string reason;
  const FoundGpu all[] = {kFirst, kFirst}, some[] = {kFirst, kNone}, none[] = {kNone, kNone};
  EXPECT_TRUE(*device::computes_on_gpus(Wanted::automatic, all, reason));
  EXPECT_TRUE(*device::computes_on_gpus(Wanted::cuda, all, reason));
  EXPECT_FALSE(*device::computes_on_gpus(Wanted::cpu, all, reason));
  EXPECT_EQ(reason, "");
  EXPECT_FALSE(*device::computes_on_gpus(Wanted::automatic, some, reason));
  EXPECT_EQ(reason, "rank 1 has no GPU: no driver");
  EXPECT_FALSE(*device::computes_on_gpus(Wanted::automatic, none, reason));
}

TEST(DeviceChoice, ARankWithoutAGpuAmongRanksWithOneIsNamed) {
  std::string reason;
  const FoundGpu some[] = {kNone, kFirst}, none[] = {kNone};
  EXPECT_TRUE(
      fails_with(device::computes_on_gpus(Wanted::cuda, some, reason), Code::unsupported,
                 "parallel.device is cuda, but rank 0 has no GPU: no driver; rank 1 has CUDA device 0"));
  EXPECT_TRUE(fails_with(device::computes_on_gpus(Wanted::cuda, none, reason), Code::unsupported,
                         "parallel.device is cuda, but rank 0 has no GPU: no driver"));
}

TEST(DeviceChoiceDeathTest, AnElementTypeThatTheDeviceLacks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("FAKE_CUDA_CAPABILITY", "75", 1);
        const FoundGpu bf16 = device::look_for_gpu(Wanted::cuda, 0, cuda::ElementType::bf16);
        const FoundGpu fp16 = device::look_for_gpu(Wanted::cuda, 0, cuda::ElementType::fp16);
        std::fprintf(stderr, "%s\n", bf16.why_not.c_str());
        std::_Exit(fp16.ordinal);
      },
      ::testing::ExitedWithCode(0),
      "compute capability 7.5.* has no bf16, which compute capability 8.0 brought");
}

}  // namespace
}  // namespace loom::testing
