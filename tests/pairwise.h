// Covering arrays of strength two: few tests in which each value of a factor stands beside each value of
// every other factor (Cohen et al., "The AETG System: An Approach to Testing Based on Combinatorial Design",
// 1997).
#pragma once

#include <cstddef>
#include <set>
#include <tuple>
#include <vector>

namespace weft::testing {

/// Of each row: which level every factor has. `levels` says how many each factor has, at least one. Of
/// levels a row that is begun leaves open, the one is taken that brings most new pairs, of equals the first.
inline std::vector<std::vector<size_t>> pairwise(const std::vector<size_t>& levels) {
  using Pair = std::tuple<size_t, size_t, size_t, size_t>;  // factor and level, a later factor and level
  std::set<Pair> open;
  for (size_t a = 0; a < levels.size(); ++a)
    for (size_t b = a + 1; b < levels.size(); ++b)
      for (size_t x = 0; x < levels[a]; ++x)
        for (size_t y = 0; y < levels[b]; ++y) open.insert({a, x, b, y});
  const auto pair_of = [](size_t a, size_t x, size_t b, size_t y) {
    return a < b ? Pair{a, x, b, y} : Pair{b, y, a, x};
  };
  std::vector<std::vector<size_t>> rows;
  while (!open.empty()) {
    const auto [first, x, second, y] = *open.begin();
    std::vector<size_t> row(levels.size()), chosen = {first, second};
    row[first] = x;
    row[second] = y;
    for (size_t factor = 0; factor < levels.size(); ++factor) {
      if (factor == first || factor == second) continue;
      size_t most = 0;
      for (size_t level = 0; level < levels[factor]; ++level) {
        size_t brings = 0;
        for (const size_t other : chosen) brings += open.count(pair_of(factor, level, other, row[other]));
        if (level == 0 || brings > most) row[factor] = level, most = brings;
      }
      chosen.push_back(factor);
    }
    for (size_t a = 0; a < levels.size(); ++a)
      for (size_t b = a + 1; b < levels.size(); ++b) open.erase({a, row[a], b, row[b]});
    rows.push_back(row);
  }
  return rows;
}

}  // namespace weft::testing
