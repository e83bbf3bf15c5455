// recursive_halving: log2(n) rounds; in each, partners split the range that they share, and each adds up its
// half. Moves no more bytes than a ring in far fewer rounds, so it wins for medium messages.
//
//     range            0           1           2           3        of 4 participants
//     round 0      ├── keep ──────────────┤├── send to 2 ────────┤      as seen by 0
//     round 1      ├── keep ──┤├─ to 1 ──┤
//
//   ReduceScatter  a participant ends with its own block (and its ward's, see Fold, which it then gives away)
//   AllReduce      the same, and then the way back with finished ranges (Rabenseifner)
//
// The lower partner's sum is added first. All steps are in one lane.
#include "plan/fold.h"
#include "plan/transfer.h"

namespace weft::plan {
namespace {

constexpr char kName[] = "recursive_halving";
constexpr int kLane = 0;

Status fits(const Request& request, const topology::Layout& layout, const Limits&) {
  WEFT_TRY(fits_any(request, layout));
  return refuse_strict(request, kName);
}

struct Range {
  uint64_t begin, bytes;
};

/// The halving of one participant. `bounds` says where in the sum each participant's part begins.
///
/// Scratch begins with a place for all that a ward sends, then one for each round's half. Every participant
/// computes where its partners keep theirs.
class Halving {
 public:
  Halving(const Task& task, Builder& b, const Fold& fold, std::vector<uint64_t> bounds)
      : task_(task), b_(b), fold_(fold), bounds_(std::move(bounds)) {
    b_.reserve(place(me_, fold_.rounds()));
  }

  int rounds() const { return fold_.rounds(); }
  bool has_ward() const { return fold_.has_ward(task_.rank); }
  int ward() const { return task_.rank + 1; }
  int me() const { return me_; }
  int other(int round) const { return me_ ^ mask(round); }
  int partner(int round) const { return fold_.rank_of(other(round)); }
  /// What a participant keeps in a round.
  Range kept(int participant, int round) const {
    const int first = participant & -mask(round);
    return {bounds_[first], bounds_[first + mask(round)] - bounds_[first]};
  }

  /// Adds up what is in `mine` in the order of participants; `sum` (all of the range, own memory) takes what
  /// is not final. finish(sources) makes the last reduction, of the participant's own part.
  template <typename Finish>
  void run(Region mine, Region sum, Finish finish) const {
    if (has_ward()) offer(task_, b_, kLane, ward(), bounds_.back(), Space::scratch, Phase::open_scratch);
    for (int round = 0; round < fold_.rounds(); ++round) {
      offer(task_, b_, kLane, partner(round), kept(me_, round).bytes, Space::scratch, Phase::open_scratch);
    }
    if (has_ward()) {
      const Slices slices(bounds_.back(), task_);
      for (int s = 0; s < slices.count(); ++s) {
        const uint64_t at = slices.begin(s);
        const Source sources[] = {{mine + at}, {b_.scratch(at)}};
        b_.wait(kLane, ward(), tag(Phase::ready, s));
        b_.reduce(kLane, sources, sum + at, slices.bytes(s));
      }
      mine = sum;
    }
    for (int round = 0; round < fold_.rounds(); ++round) {
      exchange(round, mine);
      const Range half = kept(me_, round);
      Source sources[] = {{mine + half.begin, ranks_in_sum(me_, round)},
                          {b_.scratch(place(me_, round)), ranks_in_sum(other(round), round)}};
      if (partner(round) < task_.rank) std::swap(sources[0], sources[1]);
      if (round + 1 == fold_.rounds()) return finish(sources);
      b_.reduce(kLane, sources, sum + half.begin, half.bytes);
      mine = sum;
    }
  }

 private:
  int mask(int round) const { return fold_.participants() >> (round + 1); }
  /// How many ranks' contributions a participant's sum holds before a round: those of all participants that
  /// differ in the bits of earlier rounds only.
  uint32_t ranks_in_sum(int participant, int round) const {
    const int stride = 2 * mask(round);
    return fold_.ranks_of(participant % stride, stride, 1 << round);
  }
  /// Where in scratch a participant keeps what it receives in `round`; the number of rounds gives the end.
  uint64_t place(int participant, int round) const {
    uint64_t offset = fold_.has_ward(fold_.rank_of(participant)) ? round_up(bounds_.back(), 64) : 0;
    for (int r = 0; r < round; ++r) offset += round_up(kept(participant, r).bytes, 64);
    return offset;
  }

  void exchange(int round, Region mine) const {
    const int peer = partner(round);
    const Range theirs = kept(other(round), round);
    accept(task_, b_, kLane, peer, theirs.bytes, Space::scratch, Phase::open_scratch);
    put_slices(b_, kLane, peer, mine + theirs.begin, {peer, Space::scratch, place(other(round), round)},
               Slices(theirs.bytes, task_));
    receive_slices(b_, kLane, peer, Slices(kept(me_, round).bytes, task_));
  }

  const Task& task_;
  Builder& b_;
  const Fold fold_;
  const std::vector<uint64_t> bounds_;
  const int me_ = fold_.participant(task_.rank);
};

/// A ward hands its whole input over, and waits for its result.
void plan_ward(const Task& task, Builder& b, uint64_t bytes) {
  const int speaker = task.rank - 1;
  offer(task, b, kLane, speaker, task.bytes(), Space::output);
  accept(task, b, kLane, speaker, bytes, Space::scratch, Phase::open_scratch);
  put_slices(b, kLane, speaker, b.input(), {speaker, Space::scratch, 0}, Slices(bytes, task), Phase::ready);
  receive_slices(b, kLane, speaker, Slices(task.bytes(), task), Phase::spread);
}

void give_ward(const Task& task, Builder& b, Region result) {
  const int ward = task.rank + 1;
  accept(task, b, kLane, ward, task.bytes(), Space::output);
  put_slices(b, kLane, ward, result, {ward, Space::output, 0}, Slices(task.bytes(), task), Phase::spread);
}

/// Where participants are not in order, their inputs' blocks are brought into theirs.
void reduce_scatter(const Task& task, Builder& b) {
  const uint64_t all = task.bytes() * task.ranks();
  const Fold fold = fold_of_blocks(task.layout, task.limits, all);
  if (fold.is_ward(task.rank)) return plan_ward(task, b, all);
  std::vector<uint64_t> bounds;
  for (int p = 0; p <= fold.participants(); ++p) bounds.push_back(task.bytes() * fold.place(p));
  const Halving halving(task, b, fold, bounds);
  const bool sums = halving.rounds() > 1 || halving.has_ward();
  const Region sum = b.scratch(b.reserve(sums ? all : 0));
  Region mine = b.input();
  if (!fold.in_order()) {
    mine = b.scratch(b.reserve(all));
    for (int p = 0; p < fold.participants(); ++p)
      b.copy(kLane, b.input(task.bytes() * fold.rank_of(p)), mine + bounds[p], task.bytes());
  }
  halving.run(mine, sum, [&](std::span<const Source> sources) {
    b.reduce(kLane, sources, b.output(), task.bytes());
    if (!halving.has_ward()) return;
    const Source wards[] = {{sources[0].region + task.bytes(), sources[0].contributions},
                            {sources[1].region + task.bytes(), sources[1].contributions}};
    const Region result = sum + task.bytes() * halving.ward();
    b.reduce(kLane, wards, result, task.bytes());
    give_ward(task, b, result);
  });
}

void all_reduce(const Task& task, Builder& b) {
  const Fold fold(task.layout);
  if (fold.is_ward(task.rank)) return plan_ward(task, b, task.bytes());
  const Blocks blocks = Blocks::divide(task.bytes(), task.request.element_bytes, fold.participants());
  std::vector<uint64_t> bounds;
  for (int p = 0; p <= fold.participants(); ++p) bounds.push_back(blocks.begin(p));
  const Halving halving(task, b, fold, bounds);
  const auto theirs = [&](int round) { return halving.kept(halving.other(round), round); };
  for (int round = 0; round < halving.rounds(); ++round) {
    offer(task, b, kLane, halving.partner(round), theirs(round).bytes, Space::output);
  }
  const Range own = halving.kept(halving.me(), halving.rounds() - 1);
  halving.run(b.input(), b.output(), [&](std::span<const Source> sources) {
    b.reduce(kLane, sources, b.output(own.begin), own.bytes);
  });
  for (int round = halving.rounds() - 1; round >= 0; --round) {
    const int peer = halving.partner(round);
    const Range mine = halving.kept(halving.me(), round);
    accept(task, b, kLane, peer, mine.bytes, Space::output);
    put_slices(b, kLane, peer, b.output(mine.begin), {peer, Space::output, mine.begin},
               Slices(mine.bytes, task), Phase::collect);
    receive_slices(b, kLane, peer, Slices(theirs(round).bytes, task), Phase::collect);
  }
  if (halving.has_ward()) give_ward(task, b, b.output());
}

constexpr Algorithm kTable[] = {
    {kName, Collective::all_reduce, "log2(n) exchanges of ever smaller halves to add up, and log2(n) back",
     fits, make_with<kName, all_reduce>},
    {kName, Collective::reduce_scatter, "log2(n) exchanges of ever smaller halves", fits,
     make_with<kName, reduce_scatter>},
};

}  // namespace

std::span<const Algorithm> recursive_halving_algorithms() { return kTable; }

}  // namespace weft::plan
