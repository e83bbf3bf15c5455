// weft_info --explain: what the tuner would do with a request, and why.
#pragma once

#include <string>

#include "base/status.h"
#include "info/section.h"

namespace weft::info {

struct Question {
  std::string collective;  // "allreduce"
  std::string size;        // as the perf tools print it: "4M"
  int ranks = 2;
  int nodes = 1;
  bool one_machine = false;  // nodes are pretended, as weft_run's; else each is a machine like this host
  int root = 0;
  int element_bytes = 4;
  bool strict = false;
  std::string machine_file = {};  // or the name of a cluster that comes with Weft; "" = nodes like this host
  int rank = 0;                   // whose plan `steps` lists
  bool steps = false;
  bool cuda = false;  // of GPU memory
};

/// Errors (invalid_argument, or what the tuner says) name the option and what would be right.
Result<Section> explain(const Question& question);

}  // namespace weft::info
