// Training on GPUs by the command, on the fake driver: runs beside those on CPUs, with the kernels on the
// emulator, and what ends in a sentence before the first step.
#include "command/processes.h"
#include "device/cuda/kernels/kernel_images.h"

namespace loom::testing {
namespace {

/// Where the command finds a driver, cuBLASLt, cuDNN, and what stands in for the kernels.
const std::string kFakes = "WEFT_CUDA_LIBRARY=" WEFT_FAKE_CUDA " LOOM_CUBLASLT_LIBRARY=" LOOM_FAKE_CUBLASLT
                           " LOOM_CUDNN_LIBRARY=" LOOM_FAKE_CUDNN " ";

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

TEST_F(OnGpus, AttentionThatCudnnCannotCompute) {
  const auto refused = [&](const std::string& settings, const std::string& keys, const std::string& words) {
    expect_refused(settings, "--parallel.attention=cudnn " + keys, words);
  };
  if (!cuda::kernel_images().empty()) {
    refused("", "",
            "parallel.attention is cudnn, but cuDNN's attention takes bf16 and fp16, not fp32: set "
            "parallel.precision");
    const std::string bf16 = "--parallel.precision=bf16";
    refused("LOOM_CUDNN_LIBRARY=/nowhere/libcudnn.so.9", bf16,
            "install the Python package nvidia-cudnn-cu13, or name libcudnn.so.9 in LOOM_CUDNN_LIBRARY");
    refused("FAKE_CUDNN_VERSION=80907", bf16, "is cuDNN 8.9, Loom knows version 9 from 9.10 on");
    refused("FAKE_CUDNN_ENGINES=0", bf16, "cuDNN has no engine for it, or does not find libnvrtc.so");
    refused("", bf16 + " --model.dropout=0.1", "attention's dropout is 0.1: set model.dropout to 0");
  }
  const Outcome on_cpus = trained("", "--parallel.attention=cudnn");
  EXPECT_EQ(on_cpus.code, 1) << on_cpus.text;
  EXPECT_NE(on_cpus.text.find("parallel.attention is cudnn, which computes on GPUs"), std::string::npos)
      << on_cpus.text;
  const Outcome unknown = trained("", "--parallel.attention=flash");
  EXPECT_NE(unknown.text.find("parallel.attention is \"flash\", must be own, cudnn, auto"), std::string::npos)
      << unknown.text;
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

TEST_F(OnGpus, RanksWithTwoVersionsOfCudnn) {
  if (cuda::kernel_images().empty()) GTEST_SKIP() << "this build has no GPU kernels";
  const Outcome outcome = shell(
      kFakes +
      WEFT_RUN " -n 2 --no-label --timeout 120 sh -c 'FAKE_CUDNN_VERSION=$((91900 + WEFT_RANK)) exec " +
      train(
          "--parallel.device=cuda --parallel.precision=bf16 --model.dropout=0 --parallel.attention=cudnn'"));
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.text.find("rank 0 has cuDNN 91900, rank 1 has 91901: start all ranks with one version"),
            std::string::npos)
      << outcome.text;
}

TEST_F(OnGpus, AutoTrainsOnCpusWhereThereIsNoGpu) {
  const Outcome outcome = trained("FAKE_CUDA_DEVICES=0", "--parallel.device=auto --run.steps=2");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("computes on CPUs, for rank 0 has no GPU: "), std::string::npos)
      << outcome.text;
  EXPECT_EQ((*format::read_json(folder_ / "run/config.json"))["parallel"]["device"], "cpu")
      << "as the run stores its config";
  EXPECT_NE(outcome.text.find("step 2/2"), std::string::npos) << outcome.text;
}

/// Runs whose kernels are on the emulator.
class TrainedOnGpus : public OnGpus {
 protected:
  void SetUp() override {
    if (cuda::kernel_images().empty()) GTEST_SKIP() << "this build has no GPU kernels";
    OnGpus::SetUp();
  }
  /// The losses of a run on a device that goes on until that step, on so many ranks.
  std::vector<double> losses_of(const std::string& out, const std::string& device, int steps, int ranks = 1,
                                const std::string& more_keys = "", const std::string& words = "") {
    const std::string keys = fmt::format(
        "--run.out={} --parallel.device={} --run.steps={} --data.microbatch=4 "
        "--parallel.sharded_data_parallel_degree={}",
        folder_ / out, device, steps, ranks);
    const std::string launcher =
        ranks > 1 ? fmt::format(WEFT_RUN " -n {} --no-label --timeout 200 ", ranks) : "";
    const Outcome outcome = shell("FAKE_CUDA_KERNEL_LIBRARY=" LOOM_EMULATED " " + kFakes + launcher +
                                  train(keys + " " + more_keys));
    EXPECT_NE(outcome.text.find(words), std::string::npos) << outcome.text;
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    const std::string computes = device == "cuda" ? "computes on CUDA device 0" : "computes on CPUs";
    EXPECT_NE(outcome.text.find(computes), std::string::npos) << outcome.text;
    // Of a GPU the host only knows when it queued an instruction.
    const std::string log = get_file(folder_ / out + "/log.jsonl");
    EXPECT_TRUE(device == "cpu" || log.find("\"exposed\":null") != std::string::npos) << log;
    EXPECT_EQ(outcome.text.find("waiting") != std::string::npos, device == "cpu") << outcome.text;
    std::vector<double> values;
    for (const auto& [step, loss] : losses(folder_ / out)) values.push_back(loss);
    return values;
  }
  static void expect_near(const std::vector<double>& got, const std::vector<double>& right,
                          double tolerance = 1e-5) {
    ASSERT_EQ(got.size(), right.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], right[i], tolerance) << "step " << i;
  }
};

TEST_F(TrainedOnGpus, HaveTheLossesOfCpusAndGoOnThereAndBack) {
  const std::vector<double> right = losses_of("cpu", "cpu", 6);
  expect_near(losses_of("there", "cuda", 6), right);
  (void)losses_of("moves", "cpu", 2);
  (void)losses_of("moves", "cuda", 4);
  expect_near(losses_of("moves", "cpu", 6), right);
}

TEST_F(TrainedOnGpus, CudnnComputesAttentionAndGoesOnFromACheckpoint) {
  const std::string bf16 = "--parallel.precision=bf16 --model.dropout=0",
                    cudnn = bf16 + " --parallel.attention=cudnn", says = "cuDNN 9.19.0 computes attention";
  const std::vector<double> right = losses_of("cpu", "cpu", 4, 1, bf16);
  expect_near(losses_of("whole", "cuda", 4, 1, cudnn, says), right, 0.02);
  (void)losses_of("parts", "cuda", 2, 1, bf16 + " --parallel.attention=auto", says);
  expect_near(losses_of("parts", "cuda", 4, 1, cudnn, says), right, 0.02);
  expect_near(losses_of("ranks", "cuda", 4, 2, cudnn, says), right, 0.02);
}

TEST_F(TrainedOnGpus, AutoTakesTheKernelsWhereCudnnIsMissingAndLogsWhy) {
  const std::string keys = "--parallel.attention=auto";
  expect_near(
      losses_of("gpu", "cuda", 2, 1, keys,
                "note: attention is computed by Loom's kernels: cuDNN's attention takes bf16 and fp16"),
      losses_of("cpu", "cpu", 2));
}

TEST_F(TrainedOnGpus, HaveTheLossesOfCpusOnTwoRanks) {
  expect_near(losses_of("gpu", "cuda", 4, 2), losses_of("cpu", "cpu", 4, 2));
}

}  // namespace
}  // namespace loom::testing
