// What a misspelt name may have meant. Thread safety: a pure function.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace weft {

/// The nearest of `known` to `name`, at most `most_wrong` letters away by Levenshtein's distance; "" if there
/// is none. A name cut short, or without the section in front of its dot, is one letter away from its whole:
/// WEFT_SLICE means WEFT_SLICE_BYTES, not WEFT_STRICT. Of equally near ones the first.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known,
                              size_t most_wrong);

}  // namespace weft
