// What the ranks of a run make of the GPUs that each has found.
#include "train/devices.h"

#include "support.h"

namespace loom::testing {
namespace {

using train::Config;
using train::Devices;
using train::ToldGpu;

constexpr int64_t kGiB = 1 << 30;

/// A rank of machine `machine` that has found the GPU of that number, with so many bytes free.
ToldGpu gpu(uint64_t machine, int ordinal, int64_t free_bytes, const char* card = "(H100)") {
  return train::told_of({ordinal, fmt::format("CUDA device {} {}", ordinal, card), "", free_bytes,
                         static_cast<uint64_t>(ordinal)},
                        machine);
}
ToldGpu no_gpu(uint64_t machine) { return train::told_of({-1, "", "no driver", 0, 0}, machine); }

Config config_with(const std::string& device) {
  Config config;
  config.parallel.device = device;
  return config;
}

TEST(Devices, EachRankHasItsOwnGpuAndItsMemory) {
  const ToldGpu told[] = {gpu(1, 0, 8 * kGiB), gpu(1, 1, 6 * kGiB), gpu(2, 0, 8 * kGiB)};
  for (int rank = 0; rank < 3; ++rank) {
    const Result<Devices> devices = train::devices_of(config_with("auto"), told, rank);
    LOOM_ASSERT_OK(devices);
    EXPECT_EQ(devices->gpu, told[rank].ordinal);
    EXPECT_EQ(devices->description, told[rank].description);
    EXPECT_EQ(devices->note, "");
    EXPECT_GT(devices->memory_bytes, 5 * kGiB) << "of the GPU with the least";
    EXPECT_LT(devices->memory_bytes, 6 * kGiB);
  }
}

TEST(Devices, RanksThatShareAGpuShareItsMemory) {
  const ToldGpu told[] = {gpu(1, 0, 8 * kGiB), gpu(1, 0, 8 * kGiB), gpu(2, 0, 8 * kGiB)};
  const Result<Devices> devices = train::devices_of(config_with("cuda"), told, 2);
  LOOM_ASSERT_OK(devices);
  EXPECT_GT(devices->memory_bytes, 7 * kGiB / 2);
  EXPECT_LT(devices->memory_bytes, 4 * kGiB);
  const ToldGpu full[] = {gpu(1, 0, 1 << 20)};
  EXPECT_EQ(train::devices_of(config_with("cuda"), full, 0)->memory_bytes, 0);
}

TEST(Devices, AutoSaysOnceWhyRanksWithAGpuDoNotUseIt) {
  const ToldGpu some[] = {gpu(1, 0, kGiB), no_gpu(2)}, none[] = {no_gpu(1), no_gpu(2)};
  const Result<Devices> devices = train::devices_of(config_with("auto"), some, 0);
  LOOM_ASSERT_OK(devices);
  EXPECT_EQ(devices->gpu, -1);
  EXPECT_EQ(devices->description, "CPUs");
  EXPECT_EQ(devices->note, "all ranks compute on CPUs: rank 1 has no GPU: no driver");
  const Result<Devices> without = train::devices_of(config_with("auto"), none, 0);
  LOOM_ASSERT_OK(without);
  EXPECT_EQ(without->note, "") << "nobody misses what nobody has";
  EXPECT_EQ(without->reason, "rank 0 has no GPU: no driver");
  EXPECT_TRUE(fails_with(train::devices_of(config_with("cuda"), some, 0), Code::unsupported,
                         "rank 1 has no GPU: no driver; rank 0 has CUDA device 0 (H100)"));
}

TEST(Devices, CardsThatMayRoundDifferentlyAreNamed) {
  const ToldGpu mixed[] = {gpu(1, 0, kGiB), gpu(2, 3, kGiB, "(A100)")};
  Config config = config_with("cuda");
  const Result<Devices> devices = train::devices_of(config, mixed, 1);
  LOOM_ASSERT_OK(devices);
  EXPECT_NE(devices->note.find("rank 0 computes on CUDA device 0 (H100), rank 1 on CUDA device 3 (A100)"),
            std::string::npos)
      << devices->note;
  config.parallel.strict = true;
  EXPECT_TRUE(fails_with(train::devices_of(config, mixed, 1), Code::unsupported, "parallel.strict: rank 0"));
}

}  // namespace
}  // namespace loom::testing
