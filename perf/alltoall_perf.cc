// alltoall_perf: every rank gets a part of its own of each contribution.
#include "perf_common.h"

using namespace weft::perf;

int main(int argc, char** argv) {
  Collective alltoall{.title = "AlltoAll", .has_in_place_in_nccl = false};
  alltoall.shape = [](size_t count, int ranks) {
    const size_t each = count / static_cast<size_t>(ranks), all = each * static_cast<size_t>(ranks);
    return Shape{.send = all, .recv = all, .argument = each};
  };
  alltoall.share = [](const Shape& shape, int rank, int ranks, int) {
    return Share{shape.send, everybodys(ranks, static_cast<size_t>(rank) * shape.argument, shape.argument)};
  };
  alltoall.bus_factor = others_share;
  alltoall.run = [](const Call& c) { return weftAlltoAll(c.in, c.out, c.count, c.type, c.comm, c.stream); };
  return perf_main(argc, argv, alltoall);
}
