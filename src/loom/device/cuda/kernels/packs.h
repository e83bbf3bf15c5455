// Packs: the elements that a thread reads or writes at once, 16 bytes, as floats. A kernel's body is written
// for packs of any number n of elements, and also called with n = 1: for what is left at the end, and for
// arrays at addresses that are not aligned.
#pragma once

#include <cstring>

#include "base/round.h"
#include "device/cuda/kernels/primitives.h"

namespace loom::cuda {

/// Elements of T to a pack.
template <typename T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <int n>
struct Floats {
  float at[n];
};

/// Whether packs can be read and written at all of these addresses.
template <typename... Elements>
LOOM_DEVICE bool aligned(const Elements*... at) {
  return ((reinterpret_cast<uintptr_t>(at) % 16 == 0) && ...);
}

template <int n, typename T>
LOOM_DEVICE Floats<n> load_pack(const T* from) {
  Floats<n> x;
  if constexpr (n == 1) {
    x.at[0] = value_of(*from);
  } else {
    static_assert(n % kPack<T> == 0);
#pragma unroll
    for (int first = 0; first < n; first += kPack<T>) {
      const Words4 words = load16(from + first);
      T element[kPack<T>];
      memcpy(static_cast<void*>(element), &words, sizeof words);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) x.at[first + i] = value_of(element[i]);
    }
  }
  return x;
}

template <int n, typename T>
LOOM_DEVICE void store_pack(T* to, const Floats<n>& x) {
  if constexpr (n == 1) {
    *to = rounded<T>(x.at[0]);
  } else {
    static_assert(n % kPack<T> == 0);
#pragma unroll
    for (int first = 0; first < n; first += kPack<T>) {
      Words4 words;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == 2) words.word[i] = pack<T>(x.at[first + 2 * i], x.at[first + 2 * i + 1]);
        else memcpy(&words.word[i], &x.at[first + i], sizeof words.word[i]);
      }
      store16(to + first, words);
    }
  }
}

template <int n, typename T>
LOOM_DEVICE void add_pack(Floats<n>& sum, const T* from) {
  const Floats<n> more = load_pack<n>(from);
#pragma unroll
  for (int i = 0; i < n; ++i) sum.at[i] += more.at[i];
}

/// What T holds of x.
template <typename T>
LOOM_DEVICE float kept(float x) {
  return value_of(rounded<T>(x));
}

// ---- Kernels with a pack for each thread

inline constexpr unsigned kElementThreads = 256;

template <int n>
LaunchShape shape_of_elements(int64_t count) {
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(ceil_div(count, int64_t{n} * kElementThreads));
  shape.threads = kElementThreads;
  return shape;
}

/// body<n>(i) for the thread's pack of [0, count), or body<1>(i) for each of its elements.
template <int n, typename Body>
LOOM_DEVICE void for_elements(int64_t count, bool in_packs, Body&& body) {
  const int64_t first = (int64_t{block_index().x} * kElementThreads + thread_index().x) * n;
  if (in_packs && first + n <= count) {
    body.template operator()<n>(first);
  } else {
#pragma unroll 1
    for (int64_t i = first; i < first + n && i < count; ++i) body.template operator()<1>(i);
  }
}

// ---- Kernels with a block for each row

inline unsigned row_threads(int64_t wanted, unsigned most) {
  const int64_t threads = ceil_div(wanted, kLanes) * kLanes;
  return threads < most ? static_cast<unsigned>(threads) : most;
}

/// Threads for the packs of a row.
template <int n>
LaunchShape shape_of_rows(int64_t rows, int64_t width, unsigned most) {
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(rows);
  shape.threads = row_threads(ceil_div(width, n), most);
  return shape;
}

/// body<n>(column) for the thread's packs of a row, one after the other, and body<1>(column) for elements
/// that make no pack.
template <int n, typename Body>
LOOM_DEVICE void for_row(int64_t width, bool in_packs, Body&& body) {
  const int64_t packed = in_packs ? width / n * n : 0, threads = thread_count();
  for (int64_t column = int64_t{thread_index().x} * n; column < packed; column += threads * n)
    body.template operator()<n>(column);
#pragma unroll 1
  for (int64_t column = packed + thread_index().x; column < width; column += threads)
    body.template operator()<1>(column);
}

// ---- Sums over a block

/// Each of x summed over the block's threads, in every thread, always in the same order. `scratch` is shared
/// memory of kLanes · count floats, which all threads have done with.
template <int count>
LOOM_DEVICE void block_sums(float (&x)[count], float* scratch) {
#pragma unroll
  for (int i = 0; i < count; ++i) x[i] = warp_sum(x[i]);
  if (lane_index() == 0)
    for (int i = 0; i < count; ++i) scratch[warp_index() * count + i] = x[i];
  barrier();
  for (int i = 0; i < count; ++i) x[i] = 0;
  for (unsigned warp = 0; warp < thread_count() / kLanes; ++warp)
    for (int i = 0; i < count; ++i) x[i] += scratch[warp * count + i];
}

}  // namespace loom::cuda
