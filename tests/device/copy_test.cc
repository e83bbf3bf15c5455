// copy(): every byte, no other byte, for any length and alignment, on both sides of where it leaves the cache
// alone.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "device/kernels.h"
#include "device/reduce.h"

namespace weft::device {
namespace {

std::vector<unsigned char> pattern(size_t bytes) {
  std::vector<unsigned char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
  return data;
}

template <typename Copy>
void check(const Copy& copy, size_t bytes, size_t from, size_t to) {
  const std::vector<unsigned char> source = pattern(bytes + 64);
  std::vector<unsigned char> target(bytes + 128, 0xa5), right(target);
  std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), bytes,
              right.begin() + static_cast<ptrdiff_t>(to));
  copy(target.data() + to, source.data() + from, bytes);
  ASSERT_TRUE(target == right) << bytes << " bytes from " << from << " to " << to;
}

TEST(Copy, AnyLengthAndAlignment) {
  const auto whole = [](void* to, const void* from, size_t bytes) { copy(to, from, bytes); };
  for (const size_t bytes :
       {0u, 1u, 7u, 63u, 64u, 65u, 4096u, 100'001u, 1u << 20, (3u << 20) + 13, 17u << 20}) {
    for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 0}, {1, 0}, {0, 3}, {5, 61}}) {
      check(whole, bytes, from, to);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Copy, ASliceOfALongMessage) {
  const auto slice = [](void* to, const void* from, size_t bytes) { copy(to, from, bytes, size_t{1} << 30); };
  for (size_t bytes = 0; bytes < 200; ++bytes) check(slice, bytes, bytes % 5, bytes % 67);
}

TEST(Copy, NothingFromNowhere) { copy(nullptr, nullptr, 0); }

TEST(Copy, StreamingOnEveryInstructionSet) {
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr || kernels->stream == nullptr) continue;
    const auto stream = [&](void* to, const void* from, size_t bytes) {
      kernels->stream(to, from, bytes);
      kernels->stream_fence();
    };
    for (size_t bytes = 0; bytes < 300; ++bytes) check(stream, bytes, bytes % 7, bytes % 64);
    check(stream, 10'007, 3, 5);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace weft::device
