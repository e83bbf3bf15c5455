// Round: what the ranks of one job do, from the first communicator to the end, and what happens to them
// meanwhile. A round follows from its seed alone, so that every process makes the same one.
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/weft.h"

namespace soak {

inline constexpr int kWorkers = 3;  // processes that live on from round to round
inline constexpr int kVictims = 2;  // most processes of a round that may die
inline constexpr int kStreams = 3;

enum class What : uint8_t {
  all_reduce,
  reduce,
  broadcast,
  reduce_scatter,
  all_gather,
  all_to_all,
  gather,
  scatter,
  ring_exchange,  // each rank sends to the next and receives from the one before, in a group
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v,
};
inline constexpr int kWhats = 12;
const char* name_of(What what);

struct Call {
  What what{};
  weftDataType_t type{};
  weftRedOp_t op{};
  size_t count = 0;  // of a rank's block; of the ...V calls the least
  int root = 0;
  bool in_place = false;
  bool shareable = false;  // the memory is of weftMemAlloc()
  uint64_t seed = 0;       // of the values
};

enum class Mode : uint8_t { blocking, streams, group };

/// A piece of a round's script.
struct Act {
  enum class Kind : uint8_t { calls, split, drop } kind{};
  int comm = 0;  // which communicator: 0 is the world, then in the order of the splits
  // Of calls.
  Mode mode{};
  std::vector<Call> calls;
  // Of a split: by rank of the parent.
  std::vector<int> colors, keys;
};

std::string describe(const Act& act);

enum class Event : uint8_t { none, death, stop, slow, abort };

struct Round {
  uint64_t seed = 0;
  std::vector<int> node_of, process_of;  // by rank; processes from kWorkers on are victims
  std::vector<Act> script, after;        // `after`: of the survivors, on the world without the dead
  Event event = Event::none;
  int at_act = 0;    // a death, a pause or an abort comes before this act …
  int at_us = -1;    // … or, a death, so long after all have met; -1: at the act
  int pause_ms = 0;  // of a stop or a slow rank
  int chosen = 0;    // the rank that is slow or aborts, the worker that is stopped
  bool strict = false, nonblocking = false, finalize = false;

  int ranks() const { return static_cast<int>(node_of.size()); }
  /// Whether any rank lives in this process.
  bool uses(int process) const;
  /// Ranks that die, ascending.
  std::vector<int> dead() const;
  std::string describe() const;
};

Round make_round(uint64_t seed);

/// Which ranks of the parent get a communicator in a split, by color, in the order of their ranks there;
/// those of `rank`'s color.
std::vector<int> members_of_split(const Act& split, int rank);

}  // namespace soak
