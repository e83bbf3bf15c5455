// Cores: which rank has which core, if a node, or the machine of several pretended nodes, has fewer cores
// than ranks. A rank keeps its core while it has something to do there, for any number of messages. Then the
// core goes round its ranks, as sched_yield() in Context's wait makes it. Each turn takes Machine::switch_us,
// also that of a rank that polls and finds nothing. An event for a rank without a core waits for its turn.
//
// Invariants: a rank belongs to one core; one rank at most has it; a rank that has a core and nothing that it
// expects has left it.
//
// Thread safety: none; one simulation's.
#pragma once

#include <cstdint>
#include <vector>

#include "model/cost.h"
#include "model/event_queue.h"

namespace weft::model {

/// The core on which a simulation has a rank where ranks take turns, of all cores of the nodes; -1 if it
/// takes none. A real machine moves its ranks: to compare both, pin them to these cores.
int core_of(const Machine& machine, const topology::Layout& layout, int rank);

class Cores {
 public:
  explicit Cores(const Machine& machine) : machine_(machine) {}

  /// Adds the next rank, on the core of that number (core_of()); -1: it takes no turns.
  void add(int number);

  /// Whether the rank takes turns with others. All that follows is for such ranks only.
  bool shared(size_t rank) const { return seats_[rank].core != kNone; }
  size_t core_of(size_t rank) const { return seats_[rank].core; }
  size_t cores() const { return cores_.size(); }
  bool runs(size_t rank) const {
    const Core& core = cores_[seats_[rank].core];
    return core.state == State::runs && core.rank == rank;
  }

  /// A rank's turn, and when it begins. None: `rank` is kNone.
  struct Turn {
    size_t rank = kNone;
    double at_us = 0;
  };
  static constexpr size_t kNone = SIZE_MAX;

  /// Keeps an event for a rank that does not run. Returns the turn that it brings about.
  Turn keep(size_t rank, const Event& event);
  /// Begins the rank's turn. Returns the events that were kept for it, in order.
  std::vector<Event> begin(size_t rank);
  /// A rank begins something on its core; it ends. A rank that expects nothing has nothing to do.
  void expect(size_t rank) { ++seats_[rank].expected; }
  void happened(size_t rank) { --seats_[rank].expected; }
  /// After something has happened to a rank that runs, whose CPU is busy until `until_us`: if that is all it
  /// has to do, the next turn.
  Turn done(size_t rank, double until_us);

 private:
  enum class State : uint8_t { goes_round, turns, runs };  // turns: somebody is about to run
  struct Core {
    std::vector<size_t> ranks;
    State state = State::goes_round;
    size_t rank = kNone;  // that has it, had it last, or is about to have it
    double left_us = 0;   // when that one left it
  };
  struct Seat {
    size_t core = kNone, place = 0;  // its place among the core's ranks
    uint32_t expected = 0;
    std::vector<Event> kept;
  };

  Turn next(Core& core, double now_us);

  const Machine& machine_;
  std::vector<Core> cores_;
  std::vector<Seat> seats_;  // by rank
};

}  // namespace weft::model
