// Whether two specs are of one model, so that what one has learned means the same to the other.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "model/spec.h"

namespace loom::model {

/// What of `stored` is another model's than `wanted`, as "model.heads 4, not 2"; "" where nothing is. Only
/// what changes the meaning of parameters counts: dropout, a longer context without a table of positions, and
/// how random weights begin do not.
std::string difference(const ModelSpec& stored, const ModelSpec& wanted);

}  // namespace loom::model
