// Checkpointing: which blocks compute forward again before their backward, instead of keeping what forward
// saves. In a config: "none", "each", "contiguous", "group_4" or 4, "every_2". All but "every_2" are
// strategies of SageMaker's model parallel library (SMP).
//
// Thread safety: values; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace loom::train {

struct Checkpointing {
  /// All blocks next to each other in a part of the pipeline.
  static constexpr int64_t kContiguous = 1'000'000;

  int64_t group = 0;  // blocks that are recomputed together; 0: none
  int64_t every = 1;  // of so many blocks one is recomputed, alone if this is above 1
};

/// Nothing where the text is none of these. A number is a group of so many, 0 none.
std::optional<Checkpointing> checkpointing_from(const std::string& text);
/// The shortest of its texts.
std::string to_string(const Checkpointing& checkpointing);

}  // namespace loom::train
