// primitives.h on a GPU: PTX. Included by primitives.h only.
#pragma once

#include <math_constants.h>

#define LOOM_DEVICE __device__ __forceinline__
#define LOOM_KERNEL(name, Arguments, ...) \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ Arguments arguments)

namespace loom::cuda {

using Index = uint3;

LOOM_DEVICE Index thread_index() { return threadIdx; }
LOOM_DEVICE Index block_index() { return blockIdx; }
LOOM_DEVICE Index grid_size() { return {gridDim.x, gridDim.y, gridDim.z}; }
LOOM_DEVICE unsigned thread_count() { return blockDim.x; }

extern __shared__ __align__(128) unsigned char loom_shared_memory[];
LOOM_DEVICE std::byte* shared_memory() { return reinterpret_cast<std::byte*>(loom_shared_memory); }
LOOM_DEVICE uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

LOOM_DEVICE void barrier() { __syncthreads(); }
LOOM_DEVICE void warp_barrier() { __syncwarp(); }
template <typename X>
LOOM_DEVICE X shuffle(X x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
template <typename X>
LOOM_DEVICE X shuffle_xor(X x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
LOOM_DEVICE uint32_t ballot(bool b) { return __ballot_sync(0xffffffffu, b); }

LOOM_DEVICE Words4 load16(const void* from) {
  const uint4 x = *static_cast<const uint4*>(from);
  return {{x.x, x.y, x.z, x.w}};
}
LOOM_DEVICE void store16(void* to, const Words4& x) {
  *static_cast<uint4*>(to) = make_uint4(x.word[0], x.word[1], x.word[2], x.word[3]);
}

LOOM_DEVICE void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
LOOM_DEVICE void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// ---- Conversions

LOOM_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }
LOOM_DEVICE float value_of(float x) { return x; }
LOOM_DEVICE float value_of(bf16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }
LOOM_DEVICE float value_of(fp16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

template <typename T>
LOOM_DEVICE T rounded(float x);
template <>
LOOM_DEVICE float rounded<float>(float x) {
  return x;
}
template <>
LOOM_DEVICE fp16 rounded<fp16>(float x) {
  fp16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
LOOM_DEVICE bf16 rounded<bf16>(float x) {
#if __CUDA_ARCH__ >= 800
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  const uint32_t bits = __float_as_uint(x), rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return {static_cast<uint16_t>(x != x ? 0x7fffu : rounded)};
#endif
}

template <typename T>
LOOM_DEVICE uint32_t pack(float low, float high) {
  return rounded<T>(low).bits | static_cast<uint32_t>(rounded<T>(high).bits) << 16;
}
template <>
LOOM_DEVICE uint32_t pack<fp16>(float low, float high) {
  uint32_t word;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
  word = rounded<fp16>(low).bits | static_cast<uint32_t>(rounded<fp16>(high).bits) << 16;
#endif
  return word;
}
#if __CUDA_ARCH__ >= 800
template <>
LOOM_DEVICE uint32_t pack<bf16>(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
#endif

// ---- Products

#if __CUDA_ARCH__ >= 800
template <typename T>
LOOM_DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
LOOM_DEVICE void multiply<bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
LOOM_DEVICE void multiply<fp16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
/// Turing multiplies fp16 only, 16×8 by 8×8.
LOOM_DEVICE void multiply_half(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}
/// Fetches both operands' elements from the lanes that hold them. A call, since it is long.
static __device__ __noinline__ float4 multiply_by_shuffles(float4 c, uint4 a, uint2 b) {
  const uint32_t as[4] = {a.x, a.y, a.z, a.w}, bs[2] = {b.x, b.y};
  float sum[4] = {c.x, c.y, c.z, c.w};
  const int lane = threadIdx.x % 32, row = lane / 4 * 4, column = lane % 4 * 2;
  for (int half = 0; half < 2; ++half)
    for (int pair = 0; pair < 4; ++pair) {  // elements 8·half + 2·pair + {0, 1} of the sums' dimension
      const uint32_t a_top = shuffle(as[2 * half], row + pair),
                     a_bottom = shuffle(as[2 * half + 1], row + pair);
      const uint32_t b_left = shuffle(bs[half], column * 4 + pair);
      const uint32_t b_right = shuffle(bs[half], (column + 1) * 4 + pair);
      for (int i = 0; i < 4; ++i) {
        const uint32_t x = i < 2 ? a_top : a_bottom, y = i % 2 == 0 ? b_left : b_right;
        sum[i] += __uint_as_float(x << 16) * __uint_as_float(y << 16);
        sum[i] += __uint_as_float(x & 0xffff0000u) * __uint_as_float(y & 0xffff0000u);
      }
    }
  return make_float4(sum[0], sum[1], sum[2], sum[3]);
}
template <typename T>
LOOM_DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
LOOM_DEVICE void multiply<fp16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  multiply_half(c, a[0], a[1], b0);
  multiply_half(c, a[2], a[3], b1);
}
template <>
LOOM_DEVICE void multiply<bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const float4 sum = multiply_by_shuffles(make_float4(c[0], c[1], c[2], c[3]),
                                          make_uint4(a[0], a[1], a[2], a[3]), make_uint2(b0, b1));
  c[0] = sum.x, c[1] = sum.y, c[2] = sum.z, c[3] = sum.w;
}
#endif

// ---- Copies to shared memory

LOOM_DEVICE void copy_async(void* to, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  const int bytes = valid ? 16 : 0;  // the rest of the 16 becomes zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes)
               : "memory");
#else
  store16(to, valid ? load16(from) : Words4{{0, 0, 0, 0}});
#endif
}
LOOM_DEVICE void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int n>
LOOM_DEVICE void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

// ---- Functions

LOOM_DEVICE float larger(float x, float y) { return fmaxf(x, y); }
LOOM_DEVICE float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
LOOM_DEVICE float log2_of(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace loom::cuda
