#include "model/cores.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::model {
namespace {

/// The core, of `cores`, of the rank with number `local` among those that share them. The kernel moves ranks
/// every few milliseconds, so no algorithm's pattern falls together with the cores for long. With rank mod
/// cores, a tree whose inner ranks are all even would keep one core busy. The sum of the digits to the base
/// `cores` shuffles the ranks and spreads them evenly.
int core_of_local(int local, int cores) {
  if (cores == 1) return 0;
  int sum = 0;
  for (int rest = local; rest > 0; rest /= cores) sum += rest % cores;
  return sum % cores;
}

}  // namespace

int core_of(const Machine& machine, const topology::Layout& layout, int rank) {
  const int node = layout.node_of(rank);
  const Turns turns = turns_of(machine, layout, node);
  if (turns.cores == 0) return -1;
  if (turns.across_nodes) return core_of_local(rank, turns.cores);
  return node * turns.cores + core_of_local(layout.local_index(rank), turns.cores);
}

void Cores::add(int number) {
  Seat seat;
  if (number >= 0) {
    seat.core = static_cast<size_t>(number);
    if (cores_.size() <= seat.core) cores_.resize(seat.core + 1);
    Core& core = cores_[seat.core];
    seat.place = core.ranks.size();
    if (core.ranks.empty()) core.rank = seats_.size();
    core.ranks.push_back(seats_.size());
  }
  seats_.push_back(std::move(seat));
}

Cores::Turn Cores::keep(size_t rank, const Event& event) {
  Seat& seat = seats_[rank];
  seat.kept.push_back(event);
  Core& core = cores_[seat.core];
  return core.state == State::goes_round ? next(core, event.at_us) : Turn{};
}

std::vector<Event> Cores::begin(size_t rank) {
  cores_[seats_[rank].core].state = State::runs;
  return std::exchange(seats_[rank].kept, {});
}

Cores::Turn Cores::done(size_t rank, double until_us) {
  if (seats_[rank].expected > 0) return {};
  Core& core = cores_[seats_[rank].core];
  core.state = State::goes_round;
  core.left_us = until_us;
  return next(core, until_us);
}

/// The rank of a core that goes round which has something to do first, and when.
Cores::Turn Cores::next(Core& core, double now_us) {
  const size_t ranks = core.ranks.size();
  const double turn_us = machine_.switch_us;
  // Where it has got to by now.
  const double since_us = std::max(now_us - core.left_us, 0.0);
  const double turns = turn_us > 0 ? std::ceil(since_us / turn_us) : 0;
  const auto turned = static_cast<size_t>(std::fmod(turns, static_cast<double>(ranks)));
  const size_t place = seats_[core.rank].place + turned;
  for (size_t further = 0; further < ranks; ++further) {
    const size_t rank = core.ranks[(place + further) % ranks];
    if (seats_[rank].kept.empty()) continue;
    core.state = State::turns;
    core.rank = rank;
    return {rank, std::max(core.left_us + (turns + static_cast<double>(further)) * turn_us, now_us)};
  }
  return {};
}

}  // namespace weft::model
