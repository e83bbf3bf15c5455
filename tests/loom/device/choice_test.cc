#include "device/choice.h"

#include <cstdlib>

#include "support.h"

namespace loom::testing {
namespace {

using device::FoundGpu;
using device::Wanted;

const FoundGpu kFirst{0, "CUDA device 0 (an H100)", "", 0, 0}, kNone{-1, "", "no driver", 0, 0};

/// The beginning of a fat binary, which is all that the fake driver looks at.
constexpr uint32_t kAnyFatBinary[] = {0xba55ed50, 0};
const cuda::KernelImage kAnyImages[] = {{"test", std::as_bytes(std::span(kAnyFatBinary))}};

FoundGpu look(Wanted wanted, int local_rank, cuda::ElementType type) {
  return device::look_for_gpu(wanted, local_rank, type, kAnyImages);
}

TEST(DeviceChoice, ARankTakesTheGpuOfItsLocalRankAndSharesWhereThereAreFewer) {
  for (const auto& [local_rank, ordinal] : {std::pair{0, 0}, {1, 1}, {2, 0}, {5, 1}})
    EXPECT_EQ(look(Wanted::automatic, local_rank, cuda::ElementType::bf16).ordinal, ordinal);
  EXPECT_EQ(look(Wanted::cuda, 0, cuda::ElementType::fp32).description,
            "CUDA device 0 (fake device, compute capability 9.0)");
  EXPECT_EQ(look(Wanted::cpu, 0, cuda::ElementType::fp32).ordinal, -1);
}

TEST(DeviceChoice, WhatAGpuHasIsTold) {
  const FoundGpu first = look(Wanted::cuda, 0, cuda::ElementType::fp32),
                 second = look(Wanted::cuda, 1, cuda::ElementType::fp32),
                 again = look(Wanted::cuda, 2, cuda::ElementType::fp32);
  EXPECT_GT(first.free_bytes, int64_t{1} << 30);
  EXPECT_NE(first.identity, second.identity);
  EXPECT_EQ(first.identity, again.identity);
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

/// What a process says with a setting that takes something away.
#define EXPECT_LACKS(variable, value, type, words)                             \
  EXPECT_EXIT(                                                                 \
      {                                                                        \
        setenv(variable, value, 1);                                            \
        const FoundGpu found = look(Wanted::cuda, 0, cuda::ElementType::type); \
        std::fprintf(stderr, "%s\n", found.why_not.c_str());                   \
        std::_Exit(found.ordinal < 0 ? 1 : 0);                                 \
      },                                                                       \
      ::testing::ExitedWithCode(1), words)

TEST(DeviceChoiceDeathTest, WhatTheFirstStepWouldLackIsFoundBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_LACKS("FAKE_CUDA_CAPABILITY", "75", bf16,
               "compute capability 7.5.* has no bf16, which compute capability 8.0 brought");
  EXPECT_LACKS("LOOM_CUBLASLT_LIBRARY", "/nowhere/libcublasLt.so", fp32, "cuBLASLt.* cannot be loaded");
  EXPECT_LACKS("FAKE_CUBLASLT_MAJOR", "11", fp32, "is cuBLASLt 11.1, Loom knows versions 12 to 13");
  EXPECT_LACKS("FAKE_CUDA_KERNELS", "0", fp32, "this build's GPU kernels are for other devices");
}

TEST(DeviceChoiceDeathTest, AnElementTypeThatTheDeviceHas) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("FAKE_CUDA_CAPABILITY", "75", 1);
        std::_Exit(look(Wanted::cuda, 0, cuda::ElementType::fp16).ordinal);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(DeviceChoice, ABuildWithoutKernels) {
  const FoundGpu none = device::look_for_gpu(Wanted::cuda, 0, cuda::ElementType::fp32, {});
  EXPECT_EQ(none.ordinal, -1);
  EXPECT_NE(none.why_not.find("without nvcc"), std::string::npos) << none.why_not;
}

}  // namespace
}  // namespace loom::testing
