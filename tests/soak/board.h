// Board: memory that the driver of the soak test shares with all its processes. It carries what the ranks of
// a round need to meet, and what they have found.
//
// Thread safety: atomics, and texts that are written once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "round.h"
#include "weft/weft.h"

namespace soak {

/// What a process uses while it has no communicator.
struct Usage {
  int descriptors = 0, threads = 0;
  int64_t heap_bytes = 0, resident_bytes = 0;
};
/// Of this process.
Usage measure_usage();

struct Board {
  // Of the round.
  uint64_t seed = 0;
  weftUniqueId id{};
  std::atomic<bool> id_ready{false};
  std::atomic<int> met{0};
  std::array<Usage, kWorkers> usage{};  // before the round

  // Of all rounds.
  bool trace = false;  // every rank tells on stderr what it does
  std::atomic<uint64_t> calls{0};
  std::atomic<bool> has_finding{false};
  std::array<char, 4096> finding{};

  void begin_round(uint64_t round_seed);
  /// Keeps the first.
  void report(const std::string& what);
};

}  // namespace soak
