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

/// Parses an object as it stands. Errors (invalid_argument, beginning with `what`): text that is no JSON
/// object, the same key twice in one object, more than 64 levels of nesting.
Result<nlohmann::ordered_json> parse_object(const std::string& text, const std::string& what);

/// As parse_object(), without the sources. Errors besides: a source that is no string, keys beside "value"
/// and "source".
Result<nlohmann::ordered_json> parse_sourced(const std::string& text, const std::string& what);

/// The refusal of a key that is none of `known`: it names all of them, and the nearest one first.
Status unknown_key(const std::string& what, const std::string& key, const std::vector<std::string>& known);
/// Refuses keys of an object that are none of `known`; `path` is what the object is called: "" or "fabric".
Status check_keys(const nlohmann::ordered_json& object, const std::string& what, const std::string& path,
                  const std::vector<std::string>& known);

/// Whether a value is a whole number, however it is written: 1000 and 1e3.
bool is_whole(const nlohmann::ordered_json& json);

/// Whether a value is a text that can be printed: one without control characters.
bool is_name(const nlohmann::ordered_json& json);

/// Every number in `text` (as parse_sourced takes it) that neither itself nor any object around it gives a
/// source, by its path: "machine.rails". An empty source is none.
Result<std::vector<std::string>> numbers_without_source(const std::string& text);

}  // namespace weft::model
