// Repeated collectives come to allocate nothing, inside a node and between nodes: what one of them needed is
// kept for the next.
#include <barrier>
#include <functional>
#include <vector>

#include "allocations.h"
#include "api/ranks.h"

namespace weft::testing {
namespace {

#ifdef WEFT_COUNTS_ALLOCATIONS
using Call = std::function<weftResult_t(const Rank& me, const float* in, float* out, size_t count)>;

weftResult_t all_reduce(const Rank& me, const float* in, float* out, size_t count) {
  return weftAllReduce(in, out, count, weftFloat32, weftSum, me.comm, nullptr);
}
weftResult_t all_gather(const Rank& me, const float* in, float* out, size_t count) {
  return weftAllGather(in, out, count, weftFloat32, me.comm, nullptr);
}
weftResult_t all_to_all(const Rank& me, const float* in, float* out, size_t count) {
  return weftAlltoAll(in, out, count, weftFloat32, me.comm, nullptr);
}
weftResult_t broadcast(const Rank& me, const float*, float* out, size_t count) {
  return weftBcast(out, count, weftFloat32, 0, me.comm, nullptr);
}

/// What all ranks together allocate in each series of calls, up to the first in which that is nothing. Who
/// is ahead of whom, and by how much, is a matter of time, so there may be some at first.
std::vector<int64_t> allocations_of(const Nodes& nodes, const Call& call, size_t count, int calls) {
  constexpr size_t kSeries = 40;
  std::barrier together(static_cast<ptrdiff_t>(nodes.size()));
  std::vector<int64_t> counts;
  counts.reserve(kSeries);
  run_ranks(nodes, [&](const Rank& me) {
    const std::vector<float> in(count * static_cast<size_t>(me.size), 1);
    std::vector<float> out(in.size());
    bool right = true;
    do {
      together.arrive_and_wait();
      if (me.rank == 0) AllocationCounter::begin();
      together.arrive_and_wait();
      for (int i = 0; i < calls; ++i) right &= call(me, in.data(), out.data(), count) == weftSuccess;
      together.arrive_and_wait();
      if (me.rank == 0) counts.push_back(AllocationCounter::end().all());
      together.arrive_and_wait();
    } while (counts.back() > 0 && counts.size() < kSeries);
    EXPECT_TRUE(right);
  });
  return counts;
}

struct Allocation : ::testing::TestWithParam<Nodes> {};

TEST_P(Allocation, ComesToNoneInRepeatedCalls) {
  const std::pair<const char*, Call> kinds[] = {{"AllReduce", all_reduce},
                                                {"AllGather", all_gather},
                                                {"AlltoAll", all_to_all},
                                                {"Broadcast", broadcast}};
  for (const auto& [name, call] : kinds)
    for (const size_t count : {size_t{2}, size_t{1} << 10, size_t{12} << 10, size_t{256} << 10}) {
      const std::vector<int64_t> counts = allocations_of(GetParam(), call, count, count < 20'000 ? 300 : 30);
      EXPECT_EQ(counts.back(), 0) << name << " of " << count
                                  << " floats: " << ::testing::PrintToString(counts);
    }
}

INSTANTIATE_TEST_SUITE_P(Nodes, Allocation, ::testing::Values(blocks(1, 2), blocks(2, 1), blocks(2, 2)),
                         [](const auto& info) {
                           return std::to_string(info.param.size()) + "ranks" +
                                  (info.param.front() == info.param.back() ? "" : "over2nodes");
                         });
#endif

}  // namespace
}  // namespace weft::testing
