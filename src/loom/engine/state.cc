// A rank's share of the model's state: where it lies, how it begins, and how it is read and written.
#include <algorithm>
#include <cmath>

#include "engine/executor.h"
#include "engine/weft_call.h"
#include "model/hugging_face.h"

namespace loom::engine {
namespace {

constexpr const char* kParts[] = {"master", "first_moment", "second_moment"};

std::string buffer_name(const model::Unit& unit, int part) {
  return fmt::format("{}.{}", kParts[part], unit.index);
}

}  // namespace

template <typename T>
void Executor<T>::find_state() {
  states_.resize(units_.size());
  for (const program::Instruction& i : training_.instructions) {
    if (i.op != program::Op::step) continue;
    State& s = states_[i.unit];
    s.master = state_at<A>(i.buffer(Role::master));
    s.first = state_at<A>(i.buffer(Role::first_moment));
    s.second = state_at<A>(i.buffer(Role::second_moment));
    s.gradient = state_at<A>(i.buffer(Role::shard));
    s.parameters = state_at<T>(training_.shards[i.unit]);
    const model::Unit& unit = units_[i.unit];
    const int64_t begin = shard_begin(unit), end = begin + job_.shard(unit);
    int64_t covered = 0;
    for (const model::Parameter& parameter : unit.parameters) {
      if (parameter.offset > covered) s.gaps.push_back({covered, parameter.offset});
      covered = parameter.offset + parameter.elements();
    }
    if (job_.padded(unit) > covered) s.gaps.push_back({covered, job_.padded(unit)});
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
  }
  batch_ = state_at<int32_t>(training_.batch);
  token_losses_ = state_at<double>(training_.losses);
}

template <typename T>
std::span<int32_t> Executor<T>::tokens(int index) {
  return {batch_ + index * 2 * rows(), static_cast<size_t>(rows())};
}

template <typename T>
std::span<int32_t> Executor<T>::targets(int index) {
  return {batch_ + (index * 2 + 1) * rows(), static_cast<size_t>(rows())};
}

template <typename T>
void Executor<T>::after_load(bool clear_moments) {
  for (const model::Unit& unit : units_) {
    if (!holds(unit)) continue;
    const State& s = states_[unit.index];
    const int64_t shard = job_.shard(unit);
    if constexpr (!std::is_same_v<T, A>) op_.convert(workers_, s.master, s.parameters, shard);
    if (!clear_moments) continue;
    std::fill_n(s.first, shard, A(0));
    std::fill_n(s.second, shard, A(0));
  }
}

/// Masters of the units that this rank has a part of, from what gives ranges of whole units.
template <typename T>
template <typename F>
Status Executor<T>::read_masters(F&& read) {
  for (const model::Unit& whole : whole_units_) {
    if (!holds(whole)) continue;
    const model::Unit& held = units_[whole.index];
    const std::span<A> master(states_[whole.index].master, static_cast<size_t>(job_.shard(held)));
    LOOM_TRY(
        model::read_share(whole, tensor_, shard_begin(held), master,
                          [&](int64_t begin, std::span<float> into) { return read(whole, begin, into); }));
  }
  after_load(true);
  return {};
}

template <typename T>
Status Executor<T>::initialize(uint64_t seed) {
  return read_masters([&](const model::Unit& unit, int64_t begin, std::span<float> into) -> Status {
    model::initialize(workers_, unit, seed, begin, into);
    return {};
  });
}

template <typename T>
Status Executor<T>::load_model(const format::SafetensorsReader& file) {
  return read_masters([&](const model::Unit& unit, int64_t begin, std::span<float> into) {
    return model::read_parameters(file, unit, begin, into);
  });
}

std::string state_name(int stage, int tensor) {
  std::string name = "state";
  if (stage > 0) name += fmt::format("-stage-{}", stage);
  if (tensor > 0) name += fmt::format("-tensor-{}", tensor);
  return name;
}

Result<format::FlatLayout> Engine::state_layout(int stage, int tensor, bool optimizer) const {
  std::vector<format::FlatBuffer> buffers;
  for (const int unit : program::owned_units(job_, stage))
    for (int part = 0; part < (optimizer ? kStateParts : 1); ++part)
      buffers.push_back({buffer_name(units_[unit], part), static_cast<uint64_t>(units_[unit].elements),
                         static_cast<uint64_t>(job_.shard(units_[unit]))});
  return format::FlatLayout::make(state_name(stage, tensor), job_.degree, std::move(buffers));
}

template <typename T>
Status Executor<T>::check_state() const {
  for (const int unit : owned_) {
    const State& s = states_[unit];
    const int64_t shard = job_.shard(units_[unit]);
    for (int part = 0; part < kStateParts; ++part) {
      const A* const values = part == 0 ? s.master : part == 1 ? s.first : s.second;
      if (std::all_of(values, values + shard, [](A value) { return std::isfinite(value); })) continue;
      return fail(Code::not_finite,
                  "the {} of {} has numbers that are not finite: no checkpoint or model is made of it",
                  part == 0 ? "state" : "optimizer's state", units_[unit].name());
    }
  }
  return {};
}

template <typename T>
Status Executor<T>::save_state(const std::string& folder, bool optimizer) const {
  if (groups_.group() != 0) return {};
  const Result<format::FlatLayout> layout = state_layout(training_.stage, tensor_.rank, optimizer);
  LOOM_TRY(layout.status());
  Result<format::FlatWriter> writer = format::FlatWriter::create(folder, *layout, groups_.member());
  LOOM_TRY(writer.status());
  for (const int unit : owned_) {
    const State& s = states_[unit];
    const A* parts[] = {s.master, s.first, s.second};
    for (int part = 0; part < (optimizer ? kStateParts : 1); ++part)
      LOOM_TRY(writer->write(buffer_name(units_[unit], part),
                             {parts[part], static_cast<size_t>(job_.shard(units_[unit]))}));
  }
  return writer->finish();
}

Result<model::StoredShares> stored_part(const StateReaders& readers, const model::Unit& whole, int part) {
  const std::string name = buffer_name(whole, part);
  const auto stage = std::find_if(readers.begin(), readers.end(), [&](const auto& candidate) {
    return candidate.front()->layout().buffer(name).ok();
  });
  if (stage == readers.end())
    return fail(part == 0 ? Code::invalid_data : Code::not_found, "the checkpoint has no {} of {}{}",
                kParts[part], whole.name(), part == 0 ? ": another model" : "");
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

bool has_moments(const StateReaders& readers) {
  return std::any_of(readers.begin(), readers.end(), [](const auto& ranks) {
    const auto& buffers = ranks.front()->layout().buffers();
    return std::any_of(buffers.begin(), buffers.end(),
                       [](const format::FlatBuffer& buffer) { return buffer.name.starts_with(kParts[1]); });
  });
}

template <typename T>
Status Executor<T>::load_state(const StateReaders& readers) {
  for (const model::Unit& whole : whole_units_) {
    if (!holds(whole)) continue;
    const State& s = states_[whole.index];
    const model::Unit& held = units_[whole.index];
    A* parts[] = {s.master, s.first, s.second};
    for (int part = 0; part < kStateParts; ++part) {
      const std::span<A> into(parts[part], static_cast<size_t>(job_.shard(held)));
      const Result<model::StoredShares> stored = stored_part(readers, whole, part);
      if (stored.status().code() == Code::not_found) {
        std::fill(into.begin(), into.end(), A(0));
        continue;
      }
      LOOM_TRY(stored.status());
      LOOM_TRY(
          model::read_share(whole, tensor_, shard_begin(held), into,
                            [&](int64_t begin, std::span<float> some) { return stored->read(begin, some); }));
    }
  }
  after_load(false);
  return {};
}

#define LOOM_INSTANTIATE(T)                                                  \
  template void Executor<T>::find_state();                                   \
  template std::span<int32_t> Executor<T>::tokens(int);                      \
  template std::span<int32_t> Executor<T>::targets(int);                     \
  template void Executor<T>::after_load(bool);                               \
  template Status Executor<T>::initialize(uint64_t);                         \
  template Status Executor<T>::load_model(const format::SafetensorsReader&); \
  template Status Executor<T>::check_state() const;                          \
  template Status Executor<T>::save_state(const std::string&, bool) const;   \
  template Status Executor<T>::load_state(const StateReaders&);
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(fp16)

}  // namespace loom::engine
