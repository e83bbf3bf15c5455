// scatter_perf: every rank gets its own part of the root's contribution.
#include "perf_common.h"

using namespace weft::perf;

int main(int argc, char** argv) {
  Collective scatter{.title = "Scatter", .rooted = true};
  scatter.shape = [](size_t count, int ranks) {
    const size_t each = count / static_cast<size_t>(ranks);
    return Shape{
        .send = each * static_cast<size_t>(ranks), .recv = each, .argument = each, .recv_offset = each};
  };
  scatter.share = [](const Shape& shape, int rank, int, int root) {
    return Share{rank == root ? shape.send : 0, {{root, static_cast<size_t>(rank) * shape.recv, shape.recv}}};
  };
  scatter.bus_factor = others_share;
  scatter.run = [](const Call& c) {
    return weftScatter(c.in, c.out, c.count, c.type, c.root, c.comm, c.stream);
  };
  return perf_main(argc, argv, scatter);
}
