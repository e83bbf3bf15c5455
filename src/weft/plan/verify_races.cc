// Races: of two accesses to the same bytes, one of them a write, one must happen before the other, and nobody
// may touch memory whose owner's plan may have ended.
//
// Method: memory by memory. Find the pairs of accesses that conflict. In each pair the one that is earlier in
// the timeline's order is the only one that can happen before the other. Give each of those a bit, and carry
// the bits along the edges of the timeline: what reaches an event happened before it.
#include <fmt/format.h>

#include <algorithm>

#include "plan/verify_accesses.h"

namespace weft::plan::verifier {
namespace {

/// Which of a batch of events happened before each event. Bits of a batch fit a few words, so that a long
/// timeline needs little memory.
class Reach {
 public:
  static constexpr size_t kWords = 4, kBatch = 64 * kWords;

  struct Bits {
    uint64_t word[kWords] = {};

    void set(size_t bit) { word[bit / 64] |= uint64_t{1} << bit % 64; }
    bool has(size_t bit) const { return word[bit / 64] >> bit % 64 & 1; }
    void merge(const Bits& other) {
      for (size_t w = 0; w < kWords; ++w) word[w] |= other.word[w];
    }
  };

  explicit Reach(const Timeline& t) : t_(t), bits_(t.before.size()) {}

  /// `tracked` in the timeline's order, at most kBatch.
  void trace(std::span<const Event> tracked) {
    const uint32_t start = t_.position[tracked.front()];
    std::fill(bits_.begin(), bits_.end(), Bits{});
    size_t next = 0;
    for (uint32_t i = start; i < t_.order.size(); ++i) {
      const Event event = t_.order[i];
      Bits& own = bits_[event];
      for (Event earlier : t_.before[event]) own.merge(bits_[earlier]);
      if (next < tracked.size() && tracked[next] == event) {
        own.set(next++);
      }
    }
  }
  /// Whether the tracked event number `bit` is `event` or happened before it.
  bool reaches(Event event, size_t bit) const { return bits_[event].has(bit); }
  /// The same for any of a range of events.
  Bits reaching_any(Event first, Event last) const {
    Bits any;
    for (Event event = first; event < last; ++event) any.merge(bits_[event]);
    return any;
  }

 private:
  const Timeline& t_;
  std::vector<Bits> bits_;
};

class Memory {
 public:
  Memory(const World& world, const Timeline& t, int owner, std::vector<Access> accesses)
      : world_(world),
        t_(t),
        owner_(owner),
        accesses_(std::move(accesses)),
        conflicts_(find_conflicts(t, accesses_)) {}

  Status check(Reach& reach) {
    const std::vector<Event> tracked = events_to_track();
    size_t next_conflict = 0;
    for (size_t begin = 0; begin < tracked.size(); begin += Reach::kBatch) {
      const auto batch = std::span(tracked).subspan(begin, std::min(Reach::kBatch, tracked.size() - begin));
      reach.trace(batch);
      const Reach::Bits known = reach.reaching_any(t_.first_event[owner_], t_.first_event[owner_ + 1]);
      for (size_t bit = 0; bit < batch.size(); ++bit) {
        for (; next_conflict < conflicts_.size(); ++next_conflict) {
          const Conflict& conflict = conflicts_[next_conflict];
          if (accesses_[conflict.first].event != batch[bit]) break;
          if (!reach.reaches(accesses_[conflict.second].event, bit)) return race(conflict);
        }
        if (t_.step_of[batch[bit]].rank != owner_ && !known.has(bit)) return late(batch[bit]);
      }
    }
    return {};
  }

 private:
  /// The earlier halves of conflicts, and all that others do here.
  std::vector<Event> events_to_track() const {
    std::vector<Event> events;
    for (const Conflict& conflict : conflicts_) events.push_back(accesses_[conflict.first].event);
    for (const Access& access : accesses_) {
      if (t_.step_of[access.event].rank != owner_) events.push_back(access.event);
    }
    std::sort(events.begin(), events.end(),
              [&](Event a, Event b) { return t_.position[a] < t_.position[b]; });
    events.erase(std::unique(events.begin(), events.end()), events.end());
    return events;
  }

  std::string describe(const Access& access) const {
    return fmt::format("{} {} {}", world_.name_of(t_.step_of[access.event]),
                       access.writes ? "writes" : "reads",
                       World::name_of(access.region, access.bytes.end - access.bytes.begin));
  }

  Status race(const Conflict& conflict) const {
    return fail(Code::internal_error, "race: {}, and {}; nothing orders them",
                describe(accesses_[conflict.first]), describe(accesses_[conflict.second]));
  }

  Status late(Event event) const {
    const auto access =
        std::find_if(accesses_.begin(), accesses_.end(), [&](const Access& a) { return a.event == event; });
    return fail(Code::internal_error, "{} possibly after rank {}'s plan has ended", describe(*access),
                owner_);
  }

  const World& world_;
  const Timeline& t_;
  const int owner_;
  std::vector<Access> accesses_;
  std::vector<Conflict> conflicts_;
};

}  // namespace

Status check_races(const World& world, const Timeline& t) {
  auto accesses = list_accesses(world, t);
  Reach reach(t);
  for (int rank = 0; rank < world.ranks(); ++rank) {
    WEFT_TRY(Memory(world, t, rank, std::move(accesses[rank])).check(reach));
  }
  return {};
}

}  // namespace weft::plan::verifier
