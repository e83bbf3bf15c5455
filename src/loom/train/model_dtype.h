// The type that a saved model's parameters are stored in. `transformers` computes in it, unless it is told
// another.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "base/status.h"
#include "format/dtype.h"
#include "format/json_file.h"

namespace loom::train {

/// `setting` is "fp32", "bf16", "fp16", or "auto": what `origin` says, a config.json (null for none), or fp32
/// where it says none of these. Errors: invalid_argument (another setting).
Result<format::DType> model_dtype(const std::string& setting, const format::Json& origin);

/// Sets dtype and torch_dtype of a config.json.
void set_dtype(format::DType dtype, format::Json& config);
/// Copies both keys of `config` to `origin`.
void take_dtype(const format::Json& config, format::Json& origin);

}  // namespace loom::train
