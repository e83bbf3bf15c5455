// What the perf tools share. A tool says what its collective is, in a value of type Collective, and calls
// perf_main, which scans sizes, types, operators and roots, measures, checks and reports. It uses Weft
// through weft/weft.h only, also to bring times and results of ranks together.
#pragma once

#include <string>
#include <vector>

#include "values.h"
#include "weft/weft.h"

namespace weft::perf {

/// One call of the collective, as its C function takes it.
struct Call {
  const void* in;
  void* out;
  size_t count;
  weftDataType_t type;
  weftRedOp_t op;
  int root;
  int rank, ranks;
  weftComm_t comm;
  weftStream_t stream;
};

/// How large things are, in elements, for a size of `count` elements as nccl-tests counts it: the larger of
/// what a rank sends and what it receives, at the rank that has most.
struct Shape {
  size_t send, recv;  // the largest over ranks
  size_t argument;    // what the call takes as its count
  /// In place, rank r's input starts at r × send_offset of the buffer, its output at r × recv_offset.
  size_t send_offset = 0, recv_offset = 0;
};

/// Elements `first` … `first + count` of what rank `source` contributes, or of what all contributions reduce
/// to.
struct Segment {
  static constexpr int kReduced = -1;
  int source;
  size_t first, count;
};

/// What one rank gives and gets.
struct Share {
  size_t input;                   // elements of its contribution that it sends; 0 where it only receives
  std::vector<Segment> expected;  // its output, in order; empty where it only sends
};

struct Collective {
  std::string title;     // "AllReduce"
  bool reduces = false;  // takes an operator
  bool rooted = false;
  bool has_in_place = true;
  bool has_in_place_in_nccl = true;
  Shape (*shape)(size_t count, int ranks) = nullptr;
  Share (*share)(const Shape& shape, int rank, int ranks, int root) = nullptr;
  /// Bus bandwidth over algorithm bandwidth.
  double (*bus_factor)(int ranks) = nullptr;
  weftResult_t (*run)(const Call& call) = nullptr;
};

/// A tool's main(). The exit code: 0; 1 when results are wrong; 2 when the command line is; 3 when a call
/// failed.
int perf_main(int argc, char** argv, const Collective& collective);

/// The segments of all ranks' contributions, each from `first` on.
std::vector<Segment> everybodys(int ranks, size_t first, size_t count);
/// (n-1)/n: where a rank's own part does not travel.
double others_share(int ranks);

}  // namespace weft::perf
