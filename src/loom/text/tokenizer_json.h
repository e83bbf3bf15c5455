// What the readers of Hugging Face's tokenizer.json have in common.
//
// Thread safety: pure functions.
#pragma once

#include "format/json_file.h"

namespace loom::text {

/// Whether a part of the file is an object of this "type". A "type" that is no text is none.
inline bool is_type(const format::SortedJson& json, const char* type) {
  if (!json.is_object()) return false;
  const auto found = json.find("type");
  return found != json.end() && *found == type;
}

}  // namespace loom::text
