// reduce_scatter_perf: every rank gets its own part of the reduction of all contributions.
#include "perf_common.h"

using namespace weft::perf;

int main(int argc, char** argv) {
  Collective reduce_scatter{.title = "ReduceScatter", .reduces = true};
  reduce_scatter.shape = [](size_t count, int ranks) {
    const size_t each = count / static_cast<size_t>(ranks);
    return Shape{
        .send = each * static_cast<size_t>(ranks), .recv = each, .argument = each, .recv_offset = each};
  };
  reduce_scatter.share = [](const Shape& shape, int rank, int, int) {
    return Share{shape.send, {{Segment::kReduced, static_cast<size_t>(rank) * shape.recv, shape.recv}}};
  };
  reduce_scatter.bus_factor = others_share;
  reduce_scatter.run = [](const Call& c) {
    return weftReduceScatter(c.in, c.out, c.count, c.type, c.op, c.comm, c.stream);
  };
  return perf_main(argc, argv, reduce_scatter);
}
