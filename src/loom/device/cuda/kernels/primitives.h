// Primitives of CUDA kernels, in two forms: PTX on a GPU (primitives_gpu.h), and threads that a CPU runs in
// turns (primitives_host.h). A kernel that is written in them is one source for nvcc and for g++, so that it
// is tested where no GPU is. Nothing of the GPU's form has run on a GPU so far.
//
// What every form has, in namespace loom::cuda:
//
//   LOOM_DEVICE                             a function of a kernel, inlined
//   LOOM_KERNEL(name, Arguments, threads)   a kernel with its name for the launcher; `arguments` in the body.
//                                           A fourth number: blocks that a multiprocessor must have room for
//   thread_index() block_index() grid_size() thread_count()
//   shared_memory()                         the block's shared bytes, aligned to 128
//   barrier()                               all threads of the block
//   warp_barrier()                          all lanes of the warp, with shared memory seen by all
//   shuffle(x, lane) shuffle_xor(x, mask)   x of another lane: float, int32_t or uint32_t
//   ballot(b)                               bit `lane` of the result is that lane's b
//   load16(from) store16(to, x)             16 bytes, aligned
//   load_matrices(r, row)                   ldmatrix .x4: four 8×8 matrices of 16-bit elements. Lane 8m + i
//   load_matrices_transposed(r, row)        gives the address of row i of matrix m; r[m] is matrix m's part
//   multiply<T>(c, a, b0, b1)               c[16, 8] += a[16, 16] · b[16, 8], mma.sync; T is bf16 or fp16
//   copy_async(to, from, valid)             cp.async of 16 bytes to shared memory; zeros if not `valid`
//   commit_copies()                         ends a group of copies of this thread
//   wait_for_copies<n>()                    for all groups of this thread but the last n. Other threads see
//                                           them after a barrier
//   larger(x, y)                            the number, of a number and a NaN
//   exp2_of(x) log2_of(x)                   the GPU's fast ones: 2 ulp; exp2_of(-inf) is 0
//   value_of(x) rounded<T>(x)               of T = float, bf16, fp16; rounds to nearest even
//   float_of(bits)                          the fp32 of these bits
//   pack<T>(low, high)                      two 16-bit elements in a word
//
// Fragments of multiply(), with g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//   a[i]: rows g + 8·(i % 2), columns 2t + {0, 1} + 8·(i / 2)
//   bi: rows 2t + {0, 1} + 8i, column g
//   c[i]: row g + 8·(i / 2), column 2t + i % 2
//
// All lanes of a warp call warp_barrier, shuffles, ballot, load_matrices and multiply together, and all
// threads of a block barrier(). Blocks have a multiple of 32 threads. sm_75 has neither cp.async nor mma of
// bf16: there copies are done at once, and products of bf16 by shuffles and FMA, which is slow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "base/fp16.h"

namespace loom::cuda {

inline constexpr unsigned kLanes = 32;

/// How a kernel is launched. Where a kernel has its own shape of launch, its argument header computes it.
struct LaunchShape {
  unsigned grid[3] = {1, 1, 1};
  unsigned threads = 0;
  size_t shared_bytes = 0;
};

struct alignas(16) Words4 {
  uint32_t word[4];
};

}  // namespace loom::cuda

#if defined(__CUDACC__)
#include "device/cuda/kernels/primitives_gpu.h"
#else
#include "device/cuda/kernels/primitives_host.h"
#endif

namespace loom::cuda {

LOOM_DEVICE unsigned lane_index() { return thread_index().x % kLanes; }
LOOM_DEVICE unsigned warp_index() { return thread_index().x / kLanes; }

/// The sum, or the largest, over the lanes of a warp; in every lane, in the same order always.
LOOM_DEVICE float warp_sum(float x) {
  for (int mask = 16; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}
LOOM_DEVICE float warp_max(float x) {
  for (int mask = 16; mask > 0; mask /= 2) x = larger(x, shuffle_xor(x, mask));
  return x;
}

}  // namespace loom::cuda
