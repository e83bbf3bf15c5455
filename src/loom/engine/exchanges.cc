// Tensor parallelism: the exchanges between a unit's steps, and the parameters that every tensor rank holds.
#include <algorithm>

#include "engine/executor.h"
#include "engine/weft_call.h"
#include "model/sequence_parallel.h"

namespace loom::engine {

using program::Instruction;
using program::Op;

/// The head picks as many rows as the job says; more than that would be left out without a word.
template <typename T>
Status Executor<T>::check_targets(const Instruction& i) {
  if (job_.spec.task != model::Task::masked || job_.targets == 0 || i.first != 0 ||
      (i.op != Op::loss && i.op != Op::evaluate))
    return {};
  const std::span<int32_t> all = targets(i.microbatch);
  const int64_t count = std::count_if(all.begin(), all.end(), [](int32_t target) { return target >= 0; });
  if (count <= job_.batch * job_.targets) return {};
  return fail(Code::invalid_argument,
              "microbatch {} has {} targets, but the job has {} of each of {} sequences", i.microbatch, count,
              job_.targets, job_.batch);
}

template <typename T>
Status Executor<T>::exchange(Run& run, const Instruction& i) {
  constexpr weftDataType_t kType = kWeftType<T>;
  const weftComm_t tensor = groups_.tensor();
  const weftStream_t stream = streams_[static_cast<size_t>(i.lane - 1)];
  const auto bytes = [&](Role role) {
    return static_cast<size_t>(run.program.buffers[static_cast<size_t>(i.buffer(role))].bytes);
  };
  T *from = at<T>(run, i, Role::input), *to = at<T>(run, i, Role::output);
  if (i.buffer(Role::batch) >= 0) return gather_batch(stream);
  switch (i.op) {
    case Op::tensor_gather:  // rows or numbers: bytes, whatever they are
      return from_weft(weftAllGather(from, to, bytes(Role::output) / static_cast<size_t>(job_.tensor_degree),
                                     weftUint8, tensor, stream));
    case Op::tensor_all_reduce:
      return from_weft(
          weftAllReduce(to, to, bytes(Role::output) / sizeof(T), kType, weftSum, tensor, stream));
    case Op::tensor_reduce_scatter:
      return from_weft(
          weftReduceScatter(from, to, bytes(Role::output) / sizeof(T), kType, weftSum, tensor, stream));
    default: {
      A* gradient = at<A>(run, i, Role::shard);
      for (const Range& range : states_[static_cast<size_t>(i.unit)].of_rows)
        LOOM_TRY_WEFT(weftAllReduce(gradient + range.begin, gradient + range.begin,
                                    static_cast<size_t>(range.end - range.begin), weftFloat32, weftSum,
                                    tensor, stream));
      return {};
    }
  }
}

/// Tokens and targets of each microbatch, in place.
template <typename T>
Status Executor<T>::gather_batch(weftStream_t stream) {
  const int64_t part = rows() / job_.tensor_degree;
  for (int m = 0; m < job_.microbatches; ++m)
    for (const std::span<int32_t> all : {tokens(m), targets(m)})
      LOOM_TRY_WEFT(weftAllGather(all.data() + tensor_.rank * part, all.data(), static_cast<size_t>(part),
                                  weftInt32, groups_.tensor(), stream));
  return {};
}

/// Parts of a shard that lie in parameters which every tensor rank holds.
template <typename T>
void Executor<T>::find_held_by_all() {
  if (job_.tensor_degree == 1) return;
  for (const model::Unit& unit : units_) {
    if (!holds(unit)) continue;
    State& s = states_[static_cast<size_t>(unit.index)];
    const int64_t begin = shard_begin(unit), end = begin + job_.shard(unit);
    const auto add = [&](std::vector<Range>& ranges, const model::Parameter& parameter) {
      const Range range{std::max(begin, parameter.offset) - begin,
                        std::min(end, parameter.offset + parameter.elements()) - begin};
      if (range.begin >= range.end) return;
      if (!ranges.empty() && ranges.back().end == range.begin) ranges.back().end = range.end;
      else ranges.push_back(range);
    };
    for (const model::Parameter& parameter : unit.parameters) {
      if (!model::is_cut(parameter)) add(s.held_by_all, parameter);
      if (model::is_of_rows(parameter)) add(s.of_rows, parameter);
    }
  }
}

/// Squares of a unit's gradient shard, in chunks. What every tensor rank holds counts on the first only.
template <typename T>
void Executor<T>::sum_squares(const model::Unit& unit, double* chunk) {
  constexpr int64_t kSize = program::kShardGrain;
  const State& s = states_[static_cast<size_t>(unit.index)];
  op_.sum_of_squares(workers_, s.gradient, job_.shard(unit), kSize, chunk);
  if (share_.rank == 0) return;
  for (const Range& range : s.held_by_all)
    for (int64_t c = range.begin / kSize; c <= (range.end - 1) / kSize; ++c) {
      double sum = 0;
      int64_t from = c * kSize;
      const auto add_until = [&](int64_t to) {
        for (; from < to; ++from) sum += static_cast<double>(s.gradient[from]) * s.gradient[from];
      };
      for (const Range& other : s.held_by_all) {
        add_until(std::min(other.begin, (c + 1) * kSize));
        from = std::max(from, other.end);
      }
      add_until((c + 1) * kSize);
      chunk[c] = sum;
    }
}

/// Of a row's logits every tensor rank of the last stage has its own tokens', or of a classification's all;
/// then all ranks have all.
template <typename T>
Status Executor<T>::share_logits(std::vector<float>& logits) const {
  const std::array<weftComm_t, 2> comms = {groups_.tensor(), groups_.pipeline()};
  if (comms[0] == nullptr && comms[1] == nullptr) return {};
  const auto most = static_cast<size_t>(model::vocabulary_of(job_.spec, {job_.tensor_degree, 0}).count),
             gathered = most * static_cast<size_t>(job_.tensor_degree);
  const Result<Arena> arena =
      Arena::create(static_cast<int64_t>((most + std::max(gathered, logits.size())) * sizeof(float)), comms);
  LOOM_TRY(arena.status());
  float *const own = arena->as<float>(), *const all = own + most;
  if (comms[0] != nullptr && job_.spec.task != model::Task::classification) {
    std::copy_n(logits.begin(), std::min(logits.size(), most), own);
    LOOM_TRY_WEFT(weftAllGather(own, all, most, weftFloat32, comms[0], nullptr));
  } else {
    std::copy(logits.begin(), logits.end(), all);
  }
  if (comms[1] != nullptr)
    LOOM_TRY_WEFT(
        weftBroadcast(all, all, logits.size(), weftFloat32, job_.pipeline_degree - 1, comms[1], nullptr));
  std::copy_n(all, logits.size(), logits.begin());  // behind the last rank's tokens there is nothing
  return {};
}

#define LOOM_INSTANTIATE(T)                                                                 \
  template Status Executor<T>::check_targets(const Instruction&);                           \
  template Status Executor<T>::exchange(Run&, const Instruction&);                          \
  template Status Executor<T>::gather_batch(weftStream_t);                                  \
  template void Executor<T>::find_held_by_all();                                            \
  template void Executor<T>::sum_squares(const model::Unit&, double*);                      \
  template Status Executor<T>::share_logits(std::vector<float>&) const;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(fp16)

}  // namespace loom::engine
