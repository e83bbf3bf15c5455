// Training on GPUs by the command, on the fake driver: what ends in a sentence before the first step.
#include "command/processes.h"
#include "device/cuda/kernels/kernel_images.h"

namespace loom::testing {
namespace {

/// Where the command finds a driver, cuBLASLt, and what stands in for the kernels.
const std::string kFakes =
    "WEFT_CUDA_LIBRARY=" WEFT_FAKE_CUDA " LOOM_CUBLASLT_LIBRARY=" LOOM_FAKE_CUBLASLT " ";

class OnGpus : public Command {
 protected:
  /// `settings` come before the command, as the shell has them.
  Outcome trained(const std::string& settings, const std::string& keys) const {
    return shell(kFakes + settings + " " + train(keys));
  }
  void expect_refused(const std::string& settings, const std::string& keys, const std::string& words) const {
    const Outcome outcome = trained(settings, "--parallel.device=cuda " + keys);
    EXPECT_EQ(outcome.code, 1) << outcome.text;
    EXPECT_NE(outcome.text.find(words), std::string::npos) << outcome.text;
    EXPECT_EQ(outcome.text.find("step 1/"), std::string::npos) << outcome.text;
  }
};

TEST_F(OnGpus, ADriverOrCublasLtThatIsMissing) {
  expect_refused("WEFT_CUDA_LIBRARY=/nowhere/libcuda.so.1", "",
                 "parallel.device is cuda, but rank 0 has no GPU: CUDA's driver cannot be loaded");
  expect_refused("LOOM_CUBLASLT_LIBRARY=/nowhere/libcublasLt.so", "", "no GPU: cuBLASLt, which multiplies");
  expect_refused("FAKE_CUBLASLT_MAJOR=11", "", "is cuBLASLt 11.1, Loom knows versions 12 to 13");
}

TEST_F(OnGpus, AGpuThatCannotTrainTheModel) {
  expect_refused("FAKE_CUDA_CAPABILITY=75", "--parallel.precision=bf16", "has no bf16");
  if (cuda::kernel_images().empty()) return expect_refused("", "", "without nvcc");
  expect_refused("FAKE_CUDA_KERNELS=0", "", "this build's GPU kernels are for other devices");
  expect_refused("FAKE_CUDA_MEMORY_MIB=64", "--data.microbatch=8 --parallel.activation_checkpointing=none",
                 "a rank's arena needs ");
}

TEST_F(OnGpus, ARankWithoutAGpuAmongRanksWithOne) {
  if (cuda::kernel_images().empty()) GTEST_SKIP() << "this build has no GPU kernels";
  const std::string ranks =
      "sh -c 'FAKE_CUDA_DEVICES=$((1 - WEFT_RANK)) exec " LOOM_PROGRAM " train " + config();
  const std::string run = kFakes + WEFT_RUN " -n 2 --no-label --timeout 120 " + ranks;
  const Outcome asked = shell(run + " --parallel.device=cuda'");
  EXPECT_NE(asked.code, 0);
  EXPECT_NE(asked.text.find("rank 1 has no GPU: "), std::string::npos) << asked.text;
  EXPECT_NE(asked.text.find("start ranks only where GPUs are"), std::string::npos) << asked.text;
  const Outcome left_open = shell(run + " --parallel.device=auto'");
  EXPECT_EQ(left_open.code, 0) << left_open.text;
  EXPECT_NE(left_open.text.find("note: all ranks compute on CPUs: rank 1 has no GPU: "), std::string::npos)
      << left_open.text;
}

TEST_F(OnGpus, AutoTrainsOnCpusWhereThereIsNoGpu) {
  const Outcome outcome = trained("FAKE_CUDA_DEVICES=0", "--parallel.device=auto --run.steps=2");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("computes on CPUs, for rank 0 has no GPU: "), std::string::npos)
      << outcome.text;
  EXPECT_NE(outcome.text.find("\"device\": \"cpu\""), std::string::npos) << "as the run prints its config";
  EXPECT_NE(outcome.text.find("step 2/2"), std::string::npos) << outcome.text;
}

}  // namespace
}  // namespace loom::testing
