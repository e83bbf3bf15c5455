// RankState: a rank's share of the model's state in the arena: masters, the optimizer's slots, gradients, and
// parameters of a smaller type. How it begins, and how it is read and written. No byte of it is touched by
// the host but through RankDevice::transfer().
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/rank_device.h"
#include "ops/operators.h"

namespace loom::engine {

/// What all parts of a rank's engine look at. What it refers to must outlive them.
struct RankContext {
  const program::Job& job;
  const Groups& groups;
  const std::vector<model::Unit>& units;  // as this rank holds them
  const std::vector<model::Unit>& whole_units;
  RankDevice& device;
  model::TensorRank tensor;

  device::Context context() const { return device.context(); }
  template <typename T>
  const ops::Operators<T>& table() const {
    return device.table<T>();
  }
  int64_t shard_begin(const model::Unit& unit) const { return groups.member() * job.shard(unit); }
};

struct Range {
  int64_t begin, end;
};

/// Where a unit's state lies; of units that the rank has no part of, nowhere.
template <typename T>
struct UnitState {
  using A = acc_t<T>;
  /// Elements [begin, end) of a shard, in which weight decay applies to all or to none.
  struct Segment {
    int64_t begin, end;
    bool decays;
  };

  A *master = nullptr, *gradient = nullptr;
  ops::Slots<A> slots;
  T* parameters = nullptr;  // the master itself where T is A
  std::vector<Segment> segments;
  std::vector<Range> held_by_all;  // of the shard: parameters that every tensor rank has whole,
  std::vector<Range> summed;       // and those of them whose gradient is a sum over tensor ranks
  bool held() const { return master != nullptr; }
  /// By its number among state_parts().
  A* part(size_t number) const { return number == 0 ? master : slots.at[number - 1]; }
};

template <typename T>
class RankState {
 public:
  using A = acc_t<T>;

  explicit RankState(const RankContext& context) : context_(context) {}

  /// Finds all parts in the arena.
  void find(const program::Program& training, const program::MemoryPlan& memory, std::byte* arena);
  const UnitState<T>& of(int unit) const { return units_[static_cast<size_t>(unit)]; }

  /// Copies masters to parameters; slots get their initial values if they `begin`.
  Status after_load(bool slots_begin);

  // As Engine's functions of these names.
  Status initialize(uint64_t seed);
  Status load_model(const format::SafetensorsReader& file);
  Status check(std::span<const int> owned) const;
  Status save(const std::string& folder, const format::FlatLayout& layout, std::span<const int> owned,
              bool optimizer) const;
  Status load(const StateReaders& readers);

 private:
  void find_unit(const model::Unit& unit);
  template <typename F>
  Status read_masters(F&& read);
  /// Writes a part of a unit's shard; read(first element, where to) gives pieces of it.
  template <typename F>
  Status upload(const model::Unit& held, A* part, F&& read);
  /// Reads one: take(first element, piece).
  template <typename F>
  Status download(const model::Unit& held, const A* part, F&& take) const;
  Status begin_slot(const model::Unit& held, size_t slot);

  const RankContext context_;
  std::vector<UnitState<T>> units_;
};

/// The parts of a unit's state, in the order in which checkpoints have them: the master, and then the slots
/// if `optimizer`.
std::vector<std::string_view> state_parts(const program::Job& job, bool optimizer = true);
/// How one is called in checkpoints.
std::string state_part_name(const model::Unit& unit, std::string_view part);

extern template class RankState<float>;
extern template class RankState<bf16>;
extern template class RankState<fp16>;

}  // namespace loom::engine
