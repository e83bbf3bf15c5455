// The families: what makes a GPT-J out of a spec.
//
// Thread safety: pure functions.
#pragma once

#include <string_view>

#include "model/spec.h"

namespace loom::model {

/// As `model_type` of config.json has it: "gpt2", "gpt_neox", "llama" …
const char* family_name(Family family);

/// invalid_argument with the names that there are.
Result<Family> family_from(std::string_view name);

/// What a family is made for.
Task usual_task(Family family);

/// A spec with the family's choices and no sizes. Rotary dimensions and local layers, which sizes decide, are
/// set by complete(). Errors: unsupported, when the family has no head for the task, with those that have.
Result<ModelSpec> choices_of(Family family, Task task);

/// Fills in what is still 0 and depends on sizes, after these are known. feed_forward is 4 · width; where it
/// is gated 8/3 · width, rounded up to a multiple of 256, which is about as many weights. Rotary dimensions
/// are a quarter of a head, at least 2. A family's description has other rules, which come first.
void complete(ModelSpec& spec);

}  // namespace loom::model
