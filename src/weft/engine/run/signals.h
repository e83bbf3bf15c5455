// Signals: how many signals a rank has had of each other one, and how many its calls have waited for.
//
// The puts of a rank count in the order in which they begin there, whatever order they leave and arrive in.
// So a signal is counted when it and all earlier puts of its sender are there.
//
// Thread safety: none; under the context's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/run/one_sided.h"

namespace weft::engine {

class Signals {
 public:
  explicit Signals(int ranks) : peers_(static_cast<size_t>(ranks)) {}

  /// The place of the next put to `peer` among those to it.
  uint32_t next_to(int peer) { return peers_[static_cast<size_t>(peer)].put++; }

  /// A put of `peer` is in place. True if any signal is counted for it.
  bool ended(int peer, uint32_t sequence, std::optional<SignalName> signal) {
    Peer& from = peers_[static_cast<size_t>(peer)];
    from.early.emplace(sequence, signal);
    bool counted = false;
    for (auto next = from.early.find(from.ended); next != from.early.end();
         next = from.early.find(++from.ended)) {
      if (next->second) ++from.counts[*next->second].seen, counted = true;
      from.early.erase(next);
    }
    return counted;
  }

  /// A call waits for `awaited.count` signals more than the calls before it.
  void claim(AwaitedSignals& awaited) {
    awaited.up_to = peers_[static_cast<size_t>(awaited.peer)].counts[awaited.name].claimed += awaited.count;
  }
  bool have_come(const AwaitedSignals& awaited) const { return missing(awaited) == 0; }
  /// How many of them have not come.
  uint64_t missing(const AwaitedSignals& awaited) const {
    const auto found = at(awaited.peer).counts.find(awaited.name);
    const uint64_t seen = found == at(awaited.peer).counts.end() ? 0 : found->second.seen;
    return seen >= awaited.up_to ? 0 : awaited.up_to - seen;
  }

 private:
  struct Count {
    uint64_t seen = 0, claimed = 0;
  };
  struct Peer {
    uint32_t put = 0;                                     // puts to it
    uint32_t ended = 0;                                   // puts of it, all before which are in place
    std::map<uint32_t, std::optional<SignalName>> early;  // those behind them, and what each signals
    std::map<SignalName, Count> counts;
  };
  const Peer& at(int peer) const { return peers_[static_cast<size_t>(peer)]; }

  std::vector<Peer> peers_;
};

}  // namespace weft::engine
