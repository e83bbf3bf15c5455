// HostSteps: the step operations on host memory. A long copy or reduction is cut into turns. Memory of a peer
// is read where it is mapped, or else by the transport, with its owner's help where it is long.
//
// Thread safety: under the context's lock.
#pragma once

#include "engine/run/step_parts.h"

namespace weft::engine {

class HostSteps : public LaneSteps {
 public:
  using LaneSteps::LaneSteps;

  StepOutcome put(plan::StepId id, const plan::Step& step);
  StepOutcome signal(const plan::Step& step);
  StepOutcome copy(const plan::Step& step, LaneState& lane);
  StepOutcome reduce(const plan::Step& step, LaneState& lane);

 private:
  StepOutcome copy_pieces(const plan::Step& step, LaneState& lane, SourceReading& source);
  inline StepOutcome reduce_block(const plan::Step& step, const device::Reduction& reduction, uint64_t at,
                                  uint64_t bytes, std::byte* bounce);
  bool admitted(const AccessGuard& guard, const plan::Step& step) const;
  void begin_readings(const plan::Step& step);
  bool pieces_there(const plan::Step& step, uint64_t& bytes);
  void finish_pieces(const plan::Step& step);
  Result<const std::byte*> read_source(uint32_t region, uint64_t at, uint64_t bytes, std::byte* bounce);
  uint64_t streamed_bytes(const plan::Step& step, bool slice = false) const;
  const std::byte* address(uint32_t region) const;
};

}  // namespace weft::engine
