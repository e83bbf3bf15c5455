// The signature of a call: what all ranks of a collective, or both ends of a transfer, must agree on, as a
// number that travels in every envelope.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>

#include "engine/run/operation.h"

namespace weft::engine {

inline uint32_t signature_of(const Call& call, const PlanTables& tables) {
  uint64_t hash = 0;
  const auto mix = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  };
  const bool transfer = plan::is_transfer(call.collective);
  mix((transfer ? 255 : static_cast<uint64_t>(call.collective)) | static_cast<uint64_t>(call.type) << 8 |
      static_cast<uint64_t>(call.purpose) << 16);
  mix(call.count);
  if (call.uneven) mix(call.uneven->hash | 1);
  if (plan::reduces(call.collective))
    mix(static_cast<uint64_t>(call.op) | uint64_t{call.premultiply} << 8 |
        uint64_t{tables.plan.request.strict} << 9);
  if (!transfer) mix(static_cast<uint64_t>(call.root));
  mix(tables.algorithm_hash ^ tables.plan.request.disjoint);
  return static_cast<uint32_t>(hash);
}

}  // namespace weft::engine
