// The emulator itself: that primitives do what primitives.h says, and that errors of kernels are found.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cuda_kernels/emulator/emulator.h"

namespace loom::cuda {
namespace {

constexpr unsigned kSeeds = 6;  // every order, and random ones

LaunchShape one_block(unsigned threads, size_t shared_bytes = 0) {
  return {{1, 1, 1}, threads, shared_bytes};
}

TEST(Emulator, RunsEveryThreadOfEveryBlock) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    std::vector<int> count(2 * 3 * 5 * 64);
    emulated::run({{2, 3, 5}, 64, 0}, seed, [&] {
      const Index b = block_index(), g = grid_size();
      ++count[((b.z * g.y + b.y) * g.x + b.x) * thread_count() + thread_index().x];
    });
    for (const int n : count) EXPECT_EQ(n, 1);
  }
}

TEST(Emulator, BarriersOrderSharedMemory) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    std::vector<unsigned> out(128);
    emulated::run(one_block(128, 512), seed, [&] {
      auto* const shared = reinterpret_cast<unsigned*>(shared_memory());
      const unsigned i = thread_index().x;
      for (unsigned round = 0; round < 3; ++round) {
        shared[i] = i + 1000 * round;
        barrier();
        out[i] = shared[127 - i];
        barrier();
      }
    });
    for (unsigned i = 0; i < 128; ++i) EXPECT_EQ(out[i], 127 - i + 2000);
  }
}

TEST(Emulator, AMissingBarrierShowsInEveryOrder) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    bool stale = false;
    emulated::run(one_block(128, 512), seed, [&] {
      auto* const shared = reinterpret_cast<float*>(shared_memory());
      const unsigned i = thread_index().x;
      shared[i] = 1;
      stale |= std::isnan(shared[127 - i]);
      barrier();
    });
    EXPECT_TRUE(stale) << "seed " << seed;
  }
}

TEST(Emulator, ShufflesAndBallots) {
  emulated::run(one_block(64), 3, [&] {
    const int lane = static_cast<int>(lane_index());
    EXPECT_EQ(shuffle_xor(lane, 5), lane ^ 5);
    EXPECT_EQ(shuffle(10 * lane, 7), 70);
    EXPECT_EQ(ballot(lane % 2 == 0), 0x55555555u);
    EXPECT_EQ(warp_sum(static_cast<float>(lane)), 496.0f);
    EXPECT_EQ(warp_max(static_cast<float>(lane)), 31.0f);
  });
}

/// c[16, 8] = a[16, 16] · b[16, 8] through shared memory: a row-major, b as it is or as its transpose.
template <typename T>
void one_product(unsigned seed, bool transposed) {
  std::minstd_rand random(1);
  std::vector<T> a(256), b(128);
  for (T& x : a) x = rounded<T>(static_cast<float>(random() % 17) - 8);
  for (T& x : b) x = rounded<T>(static_cast<float>(random() % 17) - 8);
  std::vector<float> c(128);
  emulated::run(one_block(32, 1024), seed, [&] {
    T *sa = reinterpret_cast<T*>(shared_memory()), *sb = sa + 256;
    const unsigned lane = lane_index();
    copy_async(sa + lane * 8, &a[lane * 8], true);
    commit_copies();
    copy_async(sb + lane * 8, lane < 16 ? &b[lane * 8] : nullptr, lane < 16);
    commit_copies();
    wait_for_copies<0>();
    barrier();
    uint32_t fa[4], fb[4];
    load_matrices(fa, sa + lane % 16 * 16 + lane / 16 * 8);
    if (transposed) load_matrices(fb, sb + lane % 8 * 16 + lane / 8 % 2 * 8);  // b is [8, 16]
    else load_matrices_transposed(fb, sb + lane % 16 * 8);                     // b is [16, 8]
    float fc[4] = {};
    multiply<T>(fc, fa, fb[0], fb[1]);
    for (unsigned i = 0; i < 4; ++i) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = fc[i];
  });
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += value_of(a[i * 16 + k]) * value_of(transposed ? b[j * 16 + k] : b[k * 8 + j]);
      EXPECT_EQ(c[i * 8 + j], sum) << i << ", " << j;
    }
}

TEST(Emulator, Multiplies) {
  for (unsigned seed = 0; seed < kSeeds; ++seed)
    for (const bool transposed : {false, true}) {
      one_product<bf16>(seed, transposed);
      one_product<fp16>(seed, transposed);
    }
}

TEST(Emulator, CopiesAreThereAfterTheWaitOnly) {
  std::vector<float> data(8, 2.0f);
  emulated::run(one_block(32, 64), 0, [&] {
    auto* const shared = reinterpret_cast<float*>(shared_memory());
    if (thread_index().x != 0) return;
    copy_async(shared, data.data(), true);
    commit_copies();
    copy_async(shared + 4, data.data(), false);
    commit_copies();
    EXPECT_TRUE(std::isnan(shared[0]));
    wait_for_copies<1>();
    EXPECT_EQ(shared[3], 2.0f);
    EXPECT_TRUE(std::isnan(shared[4]));
    wait_for_copies<0>();
    EXPECT_EQ(shared[4], 0.0f);
  });
}

using EmulatorDeathTest = ::testing::Test;

TEST(EmulatorDeathTest, Divergence) {
  EXPECT_DEATH(emulated::run(one_block(32), 0,
                             [] {
                               if (lane_index() < 7) barrier();
                               else warp_barrier();
                             }),
               "divergence: thread 0 is at barrier and thread 7 at warp_barrier");
  EXPECT_DEATH(emulated::run(one_block(32), 0,
                             [] {
                               if (lane_index() != 3) ballot(true);
                             }),
               "thread 3 at its end");
  EXPECT_DEATH(emulated::run(one_block(64), 0,
                             [] {
                               if (warp_index() == 0) barrier();
                             }),
               "1 warps have ended, and 1 wait for them at a barrier");
}

TEST(EmulatorDeathTest, CopiesThatNobodyWaitsFor) {
  const float data[4] = {};
  EXPECT_DEATH(emulated::run(one_block(32, 16), 0, [&] { copy_async(shared_memory(), data, true); }),
               "copies that it has not waited for");
}

TEST(EmulatorDeathTest, BadAddresses) {
  uint32_t r[4];
  EXPECT_DEATH(emulated::run(one_block(32, 512), 0,
                             [&] { load_matrices(r, shared_memory() + 16 * (lane_index() + 1)); }),
               "byte 512 is outside of the 512 of shared memory");
  EXPECT_DEATH(emulated::run(one_block(32, 512), 0, [&] { load_matrices(r, shared_memory() + 8); }),
               "not aligned to 16");
  EXPECT_DEATH(emulated::run(one_block(33), 0, [] {}), "a block of 33 threads");
}

struct FillArguments {
  float* x;
  uint32_t count, listed;

  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, int64_t{listed});
  }
};
LOOM_KERNEL(fill_with_numbers, FillArguments, 32) {
  for (uint32_t i = thread_index().x; i < arguments.count; i += thread_count())
    arguments.x[i] = static_cast<float>(i);
}

TEST(Emulator, FindsKernelsByName) {
  const emulated::Kernel* const kernel = emulated::find_kernel("fill_with_numbers");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(emulated::find_kernel("fill_with_number"), nullptr);
  std::vector<float> x(50, -1.0f);
  const FillArguments arguments{x.data(), 50, 50};
  emulated::run_on_copies(one_block(32), 0, *kernel, &arguments);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], static_cast<float>(i));
  EXPECT_DEATH(emulated::run(one_block(64), 0, *kernel, &arguments),
               "compiled for 32 threads, and launched with 64");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(EmulatorDeathTest, TheSanitizerSeesSharedMemory) {
  EXPECT_DEATH(emulated::run(one_block(32, 100), 0, [] { shared_memory()[100] = std::byte{1}; }),
               "heap-buffer-overflow");
}

TEST(EmulatorDeathTest, TheSanitizerSeesWhatArgumentsDoNotList) {
  std::vector<float> x(50);
  const FillArguments arguments{x.data(), 50, 49};
  EXPECT_DEATH(
      emulated::run_on_copies(one_block(32), 0, *emulated::find_kernel("fill_with_numbers"), &arguments),
      "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace loom::cuda
