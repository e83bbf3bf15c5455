// The exchange itself, whatever carries it.
#include "bootstrap/id_exchange.h"

#include <charconv>

namespace weft::bootstrap {
namespace {

constexpr std::string_view kNoId = "none:";

}  // namespace

std::string id_to_text(const UniqueId& id) {
  std::string text;
  for (const std::byte b : id.bytes) text += fmt::format("{:02x}", std::to_integer<int>(b));
  return text;
}

Result<UniqueId> id_from_text(std::string_view text) {
  UniqueId id;
  if (text.size() != 2 * id.bytes.size()) {
    return fail(Code::invalid_unique_id, "a unique id as text has {} digits, this has {}",
                2 * id.bytes.size(), text.size());
  }
  for (size_t i = 0; i < id.bytes.size(); ++i) {
    unsigned value = 0;
    const char* first = text.data() + 2 * i;
    if (const auto [at, error] = std::from_chars(first, first + 2, value, 16);
        error != std::errc() || at != first + 2) {
      return fail(Code::invalid_unique_id, "a unique id as text has only hexadecimal digits, this has '{}'",
                  text.substr(2 * i, 2));
    }
    id.bytes[i] = static_cast<std::byte>(value);
  }
  WEFT_TRY(check_unique_id(id));
  return id;
}

Result<UniqueId> exchange_id(const KeyValueSpace& space, int rank, const std::string& key) {
  Status made;
  if (rank == 0) {
    Result<UniqueId> id = create_unique_id();
    made = id.status();
    // One word: PMI's values end at a blank.
    std::string reason = std::string(kNoId) + made.message();
    for (char& c : reason) c = c == ' ' || c == '=' || c == '\n' ? '_' : c;
    WEFT_TRY(space.put(key, id.ok() ? id_to_text(*id) : reason.substr(0, 200)));
  }
  WEFT_TRY(space.fence());
  WEFT_TRY(made);
  Result<std::string> text = space.get(key);
  if (!text.ok()) return text.status();
  if (text->starts_with(kNoId)) {
    return fail(Code::remote_error, "rank 0 could not make a unique id ({})", text->substr(kNoId.size()));
  }
  return id_from_text(*text);
}

}  // namespace weft::bootstrap
