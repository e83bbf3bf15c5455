// Unicode's normalization forms, of texts of any length.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace loom::text {

/// Bytes that are normalized in one call of ICU, which counts in 32 bits.
inline constexpr size_t kNormalizedAtOnce = size_t{1} << 28;

/// Form C: characters and their accents are one, where there is one. A text is cut after `at_once` bytes, or
/// further on, where nothing reaches over the cut.
std::string normalize_nfc(std::string_view text, size_t at_once = kNormalizedAtOnce);
/// Form D: accents are characters of their own.
std::string normalize_nfd(std::string_view text, size_t at_once = kNormalizedAtOnce);

}  // namespace loom::text
