// Long collectives on ordinary memory between processes: long enough that owners help their readers, that
// slices grow, and that results are written around the cache.
#include <cstdint>

#include "api/processes.h"

namespace weft::testing::long_test {
namespace {

// Past two slices of 16 MiB a block, and no multiple of anything.
constexpr size_t kCount = (20 << 20) / sizeof(int32_t) + 77;

int32_t value(int rank, size_t i) {
  return static_cast<int32_t>(i * 7 + static_cast<size_t>(rank) * 1000003);
}

/// Exit codes of a rank; 0 is right.
int check(bool right, int code) { return right ? 0 : code; }

template <typename Expected>
bool holds(const std::vector<int32_t>& got, size_t begin, size_t count, Expected&& expected) {
  for (size_t i = 0; i < count; ++i)
    if (got[begin + i] != expected(i)) return false;
  return true;
}

int gather(Rank& me) {
  std::vector<int32_t> send(kCount), recv(kCount * 2);
  for (size_t i = 0; i < kCount; ++i) send[i] = value(me.rank, i);
  if (weftAllGather(send.data(), recv.data(), kCount, weftInt32, me.comm, nullptr) != weftSuccess) return 10;
  for (int r = 0; r < 2; ++r)
    if (!holds(recv, r * kCount, kCount, [&](size_t i) { return value(r, i); })) return 11;
  return 0;
}

int reduce_scatter(Rank& me, bool in_place) {
  std::vector<int32_t> send(kCount * 2), recv(in_place ? 0 : kCount);
  for (size_t i = 0; i < send.size(); ++i) send[i] = value(me.rank, i);
  const size_t own = me.rank * kCount;
  int32_t* const out = in_place ? send.data() + own : recv.data();
  if (weftReduceScatter(send.data(), out, kCount, weftInt32, weftSum, me.comm, nullptr) != weftSuccess)
    return 20;
  return check(holds(in_place ? send : recv, in_place ? own : 0, kCount,
                     [&](size_t i) { return value(0, own + i) + value(1, own + i); }),
               21);
}

int all_reduce(Rank& me, bool in_place) {
  std::vector<int32_t> send(kCount * 4), recv(in_place ? 0 : send.size());
  for (size_t i = 0; i < send.size(); ++i) send[i] = value(me.rank, i);
  int32_t* const out = in_place ? send.data() : recv.data();
  if (weftAllReduce(send.data(), out, send.size(), weftInt32, weftSum, me.comm, nullptr) != weftSuccess)
    return 30;
  return check(
      holds(in_place ? send : recv, 0, send.size(), [](size_t i) { return value(0, i) + value(1, i); }), 31);
}

int all_to_all(Rank& me) {
  std::vector<int32_t> send(kCount * 2), recv(kCount * 2);
  for (size_t i = 0; i < send.size(); ++i) send[i] = value(me.rank, i);
  if (weftAlltoAll(send.data(), recv.data(), kCount, weftInt32, me.comm, nullptr) != weftSuccess) return 40;
  for (int r = 0; r < 2; ++r)
    if (!holds(recv, r * kCount, kCount, [&](size_t i) { return value(r, me.rank * kCount + i); })) return 41;
  return 0;
}

void expect_right(const std::vector<int>& statuses) {
  for (const int status : statuses) {
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

TEST(Long, CollectivesOfTwoProcessesOnOrdinaryMemory) {
  expect_right(run_processes(blocks(1, 2), [](Rank& me) {
    if (int wrong = gather(me)) return wrong;
    for (const bool in_place : {false, true}) {
      if (int wrong = reduce_scatter(me, in_place)) return wrong;
      if (int wrong = all_reduce(me, in_place)) return wrong;
    }
    if (int wrong = all_to_all(me)) return wrong;
    return check(weftCommDestroy(me.comm) == weftSuccess, 50);
  }));
}

/// A group of sums, each in a window of its own and all in flight while rank 2 is late.
int many_windows(Rank& me) {
  constexpr int kWindows = 300;  // more than stay mapped of one peer
  constexpr size_t kInts = 65536;
  std::vector<int32_t*> windows;
  for (int i = 0; i < kWindows; ++i) {
    void* window = nullptr;
    if (weftMemAlloc(&window, 1 << 20) != weftSuccess) return 50;
    windows.push_back(static_cast<int32_t*>(window));
    for (size_t at = 0; at < kInts; ++at) windows[i][at] = value(me.rank, i + at);
  }
  int32_t all_there = 1;
  if (weftAllReduce(&all_there, &all_there, 1, weftInt32, weftSum, me.comm, nullptr) != weftSuccess)
    return 51;
  if (me.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  if (weftGroupStart() != weftSuccess) return 52;
  for (int32_t* window : windows)
    if (weftAllReduce(window, window, kInts, weftInt32, weftSum, me.comm, nullptr) != weftSuccess) return 53;
  if (weftGroupEnd() != weftSuccess) return 54;
  for (int i = 0; i < kWindows; ++i)
    for (size_t at = 0; at < kInts; ++at)
      if (windows[i][at] != value(0, i + at) + value(1, i + at) + value(2, i + at)) return 55;
  return weftCommDestroy(me.comm) == weftSuccess ? 0 : 56;
}

TEST(Long, MoreWindowsInFlightThanStayMapped) {
  for (const int status : run_processes(blocks(1, 3), many_windows))
    EXPECT_TRUE(exited_with(status, 0)) << "status " << status;
}

TEST(Long, AnOperationOnAStreamGoesOnWhileItsCallersSleepOrCompute) {
  expect_right(run_processes(blocks(1, 2), [](Rank& me) {
    weftStream_t stream;
    if (weftStreamCreate(&stream) != weftSuccess) return 56;
    std::vector<int32_t> send(kCount), recv(kCount * 2);
    for (size_t i = 0; i < kCount; ++i) send[i] = value(me.rank, i);
    if (weftAllGather(send.data(), recv.data(), kCount, weftInt32, me.comm, stream) != weftSuccess) return 51;
    if (me.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (weftStreamSynchronize(stream) != weftSuccess) return 52;
    for (int r = 0; r < 2; ++r)
      if (!holds(recv, r * kCount, kCount, [&](size_t i) { return value(r, i); })) return 53;
    if (weftStreamDestroy(stream) != weftSuccess) return 54;
    return check(weftCommDestroy(me.comm) == weftSuccess, 55);
  }));
}

}  // namespace
}  // namespace weft::testing::long_test
