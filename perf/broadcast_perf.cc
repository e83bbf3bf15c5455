// broadcast_perf: every rank gets the root's contribution.
#include "perf_common.h"

using namespace weft::perf;

int main(int argc, char** argv) {
  Collective broadcast{.title = "Broadcast", .rooted = true};
  broadcast.shape = [](size_t count, int) { return Shape{.send = count, .recv = count, .argument = count}; };
  broadcast.share = [](const Shape& shape, int rank, int, int root) {
    return Share{rank == root ? shape.send : 0, {{root, 0, shape.recv}}};
  };
  broadcast.bus_factor = [](int) { return 1.0; };
  broadcast.run = [](const Call& c) {
    return weftBroadcast(c.in, c.out, c.count, c.type, c.root, c.comm, c.stream);
  };
  return perf_main(argc, argv, broadcast);
}
