// JSON files such as Hugging Face's config.json, read and written whole, and values taken out of them with
// errors that name the key.
//
// Thread safety: functions; safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace loom::format {

/// Keeps the order of keys, so that a file that is read and written again stays as it was. Looking up a key
/// takes time in proportion to their number.
using Json = nlohmann::ordered_json;
/// For objects of very many keys, such as a vocabulary: sorted by key.
using SortedJson = nlohmann::json;

/// Errors (invalid_data): bad JSON, with line and column; nothing, a NUL byte, or the byte order mark of
/// UTF-16; the same key twice in one object; nesting deeper than 100.
Result<Json> parse_json(std::string_view text);
/// As parse_json, from a file of at most 1 GiB. The sentence names the file.
Result<Json> read_json(const std::string& path);
Result<SortedJson> read_sorted_json(const std::string& path);
/// Replaces the file, atomically; indented by 2. Errors: invalid_argument for text that is not UTF-8;
/// disk_full, system_error.
Status write_json(const std::string& path, const Json& json);

/// `folder`/config.json, which must be an object with a text "model_type". Errors: as read_json(), not_found.
Result<Json> read_config(const std::string& folder);
Status write_config(const std::string& folder, const Json& config);

/// The number that is written with the fewest digits of those that are this float: 1e-6, and not
/// 9.999999974752427e-07.
double shortest(float value);

/// The value of `key`, which must be there; null counts as not there. Errors (invalid_data): no object, no
/// such key (with the one most like it), another type, or a number that T cannot hold.
/// T is bool, int, int64_t, uint64_t, float, double, std::string, std::vector<int64_t> or
/// std::vector<std::string>.
template <typename T>
Result<T> required(const Json& object, const std::string& key);
/// As required(), but `otherwise` where there is no such key, or null.
template <typename T>
Result<T> value_or(const Json& object, const std::string& key, T otherwise);

/// The one of `known` that `name` was probably meant to be (at most a third of it wrong), or an empty text
/// when none is like it.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace loom::format
