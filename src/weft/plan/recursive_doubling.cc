// recursive_doubling: log2(n) rounds with a partner twice as far away each time; both send all they have. Few
// rounds, so it wins for short messages on many ranks, where one hop to everybody would be too many messages.
// What is far for an AllGather of some length, Fold says: node-mates are the farthest.
//
//     round 0   0 ↔ 1   2 ↔ 3   4 ↔ 5   6 ↔ 7       AllReduce: the whole sum so far, each way
//     round 1   0 ↔ 2   1 ↔ 3   4 ↔ 6   5 ↔ 7       AllGather: the blocks so far, each way
//     round 2   0 ↔ 4   1 ↔ 5   2 ↔ 6   3 ↔ 7
//
// Other numbers than powers of two: see Fold; a ward gives its data first, and is given the result last. Both
// partners add the sum of the lower ranks first, so all ranks get the same bits.
#include "plan/fold.h"
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "recursive_doubling";
constexpr int kLane = 0;

Status fits(const Request& request, const topology::Layout& layout, const Limits&) {
  WEFT_TRY(fits_any(request, layout));
  return refuse_strict(request, kName);
}

/// AllReduce of one participant, all in one lane. Scratch has a place for the ward's data and for each
/// round's.
class Doubling {
 public:
  Doubling(const Task& task, Builder& b) : task_(task), b_(b) {}

  void run() {
    b_.reserve(place_ * (fold_.rounds() + has_ward_));
    if (has_ward_) offer(task_, b_, kLane, ward_, task_.bytes(), Space::scratch, Phase::open_scratch);
    for (int round = 0; round < fold_.rounds(); ++round) {
      offer(task_, b_, kLane, partner(round), task_.bytes(), Space::scratch, Phase::open_scratch);
    }
    for (int round = 0; round < fold_.rounds(); ++round) {
      accept(task_, b_, kLane, partner(round), task_.bytes(), Space::scratch, Phase::open_scratch);
      for (int s = 0; s < slices_.count(); ++s) {
        if (round > 0) add_partner(round - 1, s);
        if (round == 0 && has_ward_) add_ward(s);
        send(round, s);
      }
    }
    for (int s = 0; s < slices_.count(); ++s) add_partner(fold_.rounds() - 1, s);
    if (!has_ward_) return;
    accept(task_, b_, kLane, ward_, task_.bytes(), Space::output);
    put_slices(b_, kLane, ward_, b_.output(), {ward_, Space::output, 0}, slices_, Phase::collect);
  }

 private:
  int partner(int round) const { return fold_.rank_of(me_ ^ 1 << round); }
  /// Where rank `at` keeps what its partner of `round` sends, behind what its ward sends.
  Region place(int at, int round) const {
    return {at, Space::scratch, place_ * static_cast<uint64_t>(round + fold_.has_ward(at))};
  }
  /// The sum of all that was added before `round`.
  Region sum(int round) const { return round == 0 && !has_ward_ ? b_.input() : b_.output(); }
  /// How many ranks' contributions a participant's sum holds then.
  uint32_t ranks_in_sum(int participant, int round) const {
    return fold_.ranks_of(participant >> round << round, 1, 1 << round);
  }

  void add_ward(int s) {
    const uint64_t at = slices_.begin(s);
    const Source sources[] = {{b_.input(at)}, {b_.scratch(at)}};
    b_.wait(kLane, ward_, tag(Phase::ready, s));
    b_.reduce(kLane, sources, b_.output(at), slices_.bytes(s));
  }

  void send(int round, int s) {
    const uint64_t at = slices_.begin(s);
    sent_[s] = b_.put(kLane, partner(round), sum(round) + at, place(partner(round), round) + at,
                      slices_.bytes(s), tag(Phase::data, s));
  }

  void add_partner(int round, int s) {
    const uint64_t at = slices_.begin(s);
    Source sources[] = {{sum(round) + at, ranks_in_sum(me_, round)},
                        {place(task_.rank, round) + at, ranks_in_sum(me_ ^ 1 << round, round)}};
    if (partner(round) < task_.rank) std::swap(sources[0], sources[1]);
    b_.wait(kLane, partner(round), tag(Phase::data, s));
    b_.reduce(kLane, sources, b_.output(at), slices_.bytes(s), {&sent_[s], 1});
  }

  const Task& task_;
  Builder& b_;
  const Fold fold_{task_.ranks()};
  const Slices slices_{task_.bytes(), task_};
  const int me_ = fold_.participant(task_.rank);
  const bool has_ward_ = fold_.has_ward(task_.rank);
  const int ward_ = task_.rank + 1;
  const uint64_t place_ = round_up(task_.bytes(), 64);
  std::vector<StepId> sent_ =
      std::vector<StepId>(static_cast<size_t>(slices_.count()), kNoStep);  // latest, by slice
};

void all_reduce(const Task& task, Builder& b) {
  if (!Fold(task.ranks()).is_ward(task.rank)) return Doubling(task, b).run();
  const int speaker = task.rank - 1;
  const Slices slices(task.bytes(), task);
  offer(task, b, kLane, speaker, task.bytes(), Space::output);
  accept(task, b, kLane, speaker, task.bytes(), Space::scratch, Phase::open_scratch);
  put_slices(b, kLane, speaker, b.input(), {speaker, Space::scratch, 0}, slices, Phase::ready);
  receive_slices(b, kLane, speaker, slices, Phase::collect);
}

/// Both ends of what a speaker gives its ward at the end: all blocks but the ward's own, which lies in
/// between.
template <typename Move>
void for_both_sides(const Task& task, int ward, Move move) {
  const uint64_t own = task.bytes() * ward, above = own + task.bytes();
  move(uint64_t{0}, own, Phase::collect);
  move(above, task.bytes() * task.ranks() - above, Phase::spread);
}

void all_gather_ward(const Task& task, Builder& b) {
  const int speaker = task.rank - 1;
  const uint64_t own = task.bytes() * task.rank, rest = task.bytes() * (task.ranks() - 1);
  offer(task, b, kLane, speaker, rest, Space::output);
  accept(task, b, kLane, speaker, task.bytes(), Space::output);
  put_slices(b, kLane, speaker, b.input(), {speaker, Space::output, own}, Slices(task.bytes(), task));
  b.copy(kLane, b.input(), b.output(own), task.bytes());
  for_both_sides(task, task.rank, [&](uint64_t, uint64_t bytes, Phase phase) {
    receive_slices(b, kLane, speaker, Slices(bytes, task), phase);
  });
}

/// Where participants are not in order, blocks gather in scratch in theirs, and those of a round are copied
/// to where they belong once the next round's have left.
void all_gather(const Task& task, Builder& b) {
  const uint64_t all = task.bytes() * task.ranks();
  const Fold fold = fold_of_blocks(task.layout, task.limits, all);
  if (fold.is_ward(task.rank)) return all_gather_ward(task, b);
  const int me = fold.participant(task.rank), ward = task.rank + 1;
  const bool has_ward = fold.has_ward(task.rank);
  // Before a round, a participant has the blocks of all participants that agree with it in the higher bits.
  const auto first = [&](int participant, int round) { return participant >> round << round; };
  const auto place = [&](int participant) { return task.bytes() * fold.place(participant); };
  const auto begin = [&](int participant, int round) { return place(first(participant, round)); };
  const auto bytes = [&](int participant, int round) {
    return place(first(participant, round) + (1 << round)) - begin(participant, round);
  };
  const Space space = fold.in_order() ? Space::output : Space::scratch;
  if (!fold.in_order()) b.reserve(all);
  const auto deliver = [&](int participant, int round) {
    if (fold.in_order()) return;
    for (int p = first(participant, round), end = p + (1 << round); p < end; ++p)
      b.copy(kLane, b.scratch(place(p)), b.output(task.bytes() * fold.rank_of(p)), task.bytes());
  };
  if (has_ward) offer(task, b, kLane, ward, task.bytes(), Space::output);
  for (int round = 0; round < fold.rounds(); ++round) {
    const int other = me ^ 1 << round;
    offer(task, b, kLane, fold.rank_of(other), bytes(other, round), space);
  }
  b.copy(kLane, b.input(), {task.rank, space, place(me)}, task.bytes());
  if (has_ward) receive_slices(b, kLane, ward, Slices(task.bytes(), task));
  for (int round = 0; round < fold.rounds(); ++round) {
    const int other = me ^ 1 << round, partner = fold.rank_of(other);
    const uint64_t at = begin(me, round);
    accept(task, b, kLane, partner, bytes(me, round), space);
    put_slices(b, kLane, partner, {task.rank, space, at}, {partner, space, at},
               Slices(bytes(me, round), task));
    if (round > 0) deliver(me ^ 1 << (round - 1), round - 1);
    receive_slices(b, kLane, partner, Slices(bytes(other, round), task));
  }
  deliver(me, 0);
  deliver(me ^ 1 << (fold.rounds() - 1), fold.rounds() - 1);
  if (!has_ward) return;
  accept(task, b, kLane, ward, task.bytes() * (task.ranks() - 1), Space::output);
  for_both_sides(task, ward, [&](uint64_t at, uint64_t run, Phase phase) {
    put_slices(b, kLane, ward, b.output(at), {ward, Space::output, at}, Slices(run, task), phase);
  });
}

constexpr Algorithm kTable[] = {
    {kName, Collective::all_reduce,
     "log2(n) exchanges of the whole sum, with partners twice as far each time", fits,
     make_with<kName, all_reduce>},
    {kName, Collective::all_gather,
     "log2(n) exchanges of all blocks so far, with partners twice as far each time", fits,
     make_with<kName, all_gather>},
};

}  // namespace

std::span<const Algorithm> recursive_doubling_algorithms() { return kTable; }

}  // namespace weft::plan
