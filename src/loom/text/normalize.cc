#include "text/normalize.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include <algorithm>

#include "text/utf8.h"

namespace loom::text {
namespace {

/// The next place from `at` on that normalization does not reach over.
size_t boundary(const icu::Normalizer2& form, std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char next = utf8_at(text, at);
    if (next.valid && form.hasBoundaryBefore(static_cast<UChar32>(next.value))) return at;
    at += next.bytes;
  }
  return text.size();
}

/// As it is where ICU has no such form.
std::string normalize(const icu::Normalizer2* form, std::string_view text, size_t at_once) {
  const auto ascii = [](char c) { return static_cast<signed char>(c) >= 0; };
  if (form == nullptr || std::all_of(text.begin(), text.end(), ascii)) return std::string(text);
  std::string normalized;
  for (size_t at = 0; at < text.size();) {
    const size_t end = boundary(*form, text, std::min(text.size() - at, at_once) + at);
    const std::string_view part = text.substr(at, end - at);
    icu::StringByteSink<std::string> sink(&normalized, static_cast<int32_t>(part.size()));
    UErrorCode error = U_ZERO_ERROR;
    form->normalizeUTF8(0, icu::StringPiece(part.data(), static_cast<int32_t>(part.size())), sink, nullptr,
                        error);
    at = end;
  }
  return normalized;
}

}  // namespace

std::string normalize_nfc(std::string_view text, size_t at_once) {
  UErrorCode error = U_ZERO_ERROR;
  return normalize(icu::Normalizer2::getNFCInstance(error), text, at_once);
}

std::string normalize_nfd(std::string_view text, size_t at_once) {
  UErrorCode error = U_ZERO_ERROR;
  return normalize(icu::Normalizer2::getNFDInstance(error), text, at_once);
}

}  // namespace loom::text
