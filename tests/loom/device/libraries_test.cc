// A library that is missing, or is another one, ends in a sentence. Libraries are loaded once in a process,
// so each of these tests runs its statement in a process of its own.
#include <cstdio>

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

}  // namespace
}  // namespace loom::testing
