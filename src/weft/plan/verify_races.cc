// Races: of two accesses to the same bytes, one of them a write, one must happen before the other, and nobody
// may touch memory whose owner's plan may have ended.
//
// Method: memory by memory. Find the pairs of accesses that conflict. In each pair the one that is earlier in
// the timeline's order is the only one that can happen before the other. Give each of those a bit, and carry
// the bits along the edges of the timeline: what reaches an event happened before it.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/verify_world.h"

namespace weft::plan::verifier {
namespace {

struct Access {
  Event event;
  bool writes;
  Interval bytes;
  Region region;
};

/// Everything that is done to each rank's memory.
std::vector<std::vector<Access>> list_accesses(const World& world, const Timeline& t) {
  std::vector<std::vector<Access>> of_rank(static_cast<size_t>(world.ranks()));
  for (Event event = 1; event < t.first_event.back(); ++event) {
    const StepRef ref = t.step_of[event];
    const Step& step = world.step(ref);
    if (step.kind == StepKind::signal || step.kind == StepKind::wait || step.bytes == 0) continue;
    const Interval target = world.locate(ref.rank, step.dst, step.bytes);
    const auto sources = world.plan(ref.rank).sources_of(step);
    if (step.kind == StepKind::copy && world.locate(ref.rank, sources[0], step.bytes) == target) continue;
    const bool is_put = step.kind == StepKind::put;
    const Event reads = is_put ? t.read_of[event] : event, writes = is_put ? reads + 1 : event;
    for (const Region& source : sources) {
      of_rank[source.rank].push_back({reads, false, world.locate(ref.rank, source, step.bytes), source});
    }
    of_rank[step.dst.rank].push_back({writes, true, target, step.dst});
  }
  return of_rank;
}

/// Two accesses, by index; `first` is earlier in the timeline's order.
struct Conflict {
  uint32_t first, second;
};

std::vector<Conflict> find_conflicts(const Timeline& t, std::vector<Access>& accesses) {
  std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) {
    return std::pair(a.bytes.arena, a.bytes.begin) < std::pair(b.bytes.arena, b.bytes.begin);
  });
  std::vector<Conflict> conflicts;
  std::vector<uint32_t> open_reads, open_writes;
  const auto meet = [&](uint32_t current, std::vector<uint32_t>& open) {
    std::erase_if(open, [&](uint32_t i) {
      return accesses[i].bytes.arena != accesses[current].bytes.arena ||
             accesses[i].bytes.end <= accesses[current].bytes.begin;
    });
    for (uint32_t i : open) {
      if (accesses[i].event == accesses[current].event) continue;
      const bool in_order = t.position[accesses[i].event] < t.position[accesses[current].event];
      conflicts.push_back(in_order ? Conflict{i, current} : Conflict{current, i});
    }
  };
  for (uint32_t i = 0; i < accesses.size(); ++i) {
    meet(i, open_writes);
    if (accesses[i].writes) meet(i, open_reads);
    (accesses[i].writes ? open_writes : open_reads).push_back(i);
  }
  std::sort(conflicts.begin(), conflicts.end(), [&](const Conflict& a, const Conflict& b) {
    return t.position[accesses[a.first].event] < t.position[accesses[b.first].event];
  });
  return conflicts;
}

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
