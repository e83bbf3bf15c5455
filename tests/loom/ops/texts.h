// Texts that share sequences, for tests of attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/operators.h"

namespace loom::testing {

/// Where the texts of two sequences begin and end: of one token, of several tiles, up to the end, and, of 139
/// tokens, with one token in its last tile.
struct Texts {
  std::vector<int32_t> begins, ends;

  explicit Texts(int64_t tokens) {
    const auto all = static_cast<int32_t>(tokens);
    for (const std::vector<int32_t>& bounds :
         {std::vector<int32_t>{0, 1, all / 2 + 2, all}, {0, all / 4, std::max(all / 4, all - 10), all}})
      for (size_t text = 1; text < bounds.size(); ++text) {
        begins.insert(begins.end(), static_cast<size_t>(bounds[text] - bounds[text - 1]), bounds[text - 1]);
        ends.resize(begins.size(), bounds[text]);
      }
  }
  /// This has to live as long as the shape is used.
  void divide(ops::AttentionShape& shape) const { shape.begins = begins.data(), shape.ends = ends.data(); }
};

}  // namespace loom::testing
