// Launches kernels on the emulator as the fake driver does: every array that the arguments list is copied to
// memory of the listed length, so that the address sanitizer finds what a kernel reads or writes beyond it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "cuda_kernels/emulator/emulator.h"
#include "device/cuda/kernels/types.h"
#include "ops/arrays.h"

namespace loom::cuda {

/// The arrays of a launch, in place of the caller's; given back when it is over.
class ListedArrays : public emulated::PointerVisitor {
 public:
  /// Array number `moved` is 8 bytes farther than the caller's, so that it is not aligned to 16.
  explicit ListedArrays(size_t moved = SIZE_MAX) : moved_(moved) {}

  void operator()(void*& pointer, uint64_t bytes) override {
    const size_t number = arrays_.size();
    Array& array = arrays_[pointer];
    if (array.memory == nullptr) {  // at an address that is aligned as the caller's is
      array.bytes = bytes;
      const size_t before = reinterpret_cast<uintptr_t>(pointer) % kAlignment + (number == moved_ ? 8 : 0);
      array.memory.reset(
          static_cast<std::byte*>(::operator new (before + bytes, std::align_val_t{kAlignment})));
      array.copy = array.memory.get() + before;
      std::memcpy(array.copy, pointer, bytes);
    }
    EXPECT_LE(bytes, array.bytes) << "an array that is listed twice is longer the second time";
    pointer = array.copy;
  }
  size_t count() const { return arrays_.size(); }
  /// Whether the arrays of a run that moved one of them hold the bits that they hold here.
  bool same_bits(const ListedArrays& other) const {
    return std::all_of(arrays_.begin(), arrays_.end(), [&](const auto& each) {
      const Array& array = each.second;
      return std::memcmp(array.copy, other.arrays_.at(each.first).copy, array.bytes) == 0;
    });
  }
  void give_back() {
    for (auto& [pointer, array] : arrays_) std::memcpy(pointer, array.copy, array.bytes);
  }

 private:
  static constexpr size_t kAlignment = 256;
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kAlignment}); }
  };
  struct Array {
    std::unique_ptr<std::byte, Delete> memory;
    std::byte* copy = nullptr;
    uint64_t bytes = 0;
  };
  std::map<void*, Array> arrays_;
  const size_t moved_;
};

/// Whether threads of the kernel add up the packs of a row that they have. Where addresses are not aligned
/// they have other ones, so that sums are rounded otherwise.
inline bool sums_by_packs(std::string_view name) {
  return name.starts_with("loom_norm_") || name.starts_with("loom_cross_entropy_") ||
         name.starts_with("loom_split_cross_entropy_begin_");
}

/// Runs the kernel; in the first order also with each array in turn at an address that is not aligned. The
/// emulator ends the program where 16 bytes are read or written at one. All arrays must have the same bits
/// then, unless the kernel sums_by_packs().
template <typename Arguments>
void launch(const std::string& name, const LaunchShape& shape, const Arguments& arguments, unsigned seed) {
  const emulated::Kernel* const kernel = emulated::find_kernel(name);
  ASSERT_NE(kernel, nullptr) << name;
  ASSERT_EQ(kernel->argument_bytes, sizeof(Arguments)) << name;
  ASSERT_LE(shape.threads, kernel->threads) << name;
  const auto run = [&](ListedArrays& arrays) {
    Arguments replaced = arguments;
    kernel->each_pointer(&replaced, arrays);
    emulated::run(shape, seed, *kernel, &replaced);
  };
  ListedArrays arrays;
  run(arrays);
  for (size_t moved = 0; seed == 0 && moved < arrays.count(); ++moved) {
    ListedArrays others(moved);
    run(others);
    EXPECT_TRUE(sums_by_packs(name) || arrays.same_bits(others))
        << name << " with array " << moved << " moved";
  }
  arrays.give_back();
}
template <typename Arguments>
void launch(const std::string& name, const Arguments& arguments, unsigned seed) {
  launch(name, arguments.shape(), arguments, seed);
}

/// What T can hold of a value.
template <typename T>
testing::Doubles held(const testing::Doubles& values) {
  return testing::rounded<T>(values);
}

/// An array of T that begins `shift` elements behind an aligned address, and holds NaN until it is written.
template <typename T>
class Elements {
 public:
  explicit Elements(int64_t n, int shift = 0) : all_(static_cast<size_t>(n + shift)), shift_(shift) {
    for (T& each : all_) std::memset(static_cast<void*>(&each), 0xff, sizeof each);
  }
  Elements(const testing::Doubles& values, int shift = 0)
      : Elements(static_cast<int64_t>(values.size()), shift) {
    const std::vector<T> converted = testing::as<T>(values);
    std::copy(converted.begin(), converted.end(), all_.begin() + shift);
  }
  T* data() { return all_.data() + shift_; }
  T& operator[](int64_t i) { return data()[i]; }
  testing::Doubles doubles() const {
    return testing::doubles(std::vector<T>(all_.begin() + shift_, all_.end()));
  }

 private:
  std::vector<T> all_;
  int shift_;
};

/// What run(seed) returns, doubles, and that it has the same bits for every order of threads.
template <typename Run>
testing::Doubles in_every_order(Run&& run) {
  const testing::Doubles first = run(0u);
  for (unsigned seed = 1; seed <= emulated::kOrders; ++seed) {
    const testing::Doubles again = run(seed);
    EXPECT_EQ(first.size(), again.size());
    EXPECT_EQ(std::memcmp(first.data(), again.data(), first.size() * sizeof(double)), 0) << "order " << seed;
  }
  return first;
}

/// Several arrays as one, for in_every_order().
template <typename... More>
testing::Doubles joined(testing::Doubles first, const More&... more) {
  (first.insert(first.end(), more.begin(), more.end()), ...);
  return first;
}
/// A part of it again.
inline testing::Doubles part(const testing::Doubles& all, int64_t first, int64_t n) {
  return testing::Doubles(all.begin() + first, all.begin() + first + n);
}

}  // namespace loom::cuda

/// Tests that are run for every element type, as TypeParam.
#define LOOM_TYPED_KERNEL_SUITE(suite)     \
  template <typename T>                    \
  class suite : public ::testing::Test {}; \
  TYPED_TEST_SUITE(suite, KernelTypes, KernelTypeNames)

namespace loom::cuda {
using KernelTypes = ::testing::Types<float, bf16, fp16>;
struct KernelTypeNames {
  template <typename T>
  static std::string GetName(int) {
    return kKernelType<T>;
  }
};
}  // namespace loom::cuda
