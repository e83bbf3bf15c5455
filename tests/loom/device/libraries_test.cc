// A library that is missing, or is another one, ends in a sentence. Libraries are loaded once in a process,
// so each of these tests runs its statement in a process of its own.
#include <cstdio>

#include "device/cuda/attention_graph.h"
#include "device/cuda/device.h"
#include "device/cuda/products.h"
#include "loom/device/fakes.h"

namespace loom::testing {
namespace {

class LibrariesDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// Ends the process with 1 and the sentence on stderr, or with 0.
template <typename Outcome>
[[noreturn]] void say(const Outcome& outcome) {
  if (!outcome.ok()) std::fprintf(stderr, "%s\n", outcome.status().message().c_str());
  std::_Exit(outcome.ok() ? 0 : 1);
}

#define EXPECT_SAYS(variable, value, call, words) \
  EXPECT_EXIT(                                    \
      {                                           \
        setenv(variable, value, 1);               \
        say(call);                                \
      },                                          \
      ::testing::ExitedWithCode(1), words)

TEST_F(LibrariesDeathTest, NoDriver) {
  EXPECT_SAYS("WEFT_CUDA_LIBRARY", "/nowhere/libcuda.so.1", cuda::Device::open(0),
              "CUDA's driver cannot be loaded .*install NVIDIA's driver");
}
TEST_F(LibrariesDeathTest, NoDevice) {
  EXPECT_SAYS("FAKE_CUDA_DEVICES", "0", cuda::Device::open(0), "finds no CUDA device: see nvidia-smi");
}
TEST_F(LibrariesDeathTest, ADeviceWithAddressesOfItsOwn) {
  EXPECT_SAYS("FAKE_CUDA_UNADDRESSED", "0", cuda::Device::open(0), "no addresses in common with the host");
}
TEST_F(LibrariesDeathTest, TooLittleMemory) {
  EXPECT_SAYS("FAKE_CUDA_MEMORY_MIB", "100", (*cuda::Device::open(0))->allocate(int64_t{1} << 30),
              "has too little memory: 1.00 GiB are needed, and 0.10 GiB of 0.10 are free");
}
TEST_F(LibrariesDeathTest, NoDriverForCublasLt) {
  EXPECT_SAYS("WEFT_CUDA_LIBRARY", "/nowhere/libcuda.so.1", cuda::cublaslt(),
              "CUDA's driver cannot be loaded");
}
TEST_F(LibrariesDeathTest, NoCublasLt) {
  EXPECT_SAYS("LOOM_CUBLASLT_LIBRARY", "/nowhere/libcublasLt.so.13", cuda::cublaslt(),
              "cannot be loaded .*nowhere.*or name libcublasLt.so in LOOM_CUBLASLT_LIBRARY");
}
TEST_F(LibrariesDeathTest, ACublasLtOfAnotherMajorVersion) {
  EXPECT_SAYS("FAKE_CUBLASLT_MAJOR", "11", cuda::cublaslt(),
              "is cuBLASLt 11.1, Loom knows versions 12 to 13");
  EXPECT_SAYS("FAKE_CUBLASLT_MAJOR", "14", cuda::cublaslt(),
              "is cuBLASLt 14.1, Loom knows versions 12 to 13");
}
TEST_F(LibrariesDeathTest, ALibraryThatIsNoCublasLt) {
  EXPECT_SAYS("LOOM_CUBLASLT_LIBRARY", WEFT_FAKE_CUDA, cuda::cublaslt(), "is cuBLASLt 0.0");
}

TEST_F(LibrariesDeathTest, NoCudnn) {
  EXPECT_SAYS(
      "LOOM_CUDNN_LIBRARY", "/nowhere/libcudnn.so.9", cuda::cudnn(),
      "cuDNN cannot be loaded .*nowhere.*install the Python package nvidia-cudnn-cu13, or name libcudnn.so.9 "
      "in LOOM_CUDNN_LIBRARY");
  EXPECT_SAYS("LOOM_CUBLASLT_LIBRARY", "/nowhere/libcublasLt.so.13", cuda::cudnn(),
              "cuBLASLt, which multiplies");
}
TEST_F(LibrariesDeathTest, ACudnnOfAnotherVersion) {
  EXPECT_SAYS("FAKE_CUDNN_VERSION", "80907", cuda::cudnn(),
              "is cuDNN 8.9, Loom knows version 9 from 9.10 on");
  EXPECT_SAYS("FAKE_CUDNN_VERSION", "90900", cuda::cudnn(),
              "is cuDNN 9.9, Loom knows version 9 from 9.10 on");
  EXPECT_SAYS("FAKE_CUDNN_VERSION", "100000", cuda::cudnn(), "is cuDNN 10.0, Loom knows version 9 from");
  EXPECT_SAYS("LOOM_CUDNN_LIBRARY", WEFT_FAKE_CUDA, cuda::cudnn(), "is cuDNN 0.0");
}
TEST_F(LibrariesDeathTest, ACudnnForAnotherCuda) {
  EXPECT_SAYS("FAKE_CUDNN_CUDART", "12090", cuda::cudnn(), "is for CUDA 12, and cuBLASLt .* for CUDA 13");
}
TEST_F(LibrariesDeathTest, ACudnnWithoutAnEngine) {
  const auto planned = [] {
    (void)cuda::cudnn();
    const auto described = cuda::describe_dnn_device("{}");
    const cuda::AttentionGraphShape shape{cuda::ElementType::bf16, 4, 16, 2, 2, 64};
    return cuda::AttentionForward::create(shape, {.device = described->get()});
  };
  EXPECT_SAYS("FAKE_CUDNN_ENGINES", "0", planned(),
              "attention of 4 .* 16 tokens with 2 heads of 64 .*cuDNN has no engine for it, or does not find "
              "libnvrtc");
}

}  // namespace
}  // namespace loom::testing
