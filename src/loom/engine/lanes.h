// Lanes: what is in flight beside computing. Each lane of a program is a queue. There are two kinds: those of
// arenas in host memory (here), and those of arenas on a GPU (gpu_lanes.h).
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
  virtual ~Lanes() = default;
  Lanes() = default;
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// By what a call of Weft puts the instruction on its lane.
  virtual weftStream_t stream(const program::Instruction& instruction) const = 0;
  /// Begins to move memory to the tier, or back.
  virtual void move(size_t index, const program::Instruction& instruction, int64_t offset, std::byte* memory,
                    int64_t bytes) = 0;
  /// What instruction `index` has put on its lane is over when all up to now is.
  virtual Status note_issued(size_t index, const program::Instruction& instruction) = 0;
  /// From here on all comes after what the instruction comes after, while later operations of those lanes go
  /// on.
  virtual Status wait_before(const program::Program& program, const program::Instruction& instruction) = 0;
  /// From here on all comes after all that was issued.
  virtual Status wait_all() = 0;

  /// In which this rank has waited since the last call.
  virtual double take_waited_seconds() = 0;
};

/// Each lane is a stream of Weft, or the tier's. An instruction on a lane has a ticket, and is over when all
/// up to that ticket is. The host waits.
class HostLanes final : public Lanes {
 public:
  ~HostLanes() override;

  /// For the lanes of a program, and for others that have no more lanes than it. Errors: as Tier::create(),
  /// system_error.
  Status create(const program::Program& program, const std::string& tier_folder, int64_t tier_bytes);

  weftStream_t stream(const program::Instruction& instruction) const override {
    return streams_[static_cast<size_t>(instruction.lane - 1)];
  }
  void move(size_t index, const program::Instruction& instruction, int64_t offset, std::byte* memory,
            int64_t bytes) override;
  Status note_issued(size_t index, const program::Instruction& instruction) override;
  Status wait_before(const program::Program& program, const program::Instruction& instruction) override;
  Status wait_all() override;
  double take_waited_seconds() override;

 private:
  Status wait(int lane, uint64_t ticket);

  std::vector<weftStream_t> streams_;    // of lanes 1, 2, …; nullptr for the tier's
  std::vector<uint64_t> issued_, over_;  // by lane: the last ticket, and that which was waited for
  std::vector<uint64_t> tickets_;        // of each instruction on a lane
  std::unique_ptr<Tier> tier_;           // where something is offloaded
  int tier_lane_ = 0;
  double waited_seconds_ = 0;
};

/// How many lanes a program has.
int lanes_of(const program::Program& program);

}  // namespace loom::engine
