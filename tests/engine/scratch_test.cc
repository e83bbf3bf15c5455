// The pool of scratch: what is lent again, and what is not.
#include "engine/run/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/window.h"

namespace weft::engine {
namespace {

constexpr size_t kSizes[] = {4 << 10, 64 << 10, 512 << 10, 1 << 20, 2 << 20, 16 << 20};

ScratchPool::Block take(ScratchPool& pool, size_t bytes) {
  const Result<ScratchPool::Block> block = pool.take(bytes);
  EXPECT_TRUE(block.ok()) << block.status().message();
  return block.ok() ? *block : ScratchPool::Block{};
}

TEST(Scratch, IsLentAgain) {
  ScratchPool pool;
  const ScratchPool::Block block = take(pool, 100'000);
  pool.give(block);
  EXPECT_EQ(take(pool, 70'000).data, block.data);
}

// An in-place AlltoAll of 256 MiB had its scratch mapped anew for each call, because short blocks were kept
// already.
TEST(Scratch, WhatWasUsedLastIsKeptAndTheOldestGoes) {
  constexpr size_t kLong = 256 << 20;
  ScratchPool pool;
  const auto serial = [](const ScratchPool::Block& block) {
    return device::find_window(block.data, 1)->serial;
  };
  const ScratchPool::Block older = take(pool, 1 << 20), newer = take(pool, 2 << 20);
  const uint64_t newer_one = serial(newer);
  pool.give(older);
  pool.give(newer);
  const ScratchPool::Block block = take(pool, kLong - (2 << 20));
  const uint64_t long_one = serial(block);
  pool.give(block);
  const ScratchPool::Block again = take(pool, kLong);
  EXPECT_EQ(serial(again), long_one);
  pool.give(again);
  const ScratchPool::Block longer = take(pool, 2 * kLong);
  const uint64_t longer_one = serial(longer);
  pool.give(longer);
  const ScratchPool::Block longer_again = take(pool, 2 * kLong);
  EXPECT_EQ(serial(longer_again), longer_one) << "one block is kept, however long it is";
  EXPECT_NE(serial(take(pool, 2 << 20)), newer_one) << "it had to go for the long one";
}

// A peer that has not heard of the failure may still write there, through a mapping of the segment or by the
// address.
TEST(Scratch, ThatIsRetiredIsInNobodysHandsAgain) {
  ScratchPool pool;
  for (const size_t bytes : kSizes) {
    const ScratchPool::Block retired = take(pool, bytes);
    const uint64_t serial = device::find_window(retired.data, bytes)->serial;
    pool.retire(retired, 0);
    pool.empty_retired(1);
    EXPECT_FALSE(pool.holds_retired());
    std::vector<ScratchPool::Block> next;
    for (const size_t other : kSizes) next.push_back(take(pool, other));
    for (const ScratchPool::Block& block : next) {
      const size_t lent = size_t{1} << block.size_class;
      EXPECT_TRUE(block.data + lent <= retired.data || retired.data + bytes <= block.data);
      EXPECT_TRUE(bytes < device::kLargeWindowBytes ||
                  device::find_window(block.data, lent)->serial != serial);
    }
    EXPECT_TRUE(device::find_window(retired.data, bytes)) << "its address is somebody else's by now";
    for (const ScratchPool::Block& block : next) pool.give(block);
  }
}

TEST(Scratch, ThatIsRetiredKeepsItsMemoryUntilTheNewsAreOut) {
  ScratchPool pool;
  const ScratchPool::Block early = take(pool, 2 << 20), late = take(pool, 2 << 20);
  early.data[5] = late.data[5] = std::byte{5};
  pool.retire(early, 1000);
  pool.retire(late, 2000);
  pool.empty_retired(999);
  EXPECT_EQ(early.data[5], std::byte{5});
  pool.empty_retired(1000);
  EXPECT_EQ(early.data[5], std::byte{0});
  EXPECT_EQ(late.data[5], std::byte{5});
  EXPECT_TRUE(pool.holds_retired());
  pool.empty_retired(2000);
  EXPECT_EQ(late.data[5], std::byte{0});
  EXPECT_FALSE(pool.holds_retired());
}

// The pool goes with its context; peers do not, and map the segment that small blocks were in.
TEST(Scratch, ThatIsRetiredIsInNobodysHandsAfterThePoolEither) {
  std::byte *small = nullptr, *large = nullptr;
  uint64_t serial = 0;
  {
    ScratchPool pool;
    const ScratchPool::Block a = take(pool, 64 << 10), b = take(pool, 1 << 20);
    small = a.data, large = b.data;
    serial = device::find_window(large, 1)->serial;
    pool.retire(a, 0);
    pool.retire(b, 0);
  }
  std::vector<std::byte*> windows;
  for (int i = 0; i < 40; ++i) windows.push_back(static_cast<std::byte*>(*device::window_alloc(60 << 10)));
  for (const std::byte* window : windows) {
    EXPECT_TRUE(window + (60 << 10) <= small || small + (64 << 10) <= window);
    EXPECT_NE(device::find_window(window, 1)->serial, serial);
  }
  for (std::byte* window : windows) EXPECT_TRUE(device::window_free(window).ok());
}

}  // namespace
}  // namespace weft::engine
