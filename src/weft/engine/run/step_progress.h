// StepProgress: how far an operation is in its plan: which step each lane does next, what has arrived, and
// which puts are under way.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/run/plan_tables.h"
#include "transport/transport.h"

namespace weft::engine {

class AccessGate;

/// A peer's exposed memory as an operation has learned it.
struct PeerBuffer {
  transport::RemoteBuffer buffer;
  std::byte* mapped = nullptr;       // through which it can be read and written from here, or null
  bool on_device = false;            // `mapped` is GPU memory
  const AccessGate* gate = nullptr;  // of a peer of this process: only an AccessGuard may touch `mapped`
};

struct LaneState {
  uint32_t next = 0;      // position in plan.lane_steps
  uint64_t progress = 0;  // bytes done of a copy or reduce that is under way
  uint64_t since = 0;     // ticks at which the step came up; only while tracing
};

struct StepProgress {
  const PlanTables* laid_out_for = nullptr;  // whose lengths the vectors have
  std::vector<uint8_t> arrived;              // by notification number
  std::vector<PeerBuffer> learned;           // by handle
  std::vector<LaneState> lanes;
  std::vector<uint8_t> step_done;                  // only if the plan has dependencies
  std::vector<transport::Completion> completions;  // by put
  uint32_t lanes_left = 0;
  uint32_t puts_started = 0;
  uint32_t puts_open = 0;                // started, `done` not seen yet
  bool may_move = true;                  // false: every lane waits for a message
  std::optional<uint32_t> put_sequence;  // of a put that has begun: its place among those of its sender

  /// Nothing has arrived. All that the fast path needs.
  void reset_arrivals(const PlanTables& tables);
  /// Every lane is at its first step, at `now` (ticks; 0 unless the times of steps are wanted).
  void reset_steps(const PlanTables& tables, uint64_t now);
  /// Takes over from the fast path, which has kept its lane's next step only.
  void follow_fast_path(const PlanTables& tables);
  /// Whether the steps' part is over.
  bool complete() const { return lanes_left == 0 && puts_open == 0; }
  bool is_done(plan::StepId id, const PlanTables& tables) const {
    const int32_t put = tables.put_of_step[id];
    return put >= 0 ? completions[static_cast<size_t>(put)].done : step_done[id] != 0;
  }
  /// A transport has accepted a put.
  void begin_put(const transport::Completion& completion) {
    ++puts_started;
    if (!completion.done) ++puts_open;
  }
  /// Looks which puts are done by now. True if any is.
  bool reap_puts(const PlanTables& tables);
  /// The peers that are waited for right now: for their notifications, for room to send to them, or for a put
  /// to them that is under way. In ascending order.
  std::vector<int> awaited_peers(const PlanTables& tables) const;
  /// Whether `rank` has yet to be heard from, or to be sent to, or a put to it is under way.
  bool deals_with(int rank, const PlanTables& tables) const;

 private:
  void lay_out(const PlanTables& tables);
};

}  // namespace weft::engine
