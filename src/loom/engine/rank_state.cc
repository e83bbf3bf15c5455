// The parts of each unit, in the order in which checkpoints have them.
#include "engine/rank_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/hugging_face.h"
#include "model/sequence_parallel.h"

namespace loom::engine {

std::vector<std::string_view> state_parts(const program::Job& job, bool optimizer) {
  std::vector<std::string_view> parts = {kMaster};
  if (optimizer)
    for (const ops::Slot& slot : job.optimizer->slots) parts.push_back(slot.name);
  return parts;
}

std::string state_part_name(const model::Unit& unit, std::string_view part) {
  return fmt::format("{}.{}", part, unit.index);
}

std::string state_name(int stage, int tensor) {
  std::string name = "state";
  if (stage > 0) name += fmt::format("-stage-{}", stage);
  if (tensor > 0) name += fmt::format("-tensor-{}", tensor);
  return name;
}

template <typename T>
void RankState<T>::find(const program::Program& training, const program::MemoryPlan& memory,
                        std::byte* arena) {
  using program::Role;
  units_.resize(context_.units.size());
  for (const program::Instruction& i : training.instructions) {
    if (i.op != program::Op::step) continue;
    const auto at = [&](program::BufferId buffer) {
      return arena + memory.offset[static_cast<size_t>(buffer)];
    };
    UnitState<T>& s = units_[static_cast<size_t>(i.unit)];
    s.master = reinterpret_cast<A*>(at(i.buffer(Role::master)));
    size_t slot = 0;
    for (const program::Use& use : i.uses)
      if (use.role == Role::slot) s.slots.at[slot++] = reinterpret_cast<A*>(at(use.buffer));
    s.gradient = reinterpret_cast<A*>(at(i.buffer(Role::shard)));
    s.parameters = reinterpret_cast<T*>(at(training.shards[static_cast<size_t>(i.unit)]));
    find_unit(context_.units[static_cast<size_t>(i.unit)]);
  }
}

template <typename T>
void RankState<T>::find_unit(const model::Unit& unit) {
  UnitState<T>& s = units_[static_cast<size_t>(unit.index)];
  const int64_t begin = context_.shard_begin(unit), end = begin + context_.job.shard(unit);
  // A parameter reaches to the next one, or to the end: gaps are zeros and stay zeros.
  for (size_t p = 0; p < unit.parameters.size(); ++p) {
    const int64_t first = std::max(begin, unit.parameters[p].offset);
    const int64_t next = p + 1 < unit.parameters.size() ? unit.parameters[p + 1].offset : end;
    const int64_t last = std::min(end, next);
    if (first >= last) continue;
    const bool decays = unit.parameters[p].decays;
    if (!s.segments.empty() && s.segments.back().decays == decays) s.segments.back().end = last - begin;
    else s.segments.push_back({first - begin, last - begin, decays});
  }
  if (context_.job.tensor_degree == 1) return;
  const auto add = [&](std::vector<Range>& ranges, const model::Parameter& parameter) {
    const Range range{std::max(begin, parameter.offset) - begin,
                      std::min(end, parameter.offset + parameter.elements()) - begin};
    if (range.begin >= range.end) return;
    if (!ranges.empty() && ranges.back().end == range.begin) ranges.back().end = range.end;
    else ranges.push_back(range);
  };
  for (const model::Parameter& parameter : unit.parameters) {
    if (!model::is_cut(parameter)) add(s.held_by_all, parameter);
    if (model::is_summed(parameter, context_.job.divides_rows)) add(s.summed, parameter);
  }
}

template <typename T>
template <typename F>
Status RankState<T>::upload(const model::Unit& held, A* part, F&& read) {
  constexpr int64_t kSize = sizeof(A);
  return context_.device.transfer().upload(
      part, context_.job.shard(held) * kSize, [&](int64_t offset, std::span<std::byte> piece) {
        return read(offset / kSize, std::span(reinterpret_cast<A*>(piece.data()), piece.size() / kSize));
      });
}

template <typename T>
template <typename F>
Status RankState<T>::download(const model::Unit& held, const A* part, F&& take) const {
  constexpr int64_t kSize = sizeof(A);
  return context_.device.transfer().download(
      part, context_.job.shard(held) * kSize, [&](int64_t offset, std::span<const std::byte> piece) {
        return take(offset / kSize,
                    std::span(reinterpret_cast<const A*>(piece.data()), piece.size() / kSize));
      });
}

template <typename T>
Status RankState<T>::begin_slot(const model::Unit& held, size_t slot) {
  A* const at = of(held.index).slots.at[slot];
  const float initial = context_.job.optimizer->slots[slot].initial;
  if (initial != 0)
    return upload(held, at, [&](int64_t, std::span<A> piece) -> Status {
      std::ranges::fill(piece, initial);
      return {};
    });
  context_.device.queue().fill(at, std::byte(0), context_.job.shard(held) * static_cast<int64_t>(sizeof(A)));
  return {};
}

template <typename T>
Status RankState<T>::after_load(bool slots_begin) {
  for (const model::Unit& unit : context_.units) {
    const UnitState<T>& s = of(unit.index);
    if (!s.held()) continue;
    if constexpr (!std::is_same_v<T, A>)
      context_.table<T>().convert(context_.context(), s.master, s.parameters, context_.job.shard(unit));
    for (size_t slot = 0; slots_begin && slot < context_.job.optimizer->slots.size(); ++slot)
      LOOM_TRY(begin_slot(unit, slot));
  }
  return context_.device.queue().drain();
}

/// Masters of the units that this rank has a part of, from what gives ranges of whole units.
template <typename T>
template <typename F>
Status RankState<T>::read_masters(F&& read) {
  for (const model::Unit& whole : context_.whole_units) {
    if (!of(whole.index).held()) continue;
    const model::Unit& held = context_.units[static_cast<size_t>(whole.index)];
    LOOM_TRY(upload(held, of(whole.index).master, [&](int64_t first, std::span<A> piece) {
      return model::read_share(
          whole, context_.tensor, context_.shard_begin(held) + first, piece,
          [&](int64_t begin, std::span<float> into) { return read(whole, begin, into); });
    }));
  }
  return after_load(true);
}

template <typename T>
Status RankState<T>::initialize(uint64_t seed) {
  return read_masters([&](const model::Unit& unit, int64_t begin, std::span<float> into) -> Status {
    model::initialize(context_.device.workers(), unit, seed, begin, into);
    return {};
  });
}

template <typename T>
Status RankState<T>::load_model(const format::SafetensorsReader& file) {
  return read_masters([&](const model::Unit& unit, int64_t begin, std::span<float> into) {
    return model::read_parameters(file, unit, begin, into);
  });
}

template <typename T>
Status RankState<T>::check(std::span<const int> owned) const {
  for (const int unit : owned) {
    const model::Unit& held = context_.units[static_cast<size_t>(unit)];
    for (size_t part = 0; part < state_parts(context_.job).size(); ++part) {
      LOOM_TRY(download(held, of(unit).part(part), [&](int64_t, std::span<const A> piece) -> Status {
        if (std::all_of(piece.begin(), piece.end(), [](A value) { return std::isfinite(value); })) return {};
        return fail(Code::not_finite,
                    "the {} of {} has numbers that are not finite: no checkpoint or model is made of it",
                    part == 0 ? "state" : "optimizer's state", held.name());
      }));
    }
  }
  return {};
}

template <typename T>
Status RankState<T>::save(const std::string& folder, const format::FlatLayout& layout,
                          std::span<const int> owned, bool optimizer) const {
  Result<format::FlatWriter> writer = format::FlatWriter::create(folder, layout, context_.groups.member());
  LOOM_TRY(writer.status());
  const std::vector<std::string_view> parts = state_parts(context_.job, optimizer);
  for (const int unit : owned) {
    const model::Unit& held = context_.units[static_cast<size_t>(unit)];
    for (size_t part = 0; part < parts.size(); ++part)
      LOOM_TRY(download(held, of(unit).part(part), [&](int64_t first, std::span<const A> piece) {
        return writer->write_piece(state_part_name(held, parts[part]), static_cast<uint64_t>(first), piece);
      }));
  }
  return writer->finish();
}

template <typename T>
Status RankState<T>::load(const StateReaders& readers) {
  const std::vector<std::string_view> parts = state_parts(context_.job);
  for (const model::Unit& whole : context_.whole_units) {
    const UnitState<T>& s = of(whole.index);
    if (!s.held()) continue;
    const model::Unit& held = context_.units[static_cast<size_t>(whole.index)];
    for (size_t part = 0; part < parts.size(); ++part) {
      const Result<model::StoredShares> stored = stored_part(readers, whole, parts[part]);
      if (stored.status().code() == Code::not_found) {
        LOOM_TRY(begin_slot(held, part - 1));
        continue;
      }
      LOOM_TRY(stored.status());
      LOOM_TRY(upload(held, s.part(part), [&](int64_t first, std::span<A> piece) {
        return model::read_share(
            whole, context_.tensor, context_.shard_begin(held) + first, piece,
            [&](int64_t begin, std::span<float> some) { return stored->read(begin, some); });
      }));
    }
  }
  return after_load(false);
}

Result<model::StoredShares> stored_part(const StateReaders& readers, const model::Unit& whole,
                                        std::string_view part) {
  const std::string name = state_part_name(whole, part);
  const auto stage = std::find_if(readers.begin(), readers.end(), [&](const auto& candidate) {
    return candidate.front()->layout().buffer(name).ok();
  });
  if (stage == readers.end())
    return fail(part == kMaster ? Code::invalid_data : Code::not_found, "the checkpoint has no {} of {}{}",
                part, whole.name(), part == kMaster ? ": another model" : "");
  const int degree = static_cast<int>(stage->size());
  const model::Unit stored = model::held_by({degree, 0}, whole);
  const Result<format::FlatBuffer> buffer = stage->front()->layout().buffer(name);
  if (buffer->elements != static_cast<uint64_t>(stored.elements))
    return fail(Code::invalid_data, "the checkpoint's {} has {} elements, this model's has {}: another model",
                whole.name(), buffer->elements, stored.elements);
  return model::StoredShares(
      whole, degree, [&ranks = *stage, name](int rank, int64_t begin, std::span<float> into) {
        return ranks[static_cast<size_t>(rank)]->read(name, static_cast<uint64_t>(begin), into);
      });
}

bool has_slots(const StateReaders& readers) {
  return std::any_of(readers.begin(), readers.end(), [](const auto& ranks) {
    const auto& buffers = ranks.front()->layout().buffers();
    return std::any_of(buffers.begin(), buffers.end(),
                       [](const format::FlatBuffer& buffer) { return !buffer.name.starts_with(kMaster); });
  });
}

template class RankState<float>;
template class RankState<bf16>;
template class RankState<fp16>;

}  // namespace loom::engine
