// JSON as text where a user's words are in it: what is not UTF-8 in them becomes U+FFFD instead of an
// exception.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weft {

/// `indent` < 0: on one line.
inline std::string json_text(const nlohmann::ordered_json& value, int indent = -1) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace weft
