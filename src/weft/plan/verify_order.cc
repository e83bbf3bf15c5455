// Order: which events come before which, whether the plans end, and whether handles are learned before they
// are used.
#include <fmt/format.h>

#include <bit>
#include <map>

#include "plan/verify_world.h"

namespace weft::plan::verifier {
namespace {

/// Numbers the events. Event 0 belongs to no step, so that 0 can stand for "none".
void number_events(const World& world, Timeline& t) {
  Event next = 1;
  t.step_of.assign(1, {});
  for (int rank = 0; rank < world.ranks(); ++rank) {
    t.first_event.push_back(next);
    if (!world.takes_part(rank)) continue;
    const auto count = static_cast<StepId>(world.plan(rank).steps.size());
    for (StepId id = 0; id < count; ++id) t.step_of.push_back({rank, id});
    next += count;
  }
  t.first_event.push_back(next);
  t.read_of.assign(next, 0);
  for (Event event = 1; event < t.first_event.back(); ++event) {
    if (world.step(t.step_of[event]).kind != StepKind::put) continue;
    t.read_of[event] = next;
    next += 2;
    t.step_of.insert(t.step_of.end(), 2, t.step_of[event]);
  }
  t.read_of.resize(next, 0);
  t.before.assign(next, {});
}

void link_rank(const World& world, int rank, Timeline& t) {
  const Plan& plan = world.plan(rank);
  for (int lane = 0; lane < plan.lanes(); ++lane) {
    for (uint32_t i = plan.lane_begin[lane]; i < plan.lane_begin[lane + 1]; ++i) {
      const StepRef ref{rank, plan.lane_steps[i]};
      const Step& step = world.step(ref);
      const Event event = t.event_of(ref);
      if (i > plan.lane_begin[lane]) t.before[event].push_back(t.event_of({rank, plan.lane_steps[i - 1]}));
      for (StepId id : plan.after(step)) t.before[event].push_back(t.completion_of({rank, id}));
      if (step.kind == StepKind::put) {
        t.before[t.read_of[event]].push_back(event);
        t.before[t.read_of[event] + 1].push_back(t.read_of[event]);
      }
      if (step.kind == StepKind::wait) {
        const StepRef from = world.sender(rank, step);
        const Event sent = t.event_of(from);
        t.before[event].push_back(t.read_of[sent] != 0 ? t.read_of[sent] + 1 : sent);
      }
    }
  }
}

/// The steps that lanes cannot get past, at most a few.
std::string stuck_steps(const World& world, const Timeline& t) {
  std::string text;
  int named = 0, more = 0;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (!world.takes_part(rank)) continue;
    const Plan& plan = world.plan(rank);
    for (int lane = 0; lane < plan.lanes(); ++lane) {
      for (uint32_t i = plan.lane_begin[lane]; i < plan.lane_begin[lane + 1]; ++i) {
        const StepRef ref{rank, plan.lane_steps[i]};
        if (t.position[t.event_of(ref)] != UINT32_MAX) continue;
        if (++named <= 4) text += (named > 1 ? "; " : "") + world.name_of(ref);
        more += named > 4;
        break;
      }
    }
  }
  return more > 0 ? fmt::format("{}; and {} more", text, more) : text;
}

/// Words of bits, one row for each step of a rank.
class Rows {
 public:
  Rows(size_t rows, size_t bits) : words_((bits + 63) / 64), data_(rows * words_) {}
  void set(size_t row, size_t bit) { data_[row * words_ + bit / 64] |= uint64_t{1} << bit % 64; }
  bool has(size_t row, size_t bit) const { return data_[row * words_ + bit / 64] >> bit % 64 & 1; }
  void merge(size_t into, size_t from) {
    for (size_t w = 0; w < words_; ++w) data_[into * words_ + w] |= data_[from * words_ + w];
  }

 private:
  size_t words_;
  std::vector<uint64_t> data_;
};

/// The waits of one rank that learn a handle, and which of them come before each of its steps, in the rank
/// itself.
class Handles {
 public:
  Handles(const World& world, const Timeline& t, int rank, std::span<const Event> own_events)
      : world_(world), rank_(rank), rows_(world.plan(rank).steps.size(), count_learning_waits(world, rank)) {
    for (Event event : own_events) {
      const StepRef ref = t.step_of[event];
      if (t.event_of(ref) != event) continue;  // a put's later events
      for (Event earlier : t.before[event]) {
        const StepRef from = t.step_of[earlier];
        if (from.rank == rank && from.id != ref.id) rows_.merge(ref.id, from.id);
      }
      const Step& step = world.step(ref);
      if (step.kind != StepKind::wait || step.exposes == Space::none) continue;
      auto& waits = learned_[{step.peer, step.exposes}];
      waits.push_back(bits_);
      rows_.set(ref.id, bits_++);
    }
  }

  bool known(StepId at, int peer, Space space) const {
    const auto found = learned_.find({peer, space});
    if (found == learned_.end()) return false;
    for (size_t bit : found->second) {
      if (rows_.has(at, bit)) return true;
    }
    return false;
  }

  Status check(StepId id) const {
    const Step& step = world_.plan(rank_).steps[id];
    const auto demand = [&](const Region& region, const char* verb) -> Status {
      if (known(id, region.rank, region.space)) return {};
      return fail(Code::internal_error, "{} {} {}, which no earlier wait of this rank has learned",
                  world_.name_of(StepRef{rank_, id}), verb, World::name_of(region, step.bytes));
    };
    if (step.kind == StepKind::put) {
      const uint64_t eager = world_.limits().eager_bytes(world_.layout().same_node(rank_, step.peer));
      return step.bytes > eager ? demand(step.dst, "puts more than is eager into") : Status{};
    }
    for (const Region& source : world_.plan(rank_).sources_of(step)) {
      if (source.rank != rank_) WEFT_TRY(demand(source, "reads"));
    }
    return {};
  }

 private:
  static size_t count_learning_waits(const World& world, int rank) {
    size_t count = 0;
    for (const Step& step : world.plan(rank).steps) {
      count += step.kind == StepKind::wait && step.exposes != Space::none;
    }
    return count;
  }

  const World& world_;
  const int rank_;
  Rows rows_;
  size_t bits_ = 0;
  std::map<std::pair<int, Space>, std::vector<size_t>> learned_;
};

}  // namespace

Status order_events(const World& world, Timeline& t) {
  number_events(world, t);
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (world.takes_part(rank)) link_rank(world, rank, t);
  }
  const size_t count = t.before.size();
  std::vector<uint32_t> missing(count), after_begin(count + 1, 0);
  for (Event event = 1; event < count; ++event) {
    missing[event] = static_cast<uint32_t>(t.before[event].size());
    for (Event earlier : t.before[event]) ++after_begin[earlier + 1];
  }
  for (size_t i = 1; i <= count; ++i) after_begin[i] += after_begin[i - 1];
  std::vector<Event> after(after_begin.back());
  std::vector<uint32_t> next = after_begin;
  for (Event event = 1; event < count; ++event) {
    for (Event earlier : t.before[event]) after[next[earlier]++] = event;
  }
  t.position.assign(count, UINT32_MAX);
  for (Event event = 1; event < count; ++event) {
    if (missing[event] == 0) t.order.push_back(event);
  }
  for (size_t i = 0; i < t.order.size(); ++i) {
    const Event event = t.order[i];
    t.position[event] = static_cast<uint32_t>(i);
    for (uint32_t k = after_begin[event]; k < after_begin[event + 1]; ++k) {
      if (--missing[after[k]] == 0) t.order.push_back(after[k]);
    }
  }
  if (t.order.size() + 1 == count) return {};
  return fail(Code::internal_error, "deadlock; stuck: {}", stuck_steps(world, t));
}

Status check_exposures(const World& world, const Timeline& t) {
  std::vector<std::vector<Event>> events_of(static_cast<size_t>(world.ranks()));
  for (Event event : t.order) events_of[t.step_of[event].rank].push_back(event);
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (!world.takes_part(rank)) continue;
    const Handles handles(world, t, rank, events_of[rank]);
    for (StepId id = 0; id < world.plan(rank).steps.size(); ++id) WEFT_TRY(handles.check(id));
  }
  return {};
}

}  // namespace weft::plan::verifier
