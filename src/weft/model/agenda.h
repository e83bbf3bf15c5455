// Agenda: what is to happen in a simulation, and when. It joins the event queue and the turns of ranks that
// share cores (model/cores.h). An event for a rank without a core waits until the rank has one.
//
// Invariant: if a rank keeps its core for an event, the event is expected (Cores::expect()) from its push
// until it has happened.
//
// Thread safety: none; one simulation's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/cores.h"
#include "model/event_queue.h"
#include "model/ranks.h"
#include "model/workers.h"

namespace weft::model {

class Agenda {
 public:
  /// All must live as long.
  Agenda(const Machine& machine, Ranks& ranks, const Workers& workers)
      : ranks_(ranks), workers_(workers), cores_(machine) {}

  /// Adds the next rank, as Cores::add().
  void add(int core) { cores_.add(core); }
  const Cores& cores() const { return cores_; }

  void push(double at_us, EventKind kind, const RankState& rank, plan::StepId step, double floor_us = 0) {
    push({at_us, 0, floor_us, rank.rank, step, kNoFlight, 0, kind, rank.call}, rank);
  }
  /// Adds the next event of the same message. Its sender may be in another call by then.
  void pass_on(const Event& message, double at_us, EventKind kind, double floor_us = 0) {
    const uint32_t flight = message.flight == kGathered ? kGathered : kNoFlight;
    push({at_us, 0, floor_us, message.rank, message.step, flight, 0, kind, message.call}, ranks_.of(message));
  }
  /// `rank` is the event's.
  void push(const Event& event, const RankState& rank) {
    if (cores_.cores() > 0 && is_expected(event.kind)) {
      const size_t worker = happens_to(event)->worker;
      if (cores_.shared(worker)) cores_.expect(worker);
    }
    events_.push(event, rank.local);
  }

  bool empty() const { return events_.empty(); }
  uint64_t handled() const { return events_.handled(); }

  /// Takes the next event and calls happen(event) for it. If the event begins a rank's turn, calls it for all
  /// events that have waited for the turn. If the event has to wait for a turn, calls nothing.
  template <class Happen>
  void next(Happen&& happen) {
    const Event event = events_.pop();
    const RankState* const rank = cores_.cores() > 0 ? happens_to(event) : nullptr;
    if (rank == nullptr || !cores_.shared(rank->worker)) return happen(event);
    if (event.kind == EventKind::turn) {
      for (Event& kept : cores_.begin(rank->worker)) {
        kept.at_us = event.at_us;
        happen(kept);
      }
    } else if (!cores_.runs(rank->worker)) {
      return take_turn(cores_.keep(rank->worker, event));
    } else {
      happen(event);
    }
    if (is_expected(event.kind)) cores_.happened(rank->worker);
    take_turn(cores_.done(rank->worker, std::max(event.at_us, workers_.free_us(rank->worker))));
  }

 private:
  /// The rank whose core an event needs: its own, or the receiver of a message that has arrived. Null: none.
  const RankState* happens_to(const Event& event) const {
    const RankState& rank = ranks_.of(event);
    switch (event.kind) {
      case EventKind::core:
      case EventKind::wire: return nullptr;
      case EventKind::land:
      case EventKind::filed:
      case EventKind::came:
      case EventKind::found: return &ranks_.receiver_of(rank, rank.step(event.step));
      default: return &rank;
    }
  }
  /// Whether a rank causes an event on its core, and keeps the core until then.
  static bool is_expected(EventKind kind) {
    switch (kind) {
      case EventKind::ended:
      case EventKind::inject:
      case EventKind::taken:
      case EventKind::filed:
      case EventKind::found:
      case EventKind::next:
      case EventKind::turn: return true;
      default: return false;
    }
  }

  void take_turn(const Cores::Turn& turn) {
    if (turn.rank != Cores::kNone) push(turn.at_us, EventKind::turn, ranks_.all()[turn.rank], 0);
  }

  Ranks& ranks_;
  const Workers& workers_;
  Cores cores_;
  EventQueue events_;
};

}  // namespace weft::model
