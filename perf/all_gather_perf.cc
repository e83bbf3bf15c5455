// all_gather_perf: every rank gets all contributions, one after the other.
#include "perf_common.h"

using namespace weft::perf;

int main(int argc, char** argv) {
  Collective all_gather{.title = "AllGather"};
  all_gather.shape = [](size_t count, int ranks) {
    const size_t each = count / static_cast<size_t>(ranks);
    return Shape{
        .send = each, .recv = each * static_cast<size_t>(ranks), .argument = each, .send_offset = each};
  };
  all_gather.share = [](const Shape& shape, int, int ranks, int) {
    return Share{shape.send, everybodys(ranks, 0, shape.argument)};
  };
  all_gather.bus_factor = others_share;
  all_gather.run = [](const Call& c) {
    return weftAllGather(c.in, c.out, c.count, c.type, c.comm, c.stream);
  };
  return perf_main(argc, argv, all_gather);
}
