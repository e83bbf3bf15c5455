// Call: what a caller asks for, after the API has checked it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/types.h"
#include "plan/plan.h"

namespace weft::engine {

struct OneSided;
struct PlanTables;
class Stream;

/// What a call is for. Calls for different things never match.
enum class Purpose : uint8_t {
  caller,  // a collective or a transfer of the caller's
  split,   // the AllGather of a split
  grow,    // the AllGather of a growth
  window,  // the AllGather of a window's registration
  put,     // either end of a put (one_sided.h)
  wait,    // for signals
};

struct Call {
  plan::Collective collective = plan::Collective::all_reduce;
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t count = 0;
  device::DataType type = device::DataType::float32;
  device::ReduceOp op = device::ReduceOp::sum;
  bool premultiply = false;        // sum of inputs × scalar
  bool scalar_is_address = false;  // of where it is to be read when the CUDA stream has come
  std::byte scalar[8] = {};        // one element
  int root = 0;                    // or peer
  double timeout_s = 0;            // 0: the communicator's
  /// Of a collective whose blocks have sizes of their own; else null.
  std::shared_ptr<const plan::Uneven> uneven = nullptr;
  std::shared_ptr<const OneSided> one_sided = nullptr;  // of a put, and of a wait for signals; else null
  Stream* stream = nullptr;                             // null: the caller waits
  bool on_device = false;                               // GPU memory, in order after `cuda_stream`
  Purpose purpose = Purpose::caller;
  void* cuda_stream = nullptr;
};

/// Whether two buffers of so many bytes have bytes in common.
inline bool overlap(const void* a, const void* b, uint64_t bytes) {
  const auto* const first = static_cast<const std::byte*>(a);
  const auto* const second = static_cast<const std::byte*>(b);
  return first < second + bytes && second < first + bytes;
}

/// A call with the plan that does it: what a group or a CUDA graph keeps until it starts the call.
struct PlannedCall {
  Call call;
  std::shared_ptr<const PlanTables> tables;
};

}  // namespace weft::engine
