// all_to_all: medium and large messages on several nodes. Every node talks to every node at once, over one
// rail for each rank, in one hop; inside a node ranks read each other's memory; both overlap slice by slice
// (see hierarchy.h).
//
//   AllGather      gather_blocks
//   ReduceScatter  reduce_blocks
//   AllReduce      each rank reduces a block of the message, and as its slices are finished they are gathered
//   Reduce         each rank reduces a block, and puts it to the root slice by slice
//   Broadcast      the root gives one rank of every other node a part; these exchange parts, and the ranks of
//                  each node copy them as they land:
//
//                      root ── part A ──→ a ── part A ──→ b, c      a's node-mates copy A, B, C from a
//                           ── part B ──→ b ── part B ──→ a, c
//                           ── part C ──→ c ── part C ──→ a, b      the root's copy from the root
//
// Gather, scatter and AlltoAll are in exchange.h.
#include "plan/exchange.h"
#include "plan/hierarchy.h"
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "all_to_all";

Status fits(const Request& request, const topology::Layout& layout, const Limits&) {
  WEFT_TRY(fits_any(request, layout));
  if (layout.nodes() > 1) return {};
  return fail(Code::unsupported, "all_to_all is for several nodes, not {}; direct serves one",
              layout.to_string());
}

void all_gather(const Task& task, Builder& b) {
  gather_blocks(task, b, Cut(task, Blocks::equal(task.ranks(), task.bytes())), b.input(), {});
}

void reduce_scatter(const Task& task, Builder& b) {
  const Cut cut(task, Blocks::equal(task.ranks(), task.bytes()));
  close_inputs(task, b, reduce_blocks(task, b, cut, b.output()));
}

Cut message_cut(const Task& task) {
  return Cut(task, Blocks::divide(task.bytes(), task.request.element_bytes, task.ranks()));
}

void all_reduce(const Task& task, Builder& b) {
  const Cut cut = message_cut(task);
  const Region own = b.output(cut.blocks.begin(task.rank));
  gather_blocks(task, b, cut, own, reduce_blocks(task, b, cut, own).finals);
}

void reduce(const Task& task, Builder& b) {
  const Cut cut = message_cut(task);
  const Region kept =
      b.scratch(b.reserve(cut.blocks.largest()));  // by all, so that scratch looks alike everywhere
  const Region at_root{task.root(), Space::output, cut.blocks.begin(task.rank)};
  const Reduced reduced = reduce_blocks(task, b, cut, task.is_root() ? at_root : kept);
  close_inputs(task, b, reduced, task.root());
  const int opening = b.new_lane();
  if (!task.is_root()) {
    const Slices slices = cut.of(task.rank);
    if (slices.total() > 0) accept(task, b, opening, task.root(), slices.total(), Space::output);
    for (int s = 0; s < slices.count(); ++s) {
      const uint64_t at = slices.begin(s);
      b.put(opening, task.root(), kept + at, at_root + at, slices.bytes(s), tag(Phase::collect, s),
            {&reduced.finals[s], 1});
    }
    return;
  }
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k);
    if (cut.blocks.bytes(peer) > 0) offer(task, b, opening, peer, cut.blocks.bytes(peer), Space::output);
  }
  for (int k = 1; k < task.ranks(); ++k) {
    const int peer = task.rank_after(k);
    receive_slices(b, opening, peer, cut.of(peer), Phase::collect);
  }
}

/// Broadcast. Each node but the root's has a leader, and the message as many parts.
class Broadcast {
 public:
  Broadcast(const Task& task, Builder& b) : task_(task), b_(b) {}

  void run() {
    if (task_.is_root()) {
      run_root();
    } else if (task_.same_node(task_.root())) {
      b_.wait(0, task_.root(), tag(Phase::open_input), Space::input);
      b_.copy(0, {task_.root(), Space::input, 0}, b_.output(), task_.bytes());
      b_.signal(0, task_.root(), tag(Phase::done));
    } else if (leader(own_part()) == task_.rank) {
      run_leader();
    } else {
      run_member(leader(own_part()));
    }
  }

 private:
  int count() const { return parts_.count(); }
  int own_part() const { return part_of(task_.layout.node_of(task_.rank)); }
  int part_of(int node) const { return node - (node > root_node_); }
  int leader(int part) const {
    return task_.layout.rail_peer(part + (part >= root_node_), task_.layout.local_index(task_.root()));
  }
  Slices slices_of(int part) const { return slices_.of(parts_.bytes(part)); }
  uint64_t at(int part, int s) const { return parts_.begin(part) + slices_of(part).begin(s); }
  static uint32_t spread_tag(int part, int s) {
    return tag(Phase::spread, static_cast<uint64_t>(part) * Slices::kMost + static_cast<uint64_t>(s));
  }

  void open_to_mates(Phase phase, Space space) {
    for (int mate : mates_) b_.signal(0, mate, tag(phase), space);
  }
  void close_to_mates() {
    const int lane = b_.new_lane();
    for (int mate : mates_) b_.wait(lane, mate, tag(Phase::done));
  }

  /// Own lane; slice s of `part` goes to its (or another) leader's output once ready[s] is done.
  void send(int part, int to, Region source, std::span<const StepId> ready) {
    const int lane = b_.new_lane();
    if (parts_.bytes(part) > 0) accept(task_, b_, lane, to, parts_.largest(), Space::output);
    for (int s = 0; s < slices_of(part).count(); ++s) {
      b_.put(lane, to, source + at(part, s), {to, Space::output, at(part, s)}, slices_of(part).bytes(s),
             tag(Phase::data, s), ready.empty() ? ready : ready.subspan(s, 1));
    }
  }

  /// Own lane; as slices of `part` land here, node-mates are told.
  std::vector<StepId> receive(int part, int from) {
    const int lane = b_.new_lane();
    std::vector<StepId> landed;
    for (int s = 0; s < slices_of(part).count(); ++s) {
      landed.push_back(b_.wait(lane, from, tag(Phase::data, s)));
      for (int mate : mates_) b_.signal(lane, mate, spread_tag(part, s));
    }
    return landed;
  }

  void run_root() {
    open_to_mates(Phase::open_input, Space::input);
    for (int part = 0; part < count(); ++part) send(part, leader(part), b_.input(), {});
    b_.copy(b_.new_lane(), b_.input(), b_.output(), task_.bytes());
    close_to_mates();
  }

  void run_leader() {
    const int own = own_part();
    if (parts_.bytes(own) > 0) offer(task_, b_, 0, task_.root(), parts_.largest(), Space::output);
    for (int k = 1; k < count(); ++k) {
      const int part = (own + k) % count();
      if (parts_.bytes(part) > 0) offer(task_, b_, 0, leader(part), parts_.largest(), Space::output);
    }
    open_to_mates(Phase::open, Space::output);
    const std::vector<StepId> landed = receive(own, task_.root());
    for (int k = 1; k < count(); ++k) send(own, leader((own + k) % count()), b_.output(), landed);
    for (int k = 1; k < count(); ++k) receive((own + k) % count(), leader((own + k) % count()));
    close_to_mates();
  }

  void run_member(int from) {
    const StepId open = b_.wait(0, from, tag(Phase::open), Space::output);
    std::vector<StepId> last_reads;
    for (int part = 0; part < count(); ++part) {
      const int lane = b_.new_lane();
      for (int s = 0; s < slices_of(part).count(); ++s) {
        b_.wait(lane, from, spread_tag(part, s), Space::none, {&open, 1});
        const Region source{from, Space::output, at(part, s)};
        const StepId read = b_.copy(lane, source, b_.output(at(part, s)), slices_of(part).bytes(s));
        if (s + 1 == slices_of(part).count()) last_reads.push_back(read);
      }
    }
    b_.signal(0, from, tag(Phase::done), Space::none, last_reads);
  }

  const Task& task_;
  Builder& b_;
  const int root_node_ = task_.layout.node_of(task_.root());
  const std::vector<int> mates_ = node_mates(task_);
  const Blocks parts_ = Blocks::divide(task_.bytes(), task_.request.element_bytes, task_.layout.nodes() - 1);
  const Slices slices_{parts_.largest(), task_};
};

void broadcast(const Task& task, Builder& b) { Broadcast(task, b).run(); }

constexpr Algorithm kTable[] = {
    {kName, Collective::all_reduce, "nodes reduce, exchange and gather blocks all at once, pipelined", fits,
     make_with<kName, all_reduce>},
    {kName, Collective::all_gather, "shards go to every node at once, and are copied inside as they land",
     fits, make_with<kName, all_gather>},
    {kName, Collective::reduce_scatter, "nodes reduce inside, and exchange their sums all at once", fits,
     make_with<kName, reduce_scatter>},
    {kName, Collective::broadcast, "the root gives each node a part, and the nodes exchange parts", fits,
     make_with<kName, broadcast>},
    {kName, Collective::reduce, "as ReduceScatter, and the root collects the blocks", fits,
     make_with<kName, reduce>},
    {kName, Collective::all_to_all, "everyone puts to every rank of other nodes, and copies inside its own",
     fits, make_with<kName, exchange::all_to_all>},
    {kName, Collective::gather, "everyone puts straight into the root's output", fits,
     make_with<kName, exchange::gather>},
    {kName, Collective::scatter, "the root puts straight into every output of other nodes", fits,
     make_with<kName, exchange::scatter>},
};

}  // namespace

std::span<const Algorithm> all_to_all_algorithms() { return kTable; }

}  // namespace weft::plan
