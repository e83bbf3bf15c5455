// How attention's kernels are launched for an ops::AttentionShape: names, arguments and sizes. Not for nvcc.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <string>

#include "device/cuda/kernels/attention_arguments.h"
#include "device/cuda/kernels/attention_delta.h"
#include "device/cuda/kernels/types.h"
#include "ops/operators.h"

namespace loom::cuda {

template <typename Arguments>
struct KernelLaunch {
  std::string name;
  LaunchShape shape;
  Arguments arguments;
};

/// The largest head size that the kernels take.
inline constexpr int64_t kLargestAttentionHead = 256;

namespace attention_launch {

template <typename T>
AttentionArguments arguments_of(const ops::AttentionShape& s, const T* qkv, float* lse) {
  AttentionArguments a{};
  a.qkv = reinterpret_cast<const std::byte*>(qkv), a.lse = lse, a.lengths = s.lengths;
  a.begins = s.begins, a.ends = s.ends;
  a.batch = static_cast<uint32_t>(s.batch), a.tokens = static_cast<uint32_t>(s.tokens);
  a.heads = static_cast<uint32_t>(s.heads), a.key_heads = static_cast<uint32_t>(s.key_heads());
  a.head_size = static_cast<uint32_t>(s.head_size);
  a.first_head = static_cast<uint32_t>(s.first_head);
  a.all_heads = static_cast<uint32_t>(s.all_heads > 0 ? s.all_heads : s.heads);
  a.window = static_cast<uint32_t>(s.window), a.causal = s.causal ? 1 : 0, a.alibi = s.alibi ? 1 : 0;
  a.scale = s.scale;
  a.key = s.dropout.key, a.first_drawn = s.dropout.first;
  a.drop_threshold = ops::drop_threshold(s.dropout.probability);
  a.keep = 1.0f / (1.0f - s.dropout.probability);
  a.element_bytes = sizeof(T);
  return a;
}

inline bool in_chunks(const AttentionArguments& a) {
  uintptr_t bits = a.head_size * a.element_bytes;
  for (const std::byte* p :
       {a.qkv, static_cast<const std::byte*>(a.out), a.dout, static_cast<const std::byte*>(a.dqkv)})
    bits |= reinterpret_cast<uintptr_t>(p);
  return bits % 16 == 0;
}

/// Of one kernel, whose tiles are Tiles<T, 64> and so on, over blocks for each of `heads`.
template <template <typename, int> typename Tiles, typename T>
KernelLaunch<AttentionArguments> launch_of(const std::string& kernel, AttentionArguments a, uint32_t heads,
                                           int resident, int statistics) {
  a.in_chunks = in_chunks(a) ? 1 : 0;
  KernelLaunch<AttentionArguments> launch{"", {}, a};
  const auto take = [&](auto tiles) {
    using Of = decltype(tiles);
    const uint32_t blocks = (a.tokens + Of::kRows - 1) / Of::kRows * Of::kShares;
    launch.name = "loom_attention_" + kernel + "_" + kKernelType<T> + "_" + std::to_string(Of::kHead);
    launch.shape = {{blocks, heads, a.batch}, Of::kThreads, Of::shared_bytes(resident, statistics)};
  };
  if (a.head_size <= 64) take(Tiles<T, 64>{});
  else if (a.head_size <= 96) take(Tiles<T, 96>{});
  else if (a.head_size <= 128) take(Tiles<T, 128>{});
  else take(Tiles<T, 256>{});
  return launch;
}

}  // namespace attention_launch

/// Operators::attention_forward. head_size is at most kLargestAttentionHead.
template <typename T>
KernelLaunch<AttentionArguments> attention_forward_launch(const ops::AttentionShape& s, const T* qkv, T* out,
                                                          float* lse) {
  AttentionArguments a = attention_launch::arguments_of(s, qkv, lse);
  a.out = reinterpret_cast<std::byte*>(out);
  return attention_launch::launch_of<AttentionForwardTiles, T>("forward", a, a.heads, 1, 0);
}

struct AttentionBackwardLaunch {
  KernelLaunch<AttentionDeltaArguments> delta;  // the first of the three
  KernelLaunch<AttentionArguments> keys, queries;
};
/// Operators::attention_backward; delta[B, heads, S] is scratch memory.
template <typename T>
AttentionBackwardLaunch attention_backward_launch(const ops::AttentionShape& s, const T* qkv, const T* out,
                                                  float* lse, const T* dout, T* dqkv, float* delta) {
  AttentionArguments a = attention_launch::arguments_of(s, qkv, lse);
  a.dout = reinterpret_cast<const std::byte*>(dout), a.delta = delta;
  a.dqkv = reinterpret_cast<std::byte*>(dqkv);
  const AttentionDeltaArguments of_delta{reinterpret_cast<const std::byte*>(out),
                                         a.dout,
                                         delta,
                                         a.batch,
                                         a.tokens,
                                         a.heads,
                                         a.head_size,
                                         sizeof(T)};
  return {{std::string("loom_attention_delta_") + kKernelType<T>, launch_of(of_delta), of_delta},
          attention_launch::launch_of<AttentionKeysTiles, T>("backward_keys", a, a.key_heads, 2, 2),
          attention_launch::launch_of<AttentionQueriesTiles, T>("backward_queries", a, a.heads, 2, 0)};
}

}  // namespace loom::cuda
