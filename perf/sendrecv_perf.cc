// sendrecv_perf: every rank sends its contribution to the next rank, and receives that of the previous one.
// There is no such thing in place: a rank would receive into what it is still sending.
#include "perf_common.h"

using namespace weft::perf;

namespace {

weftResult_t exchange(const Call& c) {
  const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
  weftResult_t result = weftGroupStart();
  if (result != weftSuccess) return result;
  const weftResult_t sent = weftSend(c.in, c.count, c.type, next, c.comm, c.stream);
  const weftResult_t received = weftRecv(c.out, c.count, c.type, previous, c.comm, c.stream);
  result = weftGroupEnd();  // always: the group must not stay open
  return sent != weftSuccess ? sent : received != weftSuccess ? received : result;
}

}  // namespace

int main(int argc, char** argv) {
  Collective sendrecv{.title = "SendRecv", .has_in_place = false};
  sendrecv.shape = [](size_t count, int) { return Shape{.send = count, .recv = count, .argument = count}; };
  sendrecv.share = [](const Shape& shape, int rank, int ranks, int) {
    return Share{shape.send, {{(rank + ranks - 1) % ranks, 0, shape.recv}}};
  };
  sendrecv.bus_factor = [](int) { return 1.0; };
  sendrecv.run = exchange;
  return perf_main(argc, argv, sendrecv);
}
