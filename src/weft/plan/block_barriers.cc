// Method: take the pairs of accesses that conflict and are not of the same bytes. The earlier access of each
// pair gets a bit. Two sets of bits travel along the edges of the timeline: what happens before an event in
// some block, and what happens before it in all blocks, because a barrier lies between. A later access that
// lacks the second gets a barrier. Events are taken in their order, so that a barrier also serves all
// conflicts behind it.
#include "plan/block_barriers.h"

#include <algorithm>
#include <map>

#include "plan/verify_accesses.h"

namespace weft::plan {
namespace {

using verifier::Event;
using verifier::StepRef;
using verifier::Timeline;

/// Rows of bits, one for each event.
class Rows {
 public:
  Rows(size_t rows, size_t bits) : words_((bits + 63) / 64), data_(rows * words_) {}
  void set(size_t row, size_t bit) { data_[row * words_ + bit / 64] |= uint64_t{1} << bit % 64; }
  bool has(size_t row, size_t bit) const { return data_[row * words_ + bit / 64] >> bit % 64 & 1; }
  void merge(size_t into, const Rows& other, size_t from) {
    for (size_t w = 0; w < words_; ++w) data_[into * words_ + w] |= other.data_[from * words_ + w];
  }

 private:
  size_t words_;
  std::vector<uint64_t> data_;
};

/// Conflicts between different ranges of bytes: the earlier events, and for each event that starts a later
/// access, the earlier ones that all blocks must have behind them.
struct Crossings {
  std::map<Event, size_t> bit_of;
  std::map<Event, std::vector<size_t>> needed_by;
};

Crossings find_crossings(const verifier::World& world, const Timeline& t) {
  Crossings crossings;
  for (auto& accesses : list_accesses(world, t)) {
    for (const verifier::Conflict& conflict : find_conflicts(t, accesses)) {
      const verifier::Access &first = accesses[conflict.first], &second = accesses[conflict.second];
      if (first.bytes == second.bytes) continue;
      const size_t bit = crossings.bit_of.try_emplace(first.event, crossings.bit_of.size()).first->second;
      crossings.needed_by[t.event_of(t.step_of[second.event])].push_back(bit);
    }
  }
  return crossings;
}

void add_barriers(const verifier::World& world, const Timeline& t, BlockBarriers& barriers) {
  const Crossings crossings = find_crossings(world, t);
  if (crossings.bit_of.empty()) return;
  Rows in_a_block(t.before.size(), crossings.bit_of.size()), in_all(t.before.size(), crossings.bit_of.size());
  for (const Event event : t.order) {
    for (const Event earlier : t.before[event]) {
      in_a_block.merge(event, in_a_block, earlier);
      in_all.merge(event, in_all, earlier);
    }
    const StepRef ref = t.step_of[event];
    if (event == t.event_of(ref)) {
      const auto needed = crossings.needed_by.find(event);
      const bool lacks = needed != crossings.needed_by.end() &&
                         std::any_of(needed->second.begin(), needed->second.end(),
                                     [&](size_t bit) { return !in_all.has(event, bit); });
      if (lacks) barriers.before[static_cast<size_t>(ref.rank)][ref.id] = true;
      if (barriers.before[static_cast<size_t>(ref.rank)][ref.id]) in_all.merge(event, in_a_block, event);
    }
    if (const auto tracked = crossings.bit_of.find(event); tracked != crossings.bit_of.end())
      in_a_block.set(event, tracked->second);
  }
}

}  // namespace

int BlockBarriers::count() const {
  ptrdiff_t count = 0;
  for (const auto& steps : before) count += std::count(steps.begin(), steps.end(), true);
  return static_cast<int>(count);
}

Result<BlockBarriers> find_block_barriers(std::span<const Plan> plans, const topology::Layout& layout,
                                          const Limits& limits) {
  BlockBarriers barriers;
  std::vector<const Plan*> pointers;
  for (const Plan& plan : plans) {
    pointers.push_back(&plan);
    barriers.before.emplace_back(plan.steps.size(), false);
  }
  for (const bool in_place : {false, true}) {
    if (plans.empty() || (in_place && plans[0].request.disjoint)) continue;
    verifier::World world(pointers, layout, limits, in_place);
    WEFT_TRY(world.check_structure());
    Timeline timeline;
    WEFT_TRY(order_events(world, timeline));
    add_barriers(world, timeline, barriers);
  }
  return barriers;
}

}  // namespace weft::plan
