// What the parts of the verifier share: all plans as one world of events over the ranks' memory. Private to
// the verifier.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace weft::plan::verifier {

/// Bytes of one rank's memory. In place, input and output are one arena.
struct Interval {
  int rank = 0;
  int arena = 0;
  uint64_t begin = 0, end = 0;

  bool overlaps(const Interval& other) const {
    return rank == other.rank && arena == other.arena && begin < other.end && other.begin < end;
  }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// A step that has a notification's other end.
struct StepRef {
  int rank = -1;
  StepId id = kNoStep;
};

class World {
 public:
  /// plans[r] is null where rank r takes no part.
  World(std::vector<const Plan*> plans, const topology::Layout& layout, const Limits& limits, bool in_place)
      : plans_(std::move(plans)), layout_(layout), limits_(limits), in_place_(in_place) {}

  int ranks() const { return static_cast<int>(plans_.size()); }
  bool takes_part(int rank) const { return plans_[rank] != nullptr; }
  const Plan& plan(int rank) const { return *plans_[rank]; }
  const Step& step(StepRef ref) const { return plan(ref.rank).steps[ref.id]; }
  const topology::Layout& layout() const { return layout_; }
  const Limits& limits() const { return limits_; }

  uint64_t size_of(int rank, Space space) const;
  /// The bytes of a space of `owner` that rank `by` may name: of an uneven collective a block.
  uint64_t size_for(int by, int owner, Space space) const;
  /// Where a region is that rank `by` names.
  Interval locate(int by, const Region& region, uint64_t bytes) const;
  /// "rank 2 step 5 (wait for rank 0, tag 1)".
  std::string name_of(StepRef ref) const;
  /// "rank 2's scratch [0, 64)".
  static std::string name_of(const Region& region, uint64_t bytes);

  /// Checks everything about single steps and about pairs of notifications; fills in senders.
  Status check_structure();
  /// After check_structure: the put or signal that a wait is for.
  StepRef sender(int rank, const Step& wait) const {
    return senders_[rank][plan(rank).wait_begin[wait.peer] + wait.tag];
  }

 private:
  Status check_tables(int rank) const;
  Status check_step(StepRef ref) const;
  Status check_regions(StepRef ref) const;
  Status check_overlap(StepRef ref) const;
  Status match_waits(int rank);
  Status match_sends(int rank);
  Status check_all_sent(int rank) const;

  std::vector<const Plan*> plans_;
  const topology::Layout& layout_;
  const Limits& limits_;
  const bool in_place_;
  std::vector<std::vector<StepRef>> senders_;
};

/// An event is a point in a plan's execution. Every step has one, numbered by rank and step; a put is started
/// there, and has two more: its source has been read, and its data has been written.
using Event = uint32_t;

struct Timeline {
  std::vector<Event> first_event;  // of each rank; one more at the end
  std::vector<StepRef> step_of;    // of each event
  std::vector<Event> read_of;      // by event of a put's start: its source has been read; written is the next
  std::vector<std::vector<Event>> before;  // direct predecessors of each event
  std::vector<Event> order;                // all events, each after its predecessors
  std::vector<uint32_t> position;          // of each event in `order`

  Event event_of(StepRef ref) const { return first_event[ref.rank] + ref.id; }
  /// What a step that names this one in `after` waits for.
  Event completion_of(StepRef ref) const {
    const Event event = event_of(ref);
    return read_of[event] != 0 ? read_of[event] : event;
  }
};

/// Orders all events, or says which rank is stuck.
Status order_events(const World& world, Timeline& timeline);
Status check_exposures(const World& world, const Timeline& timeline);
Status check_races(const World& world, const Timeline& timeline);
Status check_result(const World& world, const Timeline& timeline);

}  // namespace weft::plan::verifier
