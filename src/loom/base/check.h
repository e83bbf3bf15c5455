// Checks of arguments, with the sentences of their failures.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace loom {

/// invalid_argument if `value` is not positive, naming it.
inline Status at_least_one(std::string_view name, int64_t value) {
  if (value > 0) return {};
  return fail(Code::invalid_argument, "{} is {}, must be at least 1", name, value);
}

/// invalid_argument if `value` is negative, naming it.
inline Status not_negative(std::string_view name, int64_t value) {
  if (value >= 0) return {};
  return fail(Code::invalid_argument, "{} is {}, must not be negative", name, value);
}

/// invalid_argument if `value` is not from 1 to `most`, naming it.
inline Status from_one_to(std::string_view name, int64_t value, int64_t most) {
  if (value > 0 && value <= most) return {};
  return fail(Code::invalid_argument, "{} is {}, must be from 1 to {}", name, value, most);
}

}  // namespace loom
