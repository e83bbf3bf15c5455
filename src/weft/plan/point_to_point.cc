// point_to_point: send and recv. The plan of `send` to b on rank a meets the plan of `recv` from a on rank b.
//
//     small                 sender puts                                              receiver waits
//     large, same node      sender exposes its input     receiver copies, says done  sender waits
//     large, other node     receiver exposes its output  sender puts in slices       receiver waits
//     nothing               sender signals                                           receiver waits
//     announced             sender signals, and goes on as above                     receiver waits, …
//
// Of nothing, too, there is a message: by its signature an end that expected something learns of the mistake.
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "point_to_point";

Status fits(const Request& request, const topology::Layout& layout, const Limits&) {
  return fits_any(request, layout);
}

void send(const Task& task, Builder& b) {
  const int to = task.root();
  if (to == task.rank) return;
  if (task.request.announced) b.signal(0, to, tag(Phase::announce));
  if (task.bytes() == 0) {
    if (!task.request.announced) b.signal(0, to, tag(Phase::data));
  } else if (task.eager(to, task.bytes()) || !task.same_node(to)) {
    accept(task, b, 0, to, task.bytes(), Space::output);
    put_slices(b, 0, to, b.input(), {to, Space::output, 0}, Slices(task.bytes(), task));
  } else {
    b.signal(0, to, tag(Phase::open), Space::input);
    b.wait(0, to, tag(Phase::done));
  }
}

void recv(const Task& task, Builder& b) {
  const int from = task.root();
  if (from == task.rank) return;
  if (task.request.announced) b.wait(0, from, tag(Phase::announce));
  if (task.bytes() == 0) {
    if (!task.request.announced) b.wait(0, from, tag(Phase::data));
  } else if (task.eager(from, task.bytes()) || !task.same_node(from)) {
    offer(task, b, 0, from, task.bytes(), Space::output);
    receive_slices(b, 0, from, Slices(task.bytes(), task));
  } else {
    b.wait(0, from, tag(Phase::open), Space::input);
    b.copy(0, {from, Space::input, 0}, b.output(), task.bytes());
    b.signal(0, from, tag(Phase::done));
  }
}

constexpr Algorithm kTable[] = {
    {kName, Collective::send, "the sender puts, or on its own node lets the receiver copy", fits,
     make_with<kName, send>},
    {kName, Collective::recv, "the receiver waits, or on its own node copies", fits, make_with<kName, recv>},
};

}  // namespace

std::span<const Algorithm> point_to_point_algorithms() { return kTable; }

}  // namespace weft::plan
