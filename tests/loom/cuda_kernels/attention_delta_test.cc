#include "device/cuda/kernels/attention_delta.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "cuda_kernels/emulator/emulator.h"

namespace loom::cuda {
namespace {

template <typename T>
void check_delta(const std::string& type, uint32_t head_size, unsigned seed) {
  const uint32_t batch = 2, tokens = 5, heads = 3;
  std::minstd_rand random(seed);
  std::vector<T> out(batch * tokens * heads * head_size), dout(out.size());
  for (auto* array : {&out, &dout})
    for (T& x : *array) x = rounded<T>(static_cast<float>(random() % 33) / 16 - 1);
  std::vector<float> delta(batch * heads * tokens, NAN);
  const AttentionDeltaArguments arguments{reinterpret_cast<const std::byte*>(out.data()),
                                          reinterpret_cast<const std::byte*>(dout.data()),
                                          delta.data(),
                                          batch,
                                          tokens,
                                          heads,
                                          head_size,
                                          sizeof(T)};
  const auto* const kernel = emulated::find_kernel("loom_attention_delta_" + type);
  ASSERT_NE(kernel, nullptr);
  emulated::run_on_copies(launch_of(arguments), seed, *kernel, &arguments);
  for (uint32_t row = 0; row < batch * tokens * heads; ++row) {
    double sum = 0;
    for (uint32_t d = 0; d < head_size; ++d)
      sum += static_cast<double>(value_of(out[row * head_size + d])) * value_of(dout[row * head_size + d]);
    const uint32_t b = row / heads / tokens, t = row / heads % tokens, h = row % heads;
    EXPECT_NEAR(delta[(b * heads + h) * tokens + t], sum, 1e-4);
  }
}

TEST(AttentionDelta, IsTheCpus) {
  for (unsigned seed = 0; seed < emulated::kOrders; ++seed)
    for (const uint32_t head_size : {1u, 64u, 80u}) {
      check_delta<float>("fp32", head_size, seed);
      check_delta<bf16>("bf16", head_size, seed);
      check_delta<fp16>("fp16", head_size, seed);
    }
}

}  // namespace
}  // namespace loom::cuda
