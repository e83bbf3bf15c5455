// Greedy placement by size. Optimal placement is a hard problem; largest first is known to come close, and
// the plan says how close it came.
#include "program/memory.h"

#include <numeric>

#include "program/order.h"

namespace loom::program {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + MemoryPlan::kAlign - 1) / MemoryPlan::kAlign * MemoryPlan::kAlign;
}

/// The lowest offset where `bytes` fit beside what is in use at the same time. `placed` is sorted by offset.
int64_t lowest_gap(const Program& program, const MemoryPlan& plan, const std::vector<Lifetime>& lifetimes,
                   const std::vector<BufferId>& placed, BufferId buffer) {
  const int64_t bytes = aligned(program.buffers[buffer].bytes);
  int64_t at = 0;
  for (const BufferId other : placed) {
    if (program.buffers[other].in_tier != program.buffers[buffer].in_tier) continue;
    if (!lifetimes[other].overlaps(lifetimes[buffer])) continue;
    if (plan.offset[other] >= at + bytes) break;
    at = std::max(at, plan.offset[other] + aligned(program.buffers[other].bytes));
  }
  return at;
}

void find_peak(const Program& program, const std::vector<Lifetime>& lifetimes, MemoryPlan& plan) {
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Lifetime now{2 * i, 2 * i + 1};
    std::array<int64_t, kCategories> bytes{};
    for (size_t b = 0; b < program.buffers.size(); ++b)
      if (!program.buffers[b].in_tier && lifetimes[b].overlaps(now))
        bytes[static_cast<int>(program.buffers[b].category)] += program.buffers[b].bytes;
    const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    if (total <= plan.peak_bytes) continue;
    plan.peak_bytes = total;
    plan.peak = bytes;
    plan.peak_instruction = i;
  }
}

}  // namespace

MemoryPlan plan_memory(const Program& program) {
  const std::vector<Lifetime> lifetimes = lifetimes_of(program);
  MemoryPlan plan;
  plan.offset.assign(program.buffers.size(), -1);
  std::vector<BufferId> order;
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (lifetimes[b].end > 0) order.push_back(static_cast<BufferId>(b));
  std::stable_sort(order.begin(), order.end(), [&](BufferId a, BufferId b) {
    const Buffer &x = program.buffers[a], &y = program.buffers[b];
    return x.persistent != y.persistent ? x.persistent : x.bytes > y.bytes;
  });
  std::vector<BufferId> placed;
  for (const BufferId buffer : order) {
    plan.offset[buffer] = lowest_gap(program, plan, lifetimes, placed, buffer);
    int64_t& bytes = program.buffers[buffer].in_tier ? plan.tier_bytes : plan.bytes;
    bytes = std::max(bytes, plan.offset[buffer] + aligned(program.buffers[buffer].bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer,
                                   [&](BufferId a, BufferId b) { return plan.offset[a] < plan.offset[b]; }),
                  buffer);
  }
  find_peak(program, lifetimes, plan);
  return plan;
}

}  // namespace loom::program
