// gather_perf: the root gets all contributions, one after the other.
#include "perf_common.h"

using namespace weft::perf;

int main(int argc, char** argv) {
  Collective gather{.title = "Gather", .rooted = true};
  gather.shape = [](size_t count, int ranks) {
    const size_t each = count / static_cast<size_t>(ranks);
    return Shape{
        .send = each, .recv = each * static_cast<size_t>(ranks), .argument = each, .send_offset = each};
  };
  gather.share = [](const Shape& shape, int rank, int ranks, int root) {
    Share share{shape.send, {}};
    if (rank == root) share.expected = everybodys(ranks, 0, shape.argument);
    return share;
  };
  gather.bus_factor = others_share;
  gather.run = [](const Call& c) {
    return weftGather(c.in, c.out, c.count, c.type, c.root, c.comm, c.stream);
  };
  return perf_main(argc, argv, gather);
}
