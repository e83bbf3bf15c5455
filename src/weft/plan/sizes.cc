// The names of what plans are made of, and how long the caller's buffers are.
#include "plan/plan.h"
#include "plan/uneven.h"

namespace weft::plan {

const char* name_of(Collective collective) {
  constexpr const char* names[kCollectives] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                               "Reduce",    "AlltoAll",  "Gather",        "Scatter",
                                               "Send",      "Recv"};
  return names[static_cast<int>(collective)];
}

const char* name_of(Space space) {
  constexpr const char* names[] = {"input", "output", "scratch", "none"};
  return names[static_cast<int>(space)];
}

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::put: return "put";
    case StepKind::signal: return "signal";
    case StepKind::wait: return "wait";
    case StepKind::copy: return "copy";
    case StepKind::reduce: return "reduce";
  }
  return "";
}

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

bool operator==(const Request& a, const Request& b) {
  const bool same_blocks = a.uneven == b.uneven || (a.uneven && b.uneven && *a.uneven == *b.uneven);
  return a.collective == b.collective && a.count == b.count && a.element_bytes == b.element_bytes &&
         a.root == b.root && a.strict == b.strict && a.disjoint == b.disjoint && a.announced == b.announced &&
         same_blocks;
}

uint64_t input_bytes(const Request& request, int ranks, int rank) {
  if (request.uneven) return Uneven::extent(request.uneven->given) * request.element_bytes;
  const uint64_t one = request.bytes(), all = one * static_cast<uint64_t>(ranks);
  switch (request.collective) {
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce:
    case Collective::gather:
    case Collective::send: return one;
    case Collective::reduce_scatter:
    case Collective::all_to_all: return all;
    case Collective::broadcast: return rank == request.root ? one : 0;
    case Collective::scatter: return rank == request.root ? all : 0;
    case Collective::recv: return 0;
  }
  return 0;
}

uint64_t output_bytes(const Request& request, int ranks, int rank) {
  if (request.uneven) return Uneven::extent(request.uneven->taken) * request.element_bytes;
  const uint64_t one = request.bytes(), all = one * static_cast<uint64_t>(ranks);
  switch (request.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::broadcast:
    case Collective::scatter:
    case Collective::recv: return one;
    case Collective::all_gather:
    case Collective::all_to_all: return all;
    case Collective::reduce: return rank == request.root ? one : 0;
    case Collective::gather: return rank == request.root ? all : 0;
    case Collective::send: return 0;
  }
  return 0;
}

uint64_t in_place_offset(const Request& request, int rank) {
  if (request.uneven && request.collective != Collective::all_to_all) {
    const bool gathers = request.collective == Collective::all_gather;
    return shared_block(request, gathers ? Space::output : Space::input, rank).begin;
  }
  switch (request.collective) {
    case Collective::all_gather:
    case Collective::gather:
    case Collective::reduce_scatter:
    case Collective::scatter: return request.bytes() * static_cast<uint64_t>(rank);
    default: return 0;
  }
}

}  // namespace weft::plan
