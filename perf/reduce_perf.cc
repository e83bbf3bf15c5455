// reduce_perf: the root gets the reduction of all contributions.
#include "perf_common.h"

using namespace weft::perf;

int main(int argc, char** argv) {
  Collective reduce{.title = "Reduce", .reduces = true, .rooted = true};
  reduce.shape = [](size_t count, int) { return Shape{.send = count, .recv = count, .argument = count}; };
  reduce.share = [](const Shape& shape, int rank, int, int root) {
    Share share{shape.send, {}};
    if (rank == root) share.expected = {{Segment::kReduced, 0, shape.recv}};
    return share;
  };
  reduce.bus_factor = [](int) { return 1.0; };
  reduce.run = [](const Call& c) {
    return weftReduce(c.in, c.out, c.count, c.type, c.op, c.root, c.comm, c.stream);
  };
  return perf_main(argc, argv, reduce);
}
