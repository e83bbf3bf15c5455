// Lanes: what is in flight beside computing. Each lane of a program is a queue: a stream of Weft, or the
// tier's. An instruction on a lane has a ticket, and is over when all up to that ticket is.
//
// Thread safety: one thread.
#pragma once

#include <weft/weft.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/tier.h"
#include "program/program.h"

namespace loom::engine {

class Lanes {
 public:
  Lanes() = default;
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// For the lanes of a program, and for others that have no more lanes than it. Errors: as Tier::create(),
  /// system_error.
  Status create(const program::Program& program, const std::string& tier_folder, int64_t tier_bytes);

  weftStream_t stream(const program::Instruction& instruction) const {
    return streams_[static_cast<size_t>(instruction.lane - 1)];
  }
  /// Begins to move memory to the tier, or back.
  void move(size_t index, const program::Instruction& instruction, int64_t offset, std::byte* memory,
            int64_t bytes);
  /// What instruction `index` has put on its lane is over when all up to now is.
  Status note_issued(size_t index, const program::Instruction& instruction);
  /// Waits for what an instruction comes after, while later operations of those lanes go on.
  Status wait_before(const program::Program& program, const program::Instruction& instruction);
  /// Waits for all that was issued.
  Status wait_all();

  /// In which this rank has waited since the last call.
  double take_waited_seconds();

 private:
  Status wait(int lane, uint64_t ticket);

  std::vector<weftStream_t> streams_;    // of lanes 1, 2, …; nullptr for the tier's
  std::vector<uint64_t> issued_, over_;  // by lane: the last ticket, and that which was waited for
  std::vector<uint64_t> tickets_;        // of each instruction on a lane
  std::unique_ptr<Tier> tier_;           // where something is offloaded
  int tier_lane_ = 0;
  double waited_seconds_ = 0;
};

}  // namespace loom::engine
