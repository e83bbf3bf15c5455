// OperationMemory: where an operation on host or GPU memory works: the base address of each space of its
// plan. They are the caller's buffers and scratch, or copies of them that peers can reach.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/run/plan_tables.h"
#include "engine/run/scratch.h"
#include "transport/transport.h"

namespace weft::engine {

struct OperationMemory {
  std::byte* base[3] = {};  // by plan::Space
  uint64_t bytes[3] = {};
  ScratchPool::Block scratch;
  ScratchPool::Block staged_input, staged_output;  // copies, in windows, of buffers that no peer could read
  alignas(64) std::byte inline_scratch[kInlineScratch];

  /// The caller's buffers of a call.
  void use(const void* send, void* recv) {
    base[0] = static_cast<std::byte*>(const_cast<void*>(send));
    base[1] = static_cast<std::byte*>(recv);
  }
  /// The same, and their lengths, of the first call by these tables.
  void use(const void* send, void* recv, const PlanTables& tables) {
    use(send, recv);
    base[2] = inline_scratch;
    for (int space = 0; space < 3; ++space) bytes[space] = tables.bytes[space];
  }
  std::byte* at(const plan::Region& region) const {
    return base[static_cast<int>(region.space)] + region.offset;
  }
  /// Whether a message's payload has room where its envelope says, in a collective whose blocks are equal.
  bool fits(const transport::Envelope& envelope) const {
    return envelope.space <= 2 && envelope.fits_in(bytes[envelope.space]);
  }
};

}  // namespace weft::engine
