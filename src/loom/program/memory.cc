// Greedy placement by size. Optimal placement is a hard problem; largest first is known to come close, and
// the plan says how close it came.
#include "program/memory.h"

#include <algorithm>
#include <numeric>

#include "base/round.h"
#include "program/occupancy.h"
#include "program/order.h"

namespace loom::program {
namespace {

int64_t aligned(int64_t bytes) { return round_up(bytes, MemoryPlan::kAlign); }

/// Places buffers one after the other, each at the lowest offset where it fits beside what is in use at the
/// same time. Persistent ones come first, and lie side by side below all others.
class Placement {
 public:
  Placement(const Program& program, MemoryPlan& plan)
      : program_(program),
        plan_(plan),
        lifetimes_(lifetimes_of(program)),
        taken_{Occupancy(program.instructions.size()), Occupancy(program.instructions.size())} {}

  void place(BufferId buffer) {
    const Buffer& own = program_.buffers[buffer];
    int64_t& all = own.in_tier ? plan_.tier_bytes : plan_.bytes;
    int64_t& floor = floor_[own.in_tier];
    const int64_t bytes = aligned(own.bytes);
    int64_t at = floor;
    if (own.persistent) {
      floor += bytes;
    } else {
      Occupancy& taken = taken_[own.in_tier];
      at = taken.lowest(lifetimes_[buffer], bytes, floor);
      taken.add(lifetimes_[buffer], at, at + bytes);
    }
    plan_.offset[buffer] = at;
    all = std::max(all, at + bytes);
  }

  const std::vector<Lifetime>& lifetimes() const { return lifetimes_; }

 private:
  const Program& program_;
  MemoryPlan& plan_;
  const std::vector<Lifetime> lifetimes_;
  Occupancy taken_[2];         // of the arena and of the tier
  int64_t floor_[2] = {0, 0};  // above what is persistent
};

/// Goes through the program with what begins and what ends at each instruction.
void find_peak(const Program& program, const std::vector<Lifetime>& lifetimes, MemoryPlan& plan) {
  const size_t count = program.instructions.size();
  std::vector<std::array<int64_t, kCategories>> change(count + 1);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    const Lifetime& lifetime = lifetimes[b];
    if (buffer.in_tier || lifetime.end <= lifetime.begin) continue;
    const auto category = static_cast<size_t>(buffer.category);
    change[static_cast<size_t>(lifetime.begin / 2)][category] += buffer.bytes;
    change[static_cast<size_t>((lifetime.end + 1) / 2)][category] -= buffer.bytes;
  }
  std::array<int64_t, kCategories> bytes{};
  for (size_t i = 0; i < count; ++i) {
    for (size_t category = 0; category < kCategories; ++category) bytes[category] += change[i][category];
    const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    if (total <= plan.peak_bytes) continue;
    plan.peak_bytes = total;
    plan.peak = bytes;
    plan.peak_instruction = static_cast<int>(i);
  }
}

}  // namespace

MemoryPlan plan_memory(const Program& program) {
  MemoryPlan plan;
  plan.offset.assign(program.buffers.size(), -1);
  Placement placement(program, plan);
  const std::vector<Lifetime>& lifetimes = placement.lifetimes();
  std::vector<BufferId> order;
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (lifetimes[b].end > 0) order.push_back(static_cast<BufferId>(b));
  std::stable_sort(order.begin(), order.end(), [&](BufferId a, BufferId b) {
    const Buffer &x = program.buffers[a], &y = program.buffers[b];
    return x.persistent != y.persistent ? x.persistent : x.bytes > y.bytes;
  });
  for (const BufferId buffer : order) placement.place(buffer);
  find_peak(program, lifetimes, plan);
  return plan;
}

}  // namespace loom::program
