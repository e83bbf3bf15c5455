// JSON in which a value may say where it is from: 12500, or {"value": 12500, "source": "data sheet, page 3"}.
// An object that is no such value may hold a "source" for all that is in it. This takes the sources away, so
// that what remains can be read as plain JSON.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace weft::model {

/// Parses an object. Errors (invalid_argument, beginning with `what`): text that is no JSON object, a source
/// that is no string, keys beside "value" and "source".
Result<nlohmann::ordered_json> parse_sourced(const std::string& text, const std::string& what);

/// Whether a value is a whole number, however it is written: 1000 and 1e3.
bool is_whole(const nlohmann::ordered_json& json);

/// Every number in `text` (as parse_sourced takes it) that neither itself nor any object around it gives a
/// source, by its path: "machine.rails". An empty source is none.
Result<std::vector<std::string>> numbers_without_source(const std::string& text);

}  // namespace weft::model
