#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

/// Levenshtein's distance: insertions, deletions and replacements that turn one word into the other.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

size_t distance(std::string_view name, std::string_view whole) {
  const bool lacks_section =
      whole.size() > name.size() && whole.ends_with(name) && whole[whole.size() - name.size() - 1] == '.';
  return whole.starts_with(name) || lacks_section ? 1 : edit_distance(name, whole);
}

}  // namespace

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known,
                              size_t most_wrong) {
  std::string_view nearest;
  size_t least = most_wrong + 1;
  for (const std::string_view candidate : known) {
    if (const size_t wrong = distance(name, candidate); wrong < least) {
      least = wrong;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace weft
