// exchange: block moves between pairs. What lies on the same node is copied out of its owner's exposed input;
// what goes to another node is put into its exposed output, or eagerly if it is small. Every pair is a lane
// of its own, and everybody starts with another peer, so that no receiver is hit by all at once.
//
//     same node     owner ── open(input) ──→ reader    reader copies    reader ── done ──→ owner
//     other node    receiver ── open(output) ──→ sender    sender ── slice 0, 1, … ──→ receiver;
//                   where transfers are NIC-bound a few go at a time (at_once.h)
//     gather        always the second: the senders work side by side, and the root only waits
#include "plan/exchange.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/at_once.h"
#include "plan/transfer.h"

namespace weft::plan::exchange {

void gather(const Task& task, Builder& b) {
  const Slices slices(task.bytes(), task);
  const Region at_root{task.root(), Space::output, task.bytes() * task.rank};
  if (!task.is_root()) {
    accept(task, b, 0, task.root(), task.bytes(), Space::output);
    put_slices(b, 0, task.root(), b.input(), at_root, slices);
    return;
  }
  for (int k = 1; k < task.ranks(); ++k) offer(task, b, 0, task.rank_after(k), task.bytes(), Space::output);
  b.copy(0, b.input(), at_root, task.bytes());
  for (int k = 1; k < task.ranks(); ++k) receive_slices(b, 0, task.rank_after(k), slices);
}

void scatter(const Task& task, Builder& b) {
  const Slices slices(task.bytes(), task);
  const int root = task.root();
  const Region own{root, Space::input, task.bytes() * task.rank};
  if (task.is_root()) {
    for (int k = 1; k < task.ranks(); ++k) {
      const int peer = task.rank_after(k);
      if (task.same_node(peer)) b.signal(0, peer, tag(Phase::open), Space::input);
    }
    b.copy(0, own, b.output(), task.bytes());
    for (int k = 1; k < task.ranks(); ++k) {
      const int peer = task.rank_after(k), lane = b.new_lane();
      if (task.same_node(peer)) {
        b.wait(lane, peer, tag(Phase::done));
      } else {
        accept(task, b, lane, peer, task.bytes(), Space::output);
        put_slices(b, lane, peer, b.input(task.bytes() * peer), {peer, Space::output, 0}, slices);
      }
    }
  } else if (task.same_node(root)) {
    b.wait(0, root, tag(Phase::open), Space::input);
    b.copy(0, own, b.output(), task.bytes());
    b.signal(0, root, tag(Phase::done));
  } else {
    offer(task, b, 0, root, task.bytes(), Space::output);
    receive_slices(b, 0, root, slices);
  }
}

/// In place, a block may arrive where one that has not left yet still lies: then everything leaves from a
/// copy in scratch, and nothing arrives before that is made.
void all_to_all(const Task& task, Builder& b) {
  const size_t at_once = most_at_once(task, task.bytes(), task.ranks());
  const Slices usual(task.bytes(), task), slices = at_once < SIZE_MAX ? usual.halved(task) : usual;
  const bool stage = !task.request.disjoint;
  const auto block = [&](int rank) { return task.bytes() * static_cast<uint64_t>(rank); };
  const bool asks = stage || may_meet(task.bytes(), task.ranks()) ||
                    task.bytes() > eager_bytes_meeting(task.layout, task.limits);
  const Space source = stage ? Space::scratch : Space::input;
  StepId staged = kNoStep;
  if (stage) staged = b.copy(0, b.input(), b.scratch(b.reserve(block(task.ranks()))), block(task.ranks()));
  std::vector<int> asked;  // in this order, the first ones at once
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_before(k);
    if (task.same_node(peer)) {
      b.signal(0, peer, tag(Phase::open), source);
    } else if (asks) {
      if (asked.size() < at_once) b.signal(0, peer, tag(Phase::open), Space::output);
      asked.push_back(peer);
    }
  }
  b.copy(0, b.input(block(task.rank)), b.output(block(task.rank)), task.bytes());
  std::vector<StepId> sent;  // the last put to each rank of another node
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k), lane = b.new_lane();
    if (task.same_node(peer)) {
      b.wait(lane, peer, tag(Phase::open), source);
      b.copy(lane, {peer, source, block(task.rank)}, b.output(block(peer)), task.bytes(), {&staged, 1});
      b.signal(lane, peer, tag(Phase::done));
      b.wait(lane, peer, tag(Phase::done));
    } else {
      const Region from{task.rank, source, block(peer)}, to{peer, Space::output, block(task.rank)};
      if (asks) b.wait(lane, peer, tag(Phase::open), Space::output);
      const StepId ready[] = {staged, sent.size() < at_once ? kNoStep : sent[sent.size() - at_once]};
      sent.push_back(put_slices(b, lane, peer, from, to, slices, Phase::data, ready));
      // Whom it asks for the next block once half of this peer's is there: the first to be sent to was asked
      // last.
      const size_t place = asked.size() - std::min(asked.size(), sent.size());
      const int next = at_once < asked.size() - place ? asked[place + at_once] : -1;
      const int arriving = b.new_lane();
      for (int s = 0; s < slices.count(); ++s) {
        b.wait(arriving, peer, tag(Phase::data, s));
        if (next >= 0 && s == asks_after(slices)) b.signal(arriving, next, tag(Phase::open), Space::output);
      }
    }
  }
}

}  // namespace weft::plan::exchange
