// gather_blocks: the AllGather half of all_to_all, as seen by rank r.
//
//     send      r's block ── slice by slice ──→ rail peer in every other node        a lane each
//     receive   origin q's block ──→ r's output, and as each slice lands:            a lane each
//     spread       r ── "q's slice s is here" ──→ every node-mate
//     collect   node-mate p has (own or landed) slices ──→ r copies them             a lane each
//     close     r tells p when it has read p's output for the last time
//
// Long blocks are put into exposed outputs, and node-mates copy from each other's; short ones are put eagerly
// on both legs, with no handshakes at all. Where transfers are NIC-bound a few go at a time (at_once.h).
#include <algorithm>

#include "plan/hierarchy.h"

namespace weft::plan {
namespace {

class GatherHalf {
 public:
  GatherHalf(const Task& task, Builder& b, const Cut& cut, Region source, std::span<const StepId> ready)
      : task_(task), b_(b), cut_(cut), source_(source), ready_(ready) {}

  void run() {
    expose();
    send();
    spread_own();
    for (size_t i = 0; i < origins_.size(); ++i) receive(i);
    for (int mate : mates_) collect(mate);
    if (!eager_mates_) close();
  }

 private:
  void expose() {
    const int lane = b_.new_lane();
    for (size_t i = 0; i < std::min(cut_.at_once, origins_.size()); ++i) ask(lane, i);
    for (int mate : mates_) {
      if (!eager_mates_) b_.signal(lane, mate, tag(Phase::open), Space::output);
    }
  }

  /// For the block of origin number i.
  void ask(int lane, size_t i) {
    if (!eager_rails_ && !empty(origins_[i]))
      b_.signal(lane, origins_[i], tag(Phase::open_rail), Space::output);
  }

  void send() {
    if (empty(task_.rank)) return;
    const Slices slices = cut_.of(task_.rank);
    std::vector<StepId> sent;  // the last put to each peer
    for (int peer : rail_peers(task_)) {
      const int lane = b_.new_lane();
      if (!eager_rails_) b_.wait(lane, peer, tag(Phase::open_rail), Space::output);
      StepId last = sent.size() < cut_.at_once ? kNoStep : sent[sent.size() - cut_.at_once];
      for (int s = 0; s < slices.count(); ++s) {
        const StepId after[] = {ready_.empty() ? kNoStep : ready_[static_cast<size_t>(s)],
                                s == 0 ? last : kNoStep};
        last = b_.put(lane, peer, source_ + slices.begin(s), slice_at(peer, task_.rank, s), slices.bytes(s),
                      tag(Phase::data, s), after);
      }
      sent.push_back(last);
    }
  }

  void spread_own() {
    const Slices slices = spread_slices(task_.rank, task_.rank);
    const int lane = b_.new_lane();
    b_.copy(lane, source_, slice_at(task_.rank, task_.rank, 0), slices.total());
    for (int s = 0; s < slices.count(); ++s) spread(lane, task_.rank, s, ready(s));
  }

  /// How `holder` spreads the block of `origin`: slice by slice as it comes, or whole if it is there from the
  /// start.
  Slices spread_slices(int holder, int origin) const {
    return origin == holder && whole_ ? cut_.of(origin).whole() : cut_.of(origin);
  }

  void receive(size_t i) {
    const int origin = origins_[i], lane = b_.new_lane();
    const Slices slices = cut_.of(origin);
    const bool asks = !cut_.all_at_once() && i + cut_.at_once < origins_.size();
    for (int s = 0; s < slices.count(); ++s) {
      b_.wait(lane, origin, tag(Phase::data, s));
      if (asks && s == asks_after(slices)) ask(lane, i + cut_.at_once);
      spread(lane, origin, s, {});
    }
  }

  void spread(int lane, int origin, int s, std::span<const StepId> after) {
    for (int mate : mates_) {
      if (eager_mates_) {
        b_.put(lane, mate, slice_at(task_.rank, origin, s), slice_at(mate, origin, s),
               spread_slices(task_.rank, origin).bytes(s), spread_tag(task_.rank, origin, s), after);
      } else {
        b_.signal(lane, mate, spread_tag(task_.rank, origin, s), Space::none, after);
      }
    }
  }

  void collect(int mate) {
    std::vector<int> held = origins(task_, mate);
    held.insert(held.begin(), mate);
    const int main = b_.new_lane();
    StepId open = kNoStep;
    if (!eager_mates_) open = b_.wait(main, mate, tag(Phase::open), Space::output);
    std::vector<StepId> last_reads;
    for (int origin : held) {
      const int lane = b_.new_lane();
      const Slices slices = spread_slices(mate, origin);
      StepId last = kNoStep;
      for (int s = 0; s < slices.count(); ++s) {
        b_.wait(lane, mate, spread_tag(mate, origin, s), Space::none, {&open, s == 0 ? size_t{1} : 0});
        if (eager_mates_) continue;
        last = b_.copy(lane, slice_at(mate, origin, s), slice_at(task_.rank, origin, s), slices.bytes(s));
      }
      last_reads.push_back(last);
    }
    if (!eager_mates_) b_.signal(main, mate, tag(Phase::done), Space::none, last_reads);
  }

  void close() {
    const int lane = b_.new_lane();
    for (int mate : mates_) b_.wait(lane, mate, tag(Phase::done));
  }

  bool empty(int rank) const { return cut_.blocks.bytes(rank) == 0; }
  std::span<const StepId> ready(int s) const {
    return ready_.empty() ? ready_ : ready_.subspan(static_cast<size_t>(s), 1);
  }
  Region slice_at(int holder, int origin, int s) const {
    return {holder, Space::output, cut_.blocks.begin(origin) + cut_.of(origin).begin(s)};
  }
  /// By how far the origin is from the holder, so that every node counts alike.
  uint32_t spread_tag(int holder, int origin, int s) const {
    const int distance = (origin - holder + task_.ranks()) % task_.ranks();
    return tag(Phase::spread, static_cast<uint64_t>(distance) * Slices::kMost + static_cast<uint64_t>(s));
  }

  const Task& task_;
  Builder& b_;
  const Cut& cut_;
  const Region source_;
  const std::span<const StepId> ready_;
  const bool whole_ = source_.space == Space::input;  // the own block is there from the start
  const std::vector<int> mates_ = node_mates(task_);
  const std::vector<int> origins_ = origins(task_, task_.rank);
  const bool eager_rails_ =
      cut_.all_at_once() && cut_.blocks.largest() <= eager_bytes_meeting(task_.layout, task_.limits);
  const bool eager_mates_ = cut_.blocks.largest() <= task_.limits.eager_intra_bytes;
};

}  // namespace

void gather_blocks(const Task& task, Builder& b, const Cut& cut, Region source,
                   std::span<const StepId> ready) {
  GatherHalf(task, b, cut, source, ready).run();
}

}  // namespace weft::plan
