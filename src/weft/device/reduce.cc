// Which kernels run over which blocks of which sources: the shape of a reduction. The arithmetic is in
// kernel_loops.h.
//
// Two sources, the most frequent case by far, are one kernel over the whole range. More are reduced a block
// at a time, so that partial results stay in the first-level cache; those of 16- and 8-bit floats are fp32
// there, and are rounded once, when the block is finished. An average of floats is one kernel over all
// sources, which keeps its partial results in registers.
#include "device/reduce.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "base/short_copy.h"
#include "device/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft::device {
namespace {

constexpr size_t kBlockBytes =
    4096;  // of accumulators: a few of them fit the first-level cache beside the sources

static_assert(kBlockBytes % (kAccumulatorLanes * sizeof(float)) == 0);

struct alignas(64) Block {
  std::byte bytes[kBlockBytes];
};

/// While it lives, floats are rounded to nearest, subnormals count and nothing traps, whatever the calling
/// thread has set for itself: a result may not depend on who computes it.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() : saved_(_mm_getcsr()) {
    if (changed()) _mm_setcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if (changed()) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kDefault = 0x1f80, kFlags = 0x3f;
  bool changed() const { return (saved_ & ~kFlags) != kDefault; }
  unsigned saved_;
#else
  DefaultFloatMode() {}
#endif
  DefaultFloatMode(const DefaultFloatMode&) = delete;
};

/// Whether so many bytes, read and written, are better written around the cache. They are where they do not
/// fit the second level: from there on the measured gain is 1.2 to 2, and below it the loss is as large.
bool streams(const Kernels& kernels, uint64_t bytes) {
  static const uint64_t cache_bytes = [] {
    const long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return known > 0 ? static_cast<uint64_t>(known) : uint64_t{1} << 20;
  }();
  return kernels.stream != nullptr && bytes > cache_bytes;
}

/// An average of floats.
class Mean {
 public:
  Mean(const Kernels& kernels, const Reduction& reduction, const void* const* sources, int n)
      : kernel_(kernels.mean[static_cast<int>(reduction.type)]),
        operands_{sources, reduction.weights, static_cast<uint32_t>(n), total_of(reduction.weights, n),
                  reduction.order},
        block_elements_(kBlockBytes / size_of(reduction.type)) {}

  size_t block_elements() const { return block_elements_; }
  void evaluate(size_t first, size_t count, void* out) const { kernel_(operands_, first, count, out); }

 private:
  Kernels::Mean kernel_;
  Operands operands_;
  size_t block_elements_;
};

/// A reduction of n sources, evaluated a block at a time. `Accumulator` below means fp32 for sums and
/// products of narrow floats, and the type itself otherwise.
class BlockReduction {
 public:
  BlockReduction(const Kernels& kernels, const Reduction& reduction, const void* const* sources, int n)
      : kernels_(kernels),
        sources_(sources),
        n_(n),
        type_(static_cast<int>(reduction.type)),
        divisor_(reduction.op == ReduceOp::avg ? reduction.divisor : 1) {
    const Combiner combiner = combiner_of(reduction.op);
    const int op = static_cast<int>(combiner);
    const bool ordered =
        is_float(reduction.type) && (combiner == Combiner::sum || combiner == Combiner::prod);
    widens_ = ordered && is_narrow_float(reduction.type);
    tree_ = ordered && reduction.order == Order::tree;
    open_ = widens_ ? kernels.open[type_][op] : kernels.combine[type_][op];
    add_ = widens_ ? kernels.add[type_][op] : kernels.combine[type_][op];
    merge_ = widens_ ? kernels.combine[static_cast<int>(DataType::float32)][op] : kernels.combine[type_][op];
    element_bytes_ = size_of(reduction.type);
    block_elements_ = kBlockBytes / std::max(element_bytes_, widens_ ? sizeof(float) : size_t{1});
  }

  size_t block_elements() const { return block_elements_; }

  /// out = the result for elements [first, first + count), at most a block of them.
  void evaluate(size_t first, size_t count, void* out) const {
    if (widens_) {
      Block accumulator;
      combine(first, count, accumulator.bytes);
      kernels_.round[type_](out, accumulator.bytes, count);
    } else {
      combine(first, count, out);
      if (divisor_ > 1) kernels_.divide[type_](out, out, count, divisor_);
    }
  }

 private:
  const void* source(int i, size_t first) const {
    return static_cast<const std::byte*>(sources_[i]) + first * element_bytes_;
  }

  /// Accumulators of all sources. `out` is written by the last kernel only, since it may be a source.
  void combine(size_t first, size_t count, void* out) const {
    if (tree_) combine_tree(0, n_, first, count, out);
    else combine_in_turn(first, count, out);
  }

  void combine_in_turn(size_t first, size_t count, void* out) const {
    if (n_ <= 2) return combine_two(0, n_, first, count, out);
    Block sum;
    open_(sum.bytes, source(0, first), source(1, first), count);
    for (int i = 2; i < n_ - 1; ++i) add_(sum.bytes, sum.bytes, source(i, first), count);
    add_(out, sum.bytes, source(n_ - 1, first), count);
  }

  void combine_two(int begin, int n, size_t first, size_t count, void* out) const {
    if (n == 2) open_(out, source(begin, first), source(begin + 1, first), count);
    else if (widens_) kernels_.widen[type_](out, source(begin, first), count);
    else std::memmove(out, source(begin, first), count * element_bytes_);
  }

  /// Of sources [begin, begin + n): the lower subtree has the largest power of two of them that is less than
  /// n.
  void combine_tree(int begin, int n, size_t first, size_t count, void* out) const {
    if (n <= 2) return combine_two(begin, n, first, count, out);
    const int lower = static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1)));
    Block left;
    combine_tree(begin, lower, first, count, left.bytes);
    if (n - lower == 1) return add_(out, left.bytes, source(begin + lower, first), count);
    Block right;
    combine_tree(begin + lower, n - lower, first, count, right.bytes);
    merge_(out, left.bytes, right.bytes, count);
  }

  const Kernels& kernels_;
  const void* const* sources_;
  int n_, type_;
  uint32_t divisor_;
  bool widens_, tree_;
  Kernels::Combine open_, add_,
      merge_;  // accumulator = source op source, accumulator op source, accumulator op accumulator
  size_t element_bytes_, block_elements_;
};

/// Blocks straight into dst.
template <typename Blocks>
void reduce_blocks(const Blocks& reduction, size_t element_bytes, std::byte* dst, size_t count) {
  for (size_t first = 0; first < count; first += reduction.block_elements()) {
    reduction.evaluate(first, std::min(reduction.block_elements(), count - first),
                       dst + first * element_bytes);
  }
}

/// Blocks into the first-level cache and from there around the cache into dst, which saves reading dst.
/// Blocks start on dst's cache lines, so that every line goes out whole.
template <typename Blocks>
void reduce_streaming(const Kernels& kernels, const Blocks& reduction, size_t element_bytes, std::byte* dst,
                      size_t count) {
  const size_t to_line = -reinterpret_cast<uintptr_t>(dst) % alignof(Block) / element_bytes;
  Block result;
  for (size_t first = 0, n = to_line > 0 ? to_line : reduction.block_elements(); first < count;
       first += n, n = reduction.block_elements()) {
    n = std::min(n, count - first);
    reduction.evaluate(first, n, result.bytes);
    kernels.stream(dst + first * element_bytes, result.bytes, n * element_bytes);
  }
  kernels.stream_fence();
}

/// Whether the result, of so many bytes, is better written around the cache.
inline bool goes_around(const Kernels& kernels, const Reduction& reduction, const void* dst,
                        const void* const* sources, int n, size_t bytes) {
  const uint64_t array_bytes = std::max<uint64_t>(bytes, reduction.message_bytes);
  return streams(kernels, array_bytes * (static_cast<uint64_t>(n) + 1)) &&
         std::find(sources, sources + n, dst) == sources + n;
}

/// Apart from the short reductions of two sources: blocks take a stack frame of their size.
template <typename Blocks>
[[gnu::noinline]] void evaluate_all(const Kernels& kernels, const Reduction& reduction, const Blocks& blocks,
                                    void* dst, size_t count, bool around) {
  const size_t element_bytes = size_of(reduction.type);
  if (around) reduce_streaming(kernels, blocks, element_bytes, static_cast<std::byte*>(dst), count);
  else reduce_blocks(blocks, element_bytes, static_cast<std::byte*>(dst), count);
}

/// Averages, and all that one kernel of two sources does not do.
[[gnu::noinline]] void reduce_many(const Kernels& kernels, const Reduction& reduction, void* dst,
                                   const void* const* sources, int n, size_t count) {
  const size_t bytes = count * size_of(reduction.type);
  const bool averages = reduction.op == ReduceOp::avg, mean = averages && is_float(reduction.type);
  if (n == 1 && (!averages || mean || reduction.divisor <= 1)) {
    if (dst != sources[0]) copy(dst, sources[0], bytes, reduction.message_bytes);
    return;
  }
  const DefaultFloatMode mode;
  const bool around = goes_around(kernels, reduction, dst, sources, n, bytes);
  if (mean) evaluate_all(kernels, reduction, Mean(kernels, reduction, sources, n), dst, count, around);
  else evaluate_all(kernels, reduction, BlockReduction(kernels, reduction, sources, n), dst, count, around);
}

}  // namespace

void reduce_with(const Kernels& kernels, const Reduction& reduction, void* dst, const void* const* sources,
                 int n, size_t count) {
  if (count == 0) return;
  const size_t bytes = count * size_of(reduction.type);
  if (n != 2 || reduction.op == ReduceOp::avg || goes_around(kernels, reduction, dst, sources, n, bytes))
    return reduce_many(kernels, reduction, dst, sources, n, count);
  const DefaultFloatMode mode;
  const int op = static_cast<int>(combiner_of(reduction.op));
  kernels.combine[static_cast<int>(reduction.type)][op](dst, sources[0], sources[1], count);
}

void scale_with(const Kernels& kernels, DataType type, void* dst, const void* src, size_t count,
                const void* scalar) {
  if (count == 0) return;
  const DefaultFloatMode mode;
  kernels.scale[static_cast<int>(type)](dst, src, scalar, count);
}

void reduce(const Reduction& reduction, void* dst, const void* const* sources, int n, size_t count) {
  reduce_with(kernels(), reduction, dst, sources, n, count);
}

void scale(DataType type, void* dst, const void* src, size_t count, const void* scalar) {
  scale_with(kernels(), type, dst, src, count, scalar);
}

void copy(void* dst, const void* src, size_t bytes, size_t message_bytes) {
  if (bytes <= kShortCopy) return copy_short(dst, src, bytes);
  const Kernels& best = kernels();
  if (!streams(best, 2 * std::max(bytes, message_bytes))) {
    std::memcpy(dst, src, bytes);
    return;
  }
  best.stream(dst, src, bytes);
  best.stream_fence();
}

}  // namespace weft::device
