// Sums, conversions and squares of whole buffers.
#pragma once

#include "device/cuda/kernels/packs.h"

namespace loom::cuda {

/// sum[n] = a + b. sum may be a or b.
struct AddArguments {
  const float *a, *b;
  float* sum;
  int64_t count;

  LaunchShape shape() const { return shape_of_elements<kPack<float>>(count); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(a, count), visit(b, count), visit(sum, count);
  }
};

LOOM_DEVICE void add(const AddArguments& a) {
  for_elements<kPack<float>>(a.count, aligned(a.a, a.b, a.sum), [&]<int n>(int64_t i) {
    Floats<n> sum = load_pack<n>(a.a + i);
    add_pack(sum, a.b + i);
    store_pack(a.sum + i, sum);
  });
}

/// to[n] = from · scale, rounded. *overflow, unless null, becomes 1 if any of `to` is not finite, and else
/// stays what it is.
template <typename T>
struct ConvertArguments {
  const float* from;
  T* to;
  int64_t count;
  float scale;
  int32_t* overflow;

  LaunchShape shape() const { return shape_of_elements<kPack<T>>(count); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(from, count), visit(to, count), visit(overflow, overflow == nullptr ? 0 : 1);
  }
};

template <typename T>
LOOM_DEVICE void convert(const ConvertArguments<T>& a) {
  for_elements<kPack<T>>(a.count, aligned(a.from, a.to), [&]<int n>(int64_t i) {
    Floats<n> x = load_pack<n>(a.from + i);
    bool finite = true;
#pragma unroll
    for (float& each : x.at) {
      each *= a.scale;
      finite = finite && kept<T>(each) - kept<T>(each) == 0;
    }
    store_pack(a.to + i, x);
    if (!finite && a.overflow != nullptr) *a.overflow = 1;  // all threads write the same
  });
}

/// to[n] = from.
template <typename T>
struct WidenArguments {
  const T* from;
  float* to;
  int64_t count;

  LaunchShape shape() const { return shape_of_elements<kPack<T>>(count); }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(from, count), visit(to, count);
  }
};

template <typename T>
LOOM_DEVICE void widen(const WidenArguments<T>& a) {
  for_elements<kPack<T>>(a.count, aligned(a.from, a.to),
                         [&]<int n>(int64_t i) { store_pack(a.to + i, load_pack<n>(a.from + i)); });
}

/// chunk[i] = Σ x² over elements [i·size, min((i+1)·size, n)), in fp64. Lane l of a warp adds up elements l,
/// l + 32, ... of the chunk, as the CPU's vectors do. So it has the CPU's order and bits.
struct SumOfSquaresArguments {
  const float* x;
  double* chunk;
  int64_t count, size;

  int64_t chunks() const { return ceil_div(count, size); }
  LaunchShape shape() const {
    LaunchShape shape;
    shape.grid[0] = static_cast<unsigned>(ceil_div(chunks(), kElementThreads / kLanes));
    shape.threads = kElementThreads;
    return shape;
  }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, count), visit(chunk, chunks());
  }
};

/// A double of another lane.
LOOM_DEVICE double shuffle_double(double x, int lane) {
  uint32_t word[2];
  memcpy(word, &x, sizeof x);
  word[0] = shuffle(word[0], lane);
  word[1] = shuffle(word[1], lane);
  memcpy(&x, word, sizeof x);
  return x;
}

LOOM_DEVICE void sum_of_squares(const SumOfSquaresArguments& a) {
  const int64_t chunk = int64_t{block_index().x} * (kElementThreads / kLanes) + warp_index();
  const int64_t begin = chunk * a.size, end = begin + a.size < a.count ? begin + a.size : a.count;
  if (begin >= a.count) return;  // whole warps
  double mine = 0;
  int64_t at = begin;
  for (; at + kLanes <= end; at += kLanes) {
    const double value = static_cast<double>(a.x[at + lane_index()]);
    mine += value * value;
  }
  double sum = 0;
  for (; at < end; ++at) sum += static_cast<double>(a.x[at]) * static_cast<double>(a.x[at]);
  for (int lane = 0; lane < static_cast<int>(kLanes); ++lane) sum += shuffle_double(mine, lane);
  if (lane_index() == 0) a.chunk[chunk] = sum;
}

/// *sum = Σ x[n], one after the other, so that it has the CPU's order and bits: of tokens' losses. While one
/// thread adds, all of them load what it adds next.
struct SumArguments {
  const double* x;
  double* sum;
  int64_t count;

  static constexpr unsigned kThreads = 1024;
  LaunchShape shape() const { return {{1, 1, 1}, kThreads, kThreads * sizeof(double)}; }
  template <typename Visit>
  void pointers(Visit&& visit) {
    visit(x, count), visit(sum, 1);
  }
};

LOOM_DEVICE void sum(const SumArguments& a) {
  constexpr int64_t kThreads = SumArguments::kThreads;
  double* const piece = reinterpret_cast<double*>(shared_memory());
  const unsigned thread = thread_index().x;
  double next = thread < a.count ? a.x[thread] : 0, all = 0;
  for (int64_t begin = 0; begin < a.count; begin += kThreads) {
    piece[thread] = next;
    const int64_t ahead = begin + kThreads + thread;
    if (ahead < a.count) next = a.x[ahead];
    barrier();
    const int64_t count = a.count - begin < kThreads ? a.count - begin : kThreads;
    for (int64_t i = 0; thread == 0 && i < count; ++i) all += piece[i];
    barrier();
  }
  if (thread == 0) *a.sum = all;
}

}  // namespace loom::cuda
