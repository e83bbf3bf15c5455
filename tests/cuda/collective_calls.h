// One call of every collective on GPU memory, with values that differ by rank and round, and what has to come
// of it.
#pragma once

#include <vector>

#include "api/ranks.h"
#include "cuda/device_memory.h"

namespace weft::testing::collective_calls {

using Values = std::vector<float>;

inline float value(int rank, size_t i, int round) {
  return static_cast<float>((rank + 1) * (round + 2) + static_cast<int>(i % 29));
}
inline Values given(int rank, size_t count, int round, size_t first = 0) {
  Values v(count);
  for (size_t i = 0; i < count; ++i) v[i] = value(rank, first + i, round);
  return v;
}
inline Values joined(int ranks, size_t count, int round, size_t first = 0) {
  Values all;
  for (int r = 0; r < ranks; ++r) {
    const Values part = given(r, count, round, first);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}
inline Values summed(int ranks, size_t count, int round, size_t first = 0) {
  Values sum(count);
  for (int r = 0; r < ranks; ++r)
    for (size_t i = 0; i < count; ++i) sum[i] += value(r, first + i, round);
  return sum;
}

/// Calls a collective and returns what `recv` has to hold afterwards; empty where this rank gets nothing.
inline Values call(int which, bool in_place, size_t count, int round, const Rank& me,
                   DeviceArray<float>& send, DeviceArray<float>& recv, weftStream_t stream) {
  const int root = round % me.size;
  const auto n = static_cast<size_t>(me.size), rank = static_cast<size_t>(me.rank);
  const bool is_root = me.rank == root;
  DeviceArray<float>& source = in_place ? recv : send;
  const auto give = [&](size_t length, size_t at = 0) {
    source.set(given(me.rank, length, round), at);
    return source.data() + at;
  };
  switch (which) {
    case 0:
      EXPECT_EQ(weftAllReduce(give(count), recv.data(), count, weftFloat, weftSum, me.comm, stream), 0);
      return summed(me.size, count, round);
    case 1:
      EXPECT_EQ(weftAllGather(give(count, in_place ? rank * count : 0), recv.data(), count, weftFloat,
                              me.comm, stream),
                0);
      return joined(me.size, count, round);
    case 2:
      send.set(given(me.rank, n * count, round));
      EXPECT_EQ(weftReduceScatter(send.data(), recv.data(), count, weftFloat, weftSum, me.comm, stream), 0);
      return summed(me.size, count, round, rank * count);
    case 3:
      if (is_root || !in_place) (void)give(count);
      EXPECT_EQ(weftBroadcast(source.data(), recv.data(), count, weftFloat, root, me.comm, stream), 0);
      return given(root, count, round);
    case 4:
      EXPECT_EQ(weftReduce(give(count), recv.data(), count, weftFloat, weftSum, root, me.comm, stream), 0);
      return is_root ? summed(me.size, count, round) : Values();
    case 5:
      EXPECT_EQ(weftAlltoAll(give(n * count), recv.data(), count, weftFloat, me.comm, stream), 0);
      return joined(me.size, count, round, rank * count);
    case 6:
      send.set(given(me.rank, count, round));
      EXPECT_EQ(weftGather(send.data(), recv.data(), count, weftFloat, root, me.comm, stream), 0);
      return is_root ? joined(me.size, count, round) : Values();
    default:
      send.set(given(me.rank, n * count, round));
      EXPECT_EQ(weftScatter(send.data(), recv.data(), count, weftFloat, root, me.comm, stream), 0);
      return given(root, count, round, rank * count);
  }
}
inline constexpr int kCollectives = 8, kAllToAll = 5;

}  // namespace weft::testing::collective_calls
