// all_reduce_perf: every rank gets the reduction of all contributions.
#include "perf_common.h"

using namespace weft::perf;

int main(int argc, char** argv) {
  Collective all_reduce{.title = "AllReduce", .reduces = true};
  all_reduce.shape = [](size_t count, int) { return Shape{.send = count, .recv = count, .argument = count}; };
  all_reduce.share = [](const Shape& shape, int, int, int) {
    return Share{shape.send, {{Segment::kReduced, 0, shape.recv}}};
  };
  all_reduce.bus_factor = [](int ranks) { return 2 * others_share(ranks); };
  all_reduce.run = [](const Call& c) {
    return weftAllReduce(c.in, c.out, c.count, c.type, c.op, c.comm, c.stream);
  };
  return perf_main(argc, argv, all_reduce);
}
