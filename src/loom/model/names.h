// What a family calls its parameters, and how it lays them out.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/units.h"

namespace loom::model {

/// The tensors that a parameter is stored in: one, or one for each of its `blocks` (Parameter::blocks), as
/// q, k and v, or gate and up. `layer` is a block's. Errors:
/// none: every part that units_of() makes for a spec has a name.
std::vector<Source> sources_of(const ModelSpec& spec, Part part, int64_t layer,
                               const std::vector<uint64_t>& shape, const std::vector<int64_t>& blocks);

/// A tensor that a tied head uses: `name`, as the model's own parameter is called, and `copy`, as a
/// checkpoint may have it for a second time, or alone.
struct TiedName {
  std::string name, copy;
};
/// None where the head is not tied.
std::vector<TiedName> tied_names(const ModelSpec& spec);

/// A tensor's name without the leading name of the model's body ("transformer.", "bert." …), which some
/// checkpoints leave out; the name itself where it has none.
std::string_view bare_name(std::string_view name);

/// How BERT's first checkpoints, which were converted from TensorFlow, call a tensor: their norms have
/// "gamma" and "beta" for weight and bias. "" where the name is no such norm's.
std::string older_name(std::string_view name);

}  // namespace loom::model
