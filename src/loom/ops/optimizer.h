// Optimizer: what it keeps of each parameter besides the parameter, and its kernel. The kernel is one entry
// of the table of operators (Operators::update), a CPU's or a GPU's. Programs, the memory planner,
// checkpoints and sharding read the slots, and know nothing else of it.
//
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace loom::ops {

/// A number that an optimizer keeps of each element of a parameter, in fp32.
struct Slot {
  const char* name;  // in checkpoints, and of buffers in programs
  float initial;
};

struct Optimizer {
  std::span<const Slot> slots;
};

constexpr size_t kMostSlots = 2;  // of any optimizer
/// The arrays of the slots, in their order.
template <typename A>
struct Slots {
  std::array<A*, kMostSlots> at = {};

  Slots from(int64_t element) const {
    Slots behind;
    for (size_t i = 0; i < kMostSlots; ++i) behind.at[i] = at[i] != nullptr ? at[i] + element : nullptr;
    return behind;
  }
};

/// Settings of a step of AdamW (Loshchilov and Hutter, 2019).
struct AdamW {
  float learning_rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  float gradient_scale = 1;  // applied to the gradient first: clipping
  int64_t step = 1;          // counts from 1; for the correction of the moments' bias
};
inline constexpr Slot kAdamWSlots[] = {{"first_moment", 0}, {"second_moment", 0}};
static_assert(std::size(kAdamWSlots) <= kMostSlots);
inline constexpr Optimizer kAdamW = {kAdamWSlots};

}  // namespace loom::ops
