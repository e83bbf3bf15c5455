// Windows: what the allocator promises, and that peers reach the same bytes.
#include "device/window.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

namespace weft::device {
namespace {

size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

std::byte* allocate(size_t bytes) {
  Result<void*> window = window_alloc(bytes);
  EXPECT_TRUE(window.ok()) << window.status().message();
  return window.ok() ? static_cast<std::byte*>(*window) : nullptr;
}

TEST(Window, IsAlignedAndFoundWhole) {
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{1000}, kLargeWindowBytes - 1, kLargeWindowBytes,
                             3 * kLargeWindowBytes + 1}) {
    std::byte* window = allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(window) % (bytes >= kLargeWindowBytes ? 4096 : kWindowAlignment),
              0u);
    std::memset(window, 1, bytes);
    const auto whole = find_window(window, bytes);
    const auto last = find_window(window + bytes - 1, 1);
    ASSERT_TRUE(whole && last);
    EXPECT_EQ(last->offset, whole->offset + bytes - 1);
    EXPECT_EQ(last->serial, whole->serial);
    EXPECT_GE(whole->segment.bytes, whole->offset + bytes);
    EXPECT_FALSE(find_window(window, whole->segment.bytes - whole->offset + 1)) << "reaches past the segment";
    ASSERT_TRUE(window_free(window).ok());
  }
}

TEST(Window, PlainMemoryIsNotFound) {
  std::byte* window = allocate(100);
  std::vector<std::byte> plain(100);
  int local = 0;
  EXPECT_FALSE(find_window(plain.data(), plain.size()));
  EXPECT_FALSE(find_window(&local, sizeof(local)));
  EXPECT_FALSE(find_window(nullptr, 0));
  ASSERT_TRUE(window_free(window).ok());
}

TEST(Window, SmallOnesShareASegmentWithoutOverlap) {
  std::vector<std::byte*> windows;
  std::set<uint64_t> serials;
  for (int i = 0; i < 100; ++i) {
    windows.push_back(allocate(1000));
    std::memset(windows.back(), i, 1000);
    serials.insert(find_window(windows.back(), 1000)->serial);
  }
  EXPECT_LE(serials.size(), 2u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(windows[static_cast<size_t>(i)][0], static_cast<std::byte>(i));
    EXPECT_EQ(windows[static_cast<size_t>(i)][999], static_cast<std::byte>(i));
  }
  // Freed in an order that leaves holes first, the parts grow together again.
  for (size_t i = 0; i < 100; i += 2) ASSERT_TRUE(window_free(windows[i]).ok());
  for (size_t i = 1; i < 100; i += 2) ASSERT_TRUE(window_free(windows[i]).ok());
  std::byte* nearly_all = allocate(kLargeWindowBytes - 64);
  EXPECT_TRUE(serials.contains(find_window(nearly_all, 1)->serial));
  ASSERT_TRUE(window_free(nearly_all).ok());
}

TEST(Window, LargeOnesGoBackAtOnceAndSerialsAreNotReused) {
  const size_t before = open_descriptors();
  uint64_t last_serial = 0;
  for (int i = 0; i < 10; ++i) {
    std::byte* window = allocate(8 * kLargeWindowBytes);
    const auto found = find_window(window, 8 * kLargeWindowBytes);
    ASSERT_TRUE(found);
    EXPECT_GT(found->serial, last_serial);
    last_serial = found->serial;
    ASSERT_TRUE(window_free(window).ok());
    EXPECT_FALSE(find_window(window, 1));
  }
  EXPECT_EQ(open_descriptors(), before);
}

// A peer that stands still may map it, and write to it later.
TEST(Window, WhatTheSmallestLargeOneWasInHoldsNoOtherAfterIt) {
  ASSERT_TRUE(window_free(allocate(100)).ok());  // leaves a spare segment of the same size
  for (int i = 0; i < 3; ++i) {
    std::byte* window = allocate(kLargeWindowBytes);
    const uint64_t serial = find_window(window, 1)->serial;
    std::vector<std::byte*> next = {allocate(64 << 10)};  // is in the spare segment, which is none any more
    ASSERT_TRUE(window_free(window).ok());
    for (const size_t bytes : {size_t{64 << 10}, kLargeWindowBytes - 64, size_t{100}})
      next.push_back(allocate(bytes));
    for (std::byte* one : next) EXPECT_NE(find_window(one, 1)->serial, serial);
    for (std::byte* one : next) ASSERT_TRUE(window_free(one).ok());
  }
}

TEST(Window, FreeingSaysWhatIsWrong) {
  EXPECT_TRUE(window_free(nullptr).ok());
  int local = 0;
  EXPECT_EQ(window_free(&local).code(), Code::invalid_pointer);
  std::byte* window = allocate(0);
  ASSERT_NE(window, nullptr);
  EXPECT_EQ(window_free(window + 64).code(), Code::invalid_pointer);
  EXPECT_TRUE(window_free(window).ok());
  const Status twice = window_free(window);
  EXPECT_EQ(twice.code(), Code::invalid_pointer);
  EXPECT_NE(twice.message().find("not been freed"), std::string::npos) << twice.message();
}

TEST(Window, TooMuchIsOutOfMemory) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 1, size_t{1} << 62}) {
    const Result<void*> window = window_alloc(bytes);
    ASSERT_FALSE(window.ok());
    EXPECT_EQ(window.status().code(), Code::out_of_memory) << window.status().message();
  }
}

TEST(Window, APeerSeesTheSameBytesUntilItIsFreed) {
  std::byte* window = allocate(2 * kLargeWindowBytes);
  window[kLargeWindowBytes] = std::byte{42};
  const auto found = find_window(window, 1);
  ASSERT_TRUE(found);
  Result<Segment> peer = Segment::open(getpid(), found->segment);
  ASSERT_TRUE(peer.ok()) << peer.status().message();
  EXPECT_EQ(peer->data()[kLargeWindowBytes], std::byte{42});
  peer->data()[7] = std::byte{43};
  EXPECT_EQ(window[7], std::byte{43});
  ASSERT_TRUE(window_free(window).ok());
  EXPECT_EQ(peer->data()[kLargeWindowBytes], std::byte{0}) << "the memory is still there after it was freed";
}

TEST(Window, ThatIsDiscardedGivesItsMemoryBackAndKeepsItsAddress) {
  std::byte* window = allocate(2 * kLargeWindowBytes);
  std::memset(window, 1, 2 * kLargeWindowBytes);
  const auto found = find_window(window, 1);
  ASSERT_TRUE(window_discard(window).ok());
  EXPECT_EQ(window[0], std::byte{0});
  EXPECT_EQ(window[2 * kLargeWindowBytes - 1], std::byte{0});
  ASSERT_TRUE(find_window(window, 1));
  EXPECT_EQ(find_window(window, 1)->serial, found->serial);
  window[7] = std::byte{2};  // what comes late does no harm
  ASSERT_TRUE(window_free(window).ok());
  EXPECT_EQ(window_discard(window).code(), Code::invalid_pointer);
}

TEST(Window, ThatIsDiscardedLeavesItsNeighboursAlone) {
  std::vector<std::byte*> windows;
  for (int i = 0; i < 3; ++i) {
    windows.push_back(allocate(20'000));
    std::memset(windows.back(), i + 1, 20'000);
  }
  ASSERT_TRUE(window_discard(windows[1]).ok());
  EXPECT_EQ(windows[1][10'000], std::byte{0});
  for (int i : {0, 2})
    EXPECT_EQ(std::count(windows[i], windows[i] + 20'000, static_cast<std::byte>(i + 1)), 20'000);
  for (std::byte* window : windows) ASSERT_TRUE(window_free(window).ok());
}

// Scratch memory of failed operations kept its descriptor, and its address, until the process ended.
TEST(Window, ThatIsRetiredClosesItsSegmentWhichGoesWithItsLastWindow) {
  std::byte* const retired = allocate(100);
  std::byte* const neighbour = allocate(100);
  const uint64_t serial = find_window(retired, 100)->serial;
  ASSERT_EQ(find_window(neighbour, 100)->serial, serial);
  ASSERT_TRUE(window_retire(retired).ok());
  std::byte* const next = allocate(100);
  EXPECT_NE(find_window(next, 100)->serial, serial) << "a peer may still write there";
  EXPECT_TRUE(find_window(neighbour, 100));
  ASSERT_TRUE(window_free(neighbour).ok());
  EXPECT_FALSE(find_window(neighbour, 100)) << "its segment is still there";
  ASSERT_TRUE(window_free(next).ok());
}

TEST(Window, AnotherProcessCanMapIt) {
  std::byte* window = allocate(1000);
  const auto found = find_window(window, 1000);
  ASSERT_TRUE(found);
  const pid_t owner = getpid();
  const pid_t child = fork();
  if (child == 0) {
    Result<Segment> peer = Segment::open(owner, found->segment);
    if (!peer.ok()) _exit(1);
    peer->data()[found->offset + 999] = std::byte{77};
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(window[999], std::byte{77});
  ASSERT_TRUE(window_free(window).ok());
}

// A forked child sees the parent's windows, which are shared memory. It must not take parts of them for
// windows of its own, nor may freeing its copy of a pointer take the parent's memory away.
TEST(Window, AForkedChildLeavesTheParentsAlone) {
  std::byte* window = allocate(1000);
  std::memset(window, 1, 1000);
  const uint64_t serial = find_window(window, 1)->serial;
  const pid_t child = fork();
  if (child == 0) {
    Result<void*> own = window_alloc(1000);
    if (!own.ok() || find_window(*own, 1)->serial == serial) _exit(1);
    std::memset(*own, 2, 1000);
    if (!window_free(window).ok() || !window_free(*own).ok()) _exit(2);
    _exit(0);
  }
  std::byte* second = allocate(1000);
  std::memset(second, 3, 1000);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(window[999], std::byte{1});
  EXPECT_EQ(second[999], std::byte{3});
  ASSERT_TRUE(window_free(second).ok());
  ASSERT_TRUE(window_free(window).ok());
}

TEST(Segment, AboveTheLimitOfFilesIsRefused) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const Result<Segment> above = Segment::create((1 << 20) + 1), within = Segment::create(1 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(above.status().code(), Code::system_error);
  EXPECT_NE(above.status().message().find("ulimit -f"), std::string::npos) << above.status().message();
  EXPECT_TRUE(within.ok()) << within.status().message();
}

TEST(Segment, AnotherFileInItsPlaceIsRefused) {
  Result<Segment> segment = Segment::create(4096);
  ASSERT_TRUE(segment.ok());
  Result<SegmentName> name = segment->name();
  ASSERT_TRUE(name.ok());
  SegmentName other = *name;
  ++other.inode;
  EXPECT_EQ(Segment::open(getpid(), other).status().code(), Code::remote_error);
  other = *name;
  other.bytes *= 2;
  EXPECT_EQ(Segment::open(getpid(), other).status().code(), Code::remote_error);
  other = *name;
  other.fd = 999999;
  EXPECT_EQ(Segment::open(getpid(), other).status().code(), Code::remote_error);
}

TEST(Window, ThreadsAllocateFindAndFreeAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 300; ++i) {
        const size_t bytes = (i % 10 == 0) ? kLargeWindowBytes + 1 : static_cast<size_t>(i) * 7 + 1;
        std::byte* window = allocate(bytes);
        window[bytes - 1] = static_cast<std::byte>(t);
        EXPECT_TRUE(find_window(window, bytes));
        EXPECT_EQ(window[bytes - 1], static_cast<std::byte>(t));
        EXPECT_TRUE(window_free(window).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weft::device
