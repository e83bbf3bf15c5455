// reduce_blocks: the ReduceScatter half of all_to_all, as seen by rank r. The mirror of gather_blocks:
// a rank that would receive a block there gives its node's sum of it here.
//
//     open      node-mates expose their inputs to each other                      one lane
//     add up    for each origin q: r reduces q's block of its node's inputs       the same
//     send      the node's sum of a slice ──→ q's scratch                         a lane each
//     finish    as the other nodes' sums come, r reduces them in node order,      one lane
//               with its own node's inputs in their place
//     ask       where transfers are NIC-bound, a few transfers go at a time (at_once.h)   a lane each
//               if they need no credits
//
// A rank alone on its node sends from its input. In strict order nobody adds up: all ranks of other nodes
// send their raw contributions, and the owner adds everything in rank order.
//
// Scratch holds a window of slices of each contribution, in and out; a credit for each slice says that its
// place at the owner is free again.
#include <algorithm>

#include "plan/hierarchy.h"

namespace weft::plan {
namespace {

constexpr int kWindow = 8;  // slices of each transfer that may be under way

class ReduceHalf {
 public:
  ReduceHalf(const Task& task, Builder& b, const Cut& cut, Region result)
      : task_(task), b_(b), cut_(cut), result_(result) {}

  Reduced run() {
    incoming_ = b_.reserve(contributors_.size() * transfer_bytes());
    outgoing_ = b_.reserve(sends_raw_ ? 0 : targets_.size() * transfer_bytes());
    expose();
    learn_ = learn_inputs();
    send();
    Reduced reduced{.finals = finish(), .last_reads = {}};
    reduced.last_reads = {last_added_, reduced.finals.empty() ? kNoStep : reduced.finals.back()};
    return reduced;
  }

 private:
  /// One transfer to the owner of a block in another node.
  struct Outgoing {
    int owner, lane;
    Slices slices;
    std::vector<StepId> puts = {};
  };

  void expose() {
    for (int mate : mates_) b_.signal(main_, mate, tag(Phase::open_input), Space::input);
    if (eager_ || cut_.blocks.bytes(task_.rank) == 0) return;
    for (size_t i = 0; i < std::min(at_once_, by_distance_.size()); ++i) ask(main_, i);
  }

  /// For the sums, or the contribution, of number i by distance.
  void ask(int lane, size_t i) { b_.signal(lane, by_distance_[i], tag(Phase::open_scratch), Space::scratch); }

  StepId learn_inputs() {
    StepId last = kNoStep;
    for (int mate : mates_) last = b_.wait(main_, mate, tag(Phase::open_input), Space::input);
    return last;
  }

  /// Transfers side by side, slice by slice: all of them, or as many as go at once.
  void send() {
    std::vector<Outgoing> transfers;
    for (int owner : targets_) {
      transfers.push_back({.owner = owner, .lane = b_.new_lane(), .slices = cut_.of(owner)});
      if (eager_ || transfers.back().slices.count() == 0) continue;
      b_.wait(transfers.back().lane, owner, tag(Phase::open_scratch), Space::scratch);
    }
    for (size_t first = 0, end = 0; first < transfers.size(); first = end) {
      end = at_once_ < transfers.size() - first ? first + at_once_ : transfers.size();
      for (int s = 0; s < cut_.slices.count(); ++s) {
        for (size_t i = first; i < end; ++i) {
          const bool waits = s == 0 && first > 0 && !transfers[i - at_once_].puts.empty();
          if (s < transfers[i].slices.count())
            send_slice(transfers[i], static_cast<int>(i), s,
                       waits ? transfers[i - at_once_].puts.back() : kNoStep);
        }
      }
    }
  }

  void send_slice(Outgoing& transfer, int number, int s, StepId after) {
    const int owner = transfer.owner;
    const uint64_t at = cut_.blocks.begin(owner) + transfer.slices.begin(s), bytes = transfer.slices.bytes(s);
    Region source = b_.input(at);
    StepId added = kNoStep;
    if (!sends_raw_) {
      const StepId place_free = s >= kWindow ? transfer.puts[static_cast<size_t>(s - kWindow)] : kNoStep;
      source = b_.scratch(outgoing_ + place(number, s));
      added = last_added_ = b_.reduce(main_, inputs_at(at), source, bytes, {&place_free, 1});
    }
    if (s >= kWindow) b_.wait(transfer.lane, owner, tag(Phase::credit, static_cast<uint64_t>(s - kWindow)));
    const Region target{owner, Space::scratch, incoming_ + place(number_at(owner), s)};
    const StepId ready[] = {added, after};
    transfer.puts.push_back(b_.put(transfer.lane, owner, source, target, bytes,
                                   tag(Phase::ready, static_cast<uint64_t>(s)), ready));
  }

  std::vector<StepId> finish() {
    const Slices slices = cut_.of(task_.rank);
    std::vector<std::vector<StepId>> came;  // by slice
    if (at_once_ < SIZE_MAX) came = receive(slices);
    const int lane = b_.new_lane();
    std::vector<StepId> finals;
    for (int s = 0; s < slices.count(); ++s) {
      std::vector<StepId> after;
      if (at_once_ < SIZE_MAX) after = came[static_cast<size_t>(s)];
      else
        for (int from : by_distance_) b_.wait(lane, from, tag(Phase::ready, static_cast<uint64_t>(s)));
      if (s == 0) after.push_back(learn_);
      finals.push_back(b_.reduce(lane, contributions(s), result_ + slices.begin(s), slices.bytes(s), after));
      if (s + kWindow >= slices.count()) continue;
      for (int from : by_distance_) b_.signal(lane, from, tag(Phase::credit, static_cast<uint64_t>(s)));
    }
    return finals;
  }

  /// Who is asked for the next block once half of one is there has a lane for that. By slice, the steps after
  /// which it is there.
  std::vector<std::vector<StepId>> receive(const Slices& slices) {
    std::vector<std::vector<StepId>> came(static_cast<size_t>(slices.count()));
    for (size_t i = 0; i < by_distance_.size(); ++i) {
      const int lane = b_.new_lane();
      for (int s = 0; s < slices.count(); ++s) {
        came[static_cast<size_t>(s)].push_back(
            b_.wait(lane, by_distance_[i], tag(Phase::ready, static_cast<uint64_t>(s))));
        if (s == asks_after(slices) && at_once_ < by_distance_.size() - i) ask(lane, i + at_once_);
      }
    }
    return came;
  }

  /// Everything that is in a slice of the own block, in order of ranks (strict) or of nodes.
  std::vector<Source> contributions(int s) const {
    const uint64_t at = cut_.blocks.begin(task_.rank) + cut_.of(task_.rank).begin(s);
    std::vector<Source> own_node = inputs_at(at), all;
    if (task_.request.strict) {
      for (int rank = 0, number = 0; rank < task_.ranks(); ++rank) {
        const bool near = task_.same_node(rank);
        all.push_back({near ? Region{rank, Space::input, at} : b_.scratch(incoming_ + place(number++, s))});
      }
      return all;
    }
    for (size_t i = 0; i < contributors_.size(); ++i) {
      const auto& its_node = task_.layout.on_node(task_.layout.node_of(contributors_[i]));
      all.push_back(
          {b_.scratch(incoming_ + place(static_cast<int>(i), s)), static_cast<uint32_t>(its_node.size())});
    }
    all.insert(all.begin() + task_.layout.node_of(task_.rank), own_node.begin(), own_node.end());
    return all;
  }

  /// Who sends to `owner` from other nodes: one rank of each node, or in strict order all ranks, ascending.
  std::vector<int> contributors(int owner) const {
    const auto& layout = task_.layout;
    std::vector<int> found;
    if (task_.request.strict) {
      for (int rank = 0; rank < task_.ranks(); ++rank) {
        if (!layout.same_node(rank, owner)) found.push_back(rank);
      }
    } else {
      for (int node = 0; node < layout.nodes(); ++node) {
        if (node != layout.node_of(owner)) found.push_back(layout.rail_peer(node, layout.local_index(owner)));
      }
    }
    return found;
  }

  /// The contributors to the own block, the next higher first: everybody begins elsewhere.
  std::vector<int> by_distance() const {
    std::vector<int> found = contributors_;
    const auto first = std::partition_point(found.begin(), found.end(), [&](int from) {
      return task_.request.strict ? from < task_.rank
                                  : task_.layout.node_of(from) < task_.layout.node_of(task_.rank);
    });
    std::rotate(found.begin(), first, found.end());
    return found;
  }

  std::vector<int> targets() const {
    if (!task_.request.strict) return origins(task_, task_.rank);
    std::vector<int> found;
    for (int k = 1; k < task_.ranks(); ++k) {
      if (!task_.same_node(task_.rank_before(k))) found.push_back(task_.rank_before(k));
    }
    return found;
  }

  /// The position of this rank, or of its node, among those who send to `owner`.
  int number_at(int owner) const {
    const auto& layout = task_.layout;
    if (!task_.request.strict) {
      return layout.node_of(task_.rank) - (layout.node_of(task_.rank) > layout.node_of(owner));
    }
    const auto& near = layout.on_node(layout.node_of(owner));
    return task_.rank -
           static_cast<int>(std::lower_bound(near.begin(), near.end(), task_.rank) - near.begin());
  }

  /// Where a slice of transfer `number` lies among all; the same sum on both sides.
  uint64_t place(int number, int s) const {
    return transfer_bytes() * static_cast<uint64_t>(number) +
           slice_room_ * static_cast<uint64_t>(s % kWindow);
  }
  uint64_t transfer_bytes() const {
    return slice_room_ * static_cast<uint64_t>(std::min(kWindow, cut_.slices.count()));
  }

  std::vector<Source> inputs_at(uint64_t offset) const {
    std::vector<Source> inputs;
    for (int rank : task_.layout.on_node(task_.layout.node_of(task_.rank))) {
      inputs.push_back({{rank, Space::input, offset}});
    }
    return inputs;
  }

  const Task& task_;
  Builder& b_;
  const Cut& cut_;
  const Region result_;
  const std::vector<int> mates_ = node_mates(task_);
  const std::vector<int> contributors_ = contributors(task_.rank);
  const std::vector<int> by_distance_ = by_distance();
  const std::vector<int> targets_ = targets();
  const bool sends_raw_ = task_.request.strict || mates_.empty();
  // Credits come when all have sent, so a rank that waits for one keeps no rank from sending.
  const size_t at_once_ = cut_.slices.count() <= kWindow ? cut_.at_once : SIZE_MAX;
  const bool eager_ =
      at_once_ == SIZE_MAX && cut_.blocks.largest() <= eager_bytes_meeting(task_.layout, task_.limits);
  const uint64_t slice_room_ = round_up(cut_.slices.each(), 64);
  const int main_ = b_.new_lane();  // opens, and adds up
  uint64_t incoming_ = 0, outgoing_ = 0;
  StepId learn_ = kNoStep, last_added_ = kNoStep;
};

}  // namespace

Reduced reduce_blocks(const Task& task, Builder& b, const Cut& cut, Region result) {
  return ReduceHalf(task, b, cut, result).run();
}

void close_inputs(const Task& task, Builder& b, const Reduced& reduced, int except) {
  const int lane = b.new_lane();
  for (int mate : node_mates(task)) {
    if (mate != except) b.signal(lane, mate, tag(Phase::done_input), Space::none, reduced.last_reads);
  }
  if (task.rank == except) return;
  for (int mate : node_mates(task)) b.wait(lane, mate, tag(Phase::done_input));
}

}  // namespace weft::plan
