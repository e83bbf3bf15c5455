// Pins: what the user has decided about algorithms, as one readable setting (WEFT_ALGO).
//
//   allreduce=ring                     AllReduce uses ring wherever it fits
//   allgather@4K-1M=all_to_all         only for messages from 4 KiB to 1 MiB; 4K-, -1M and 4K are ranges, too
//   broadcast=!binomial                never
//   *=!ring                            in no collective
//   allreduce=ring;broadcast=!binomial several; the first pin that applies and fits is used
//
// Sizes are those that the perf tools print: see message_bytes(). Thread safety: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/plan.h"

namespace weft::model {

struct Pin {
  std::optional<plan::Collective> collective;      // none: every one
  uint64_t from_bytes = 0, to_bytes = UINT64_MAX;  // inclusive
  bool ban = false;
  std::string algorithm;
  std::string text;  // as the user wrote it

  bool applies(plan::Collective to, uint64_t bytes) const {
    return (!collective || *collective == to) && bytes >= from_bytes && bytes <= to_bytes;
  }
};

struct Pins {
  std::vector<Pin> rules;
  uint64_t slice_bytes = 0;  // WEFT_SLICE_BYTES; 0 = the tuner's choice
};

/// Errors (invalid_setting) name the rule, what is wrong in it, and what there is: collectives, algorithms,
/// sizes.
Result<Pins> parse_pins(std::string_view text);

/// "allreduce", "AllReduce" and "all_reduce" alike. Errors: invalid_argument with all names.
Result<plan::Collective> parse_collective(std::string_view text);
/// "8", "4K", "1M", "2G" (powers of 1024; "4KiB" and "4KB" too). Errors: invalid_argument.
Result<uint64_t> parse_bytes(std::string_view text);
/// The shortest of "8 B", "4 KiB", "1.5 MiB" that is exact enough to read.
std::string bytes_text(uint64_t bytes);

/// The names of a collective's algorithms: "one_hop, ring".
std::string algorithm_names(plan::Collective collective);

}  // namespace weft::model
