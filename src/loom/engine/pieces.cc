// Tensor parallelism: pieces of units, the exchanges between them, and the parameters that every tensor rank
// holds.
#include <algorithm>

#include "engine/executor.h"
#include "engine/weft_call.h"
#include "model/sequence_parallel.h"

namespace loom::engine {

using program::Instruction;
using program::Op;

template <typename T>
void Executor<T>::piece(Run& run, const Instruction& i) {
  const model::Unit& unit = units_[static_cast<size_t>(i.unit)];
  const model::Pass pass = pass_of(run, i);
  model::PieceArrays<T> a;
  a.parameters = at<T>(run, i, Role::parameters);
  a.tied_parameters = at<T>(run, i, Role::tied_parameters);
  a.gradient = at<A>(run, i, Role::gradient);
  a.tied_gradient = at<A>(run, i, Role::tied_gradient);
  for (const program::Use& use : i.uses)
    if (use.role == Role::gradient) a.add_gradient = use.reads;
  a.x = at<T>(run, i, Role::input);
  a.y = at<T>(run, i, Role::output);
  a.d = at<T>(run, i, Role::derivative);
  a.saved = at<std::byte>(run, i, Role::saved);
  a.normed = at<T>(run, i, Role::normed);
  a.incoming = at<T>(run, i, Role::incoming);
  a.sum = at<T>(run, i, Role::sum);
  a.logits = at<A>(run, i, Role::logits);
  a.numbers = at<A>(run, i, Role::numbers);
  a.all_numbers = at<A>(run, i, Role::all_numbers);
  a.token = tokens(i.microbatch).data();
  a.target = targets(i.microbatch).data();
  a.loss = token_losses_ + i.microbatch * rows();
  a.workspace = at<std::byte>(run, i, Role::workspace);
  if (unit.kind == model::UnitKind::head) return head_piece(run, i, pass, a);
  const bool backward = i.op == Op::backward;
  if (unit.kind == model::UnitKind::embedding)
    return backward ? split_.embedding().backward(pass, i.piece, a)
                    : split_.embedding().forward(pass, i.piece, a);
  return backward ? split_.block_backward(pass, unit, i.piece, a)
                  : split_.block_forward(pass, unit, i.piece, a);
}

template <typename T>
void Executor<T>::head_piece(Run& run, const Instruction& i, const model::Pass& pass,
                             const model::PieceArrays<T>& a) {
  if (job_.spec.task == model::Task::classification) return classifier_piece(run, i, pass, a);
  if (job_.picks_rows()) return masked_piece(run, i, pass, a);
  const model::Unit& unit = units_[static_cast<size_t>(i.unit)];
  if (i.op == Op::loss) {
    split_.head().step(pass, unit, i.piece, loss_scale(run), a);
  } else {
    split_.head().evaluate(pass, unit, i.piece, a);
    // The norm of all rows is there from the second piece on.
    if (run.logits != nullptr && i.piece == 1 && i.microbatch == 0)
      split_.head().logits(pass, unit, a, run.logits_row, run.logits->data());
  }
  if (i.piece == 0 || i.piece % 2 == 1) return;
  // Of the rows so far: the last pair's stays.
  note_loss(i.microbatch, a.loss, std::min(rows(), i.piece / 2 * model::head_rows(share_, rows())));
}

/// The head picks as many rows as the job says; more than that would be left out without a word.
template <typename T>
Status Executor<T>::check_targets(const Instruction& i) {
  if (!job_.picks_rows() || i.piece != 0 || (i.op != Op::loss && i.op != Op::evaluate)) return {};
  const std::span<int32_t> all = targets(i.microbatch);
  const int64_t count = std::count_if(all.begin(), all.end(), [](int32_t target) { return target >= 0; });
  if (count <= job_.batch * job_.targets) return {};
  return fail(Code::invalid_argument,
              "microbatch {} has {} targets, but the job has {} of each of {} sequences", i.microbatch, count,
              job_.targets, job_.batch);
}

template <typename T>
void Executor<T>::masked_piece(Run& run, const Instruction& i, const model::Pass& pass,
                               model::PieceArrays<T> a) {
  const model::Unit& unit = units_[static_cast<size_t>(i.unit)];
  if (i.op == Op::loss) {
    masked_.head(pass, unit, i.piece, loss_scale(run), a);
  } else {
    a.only_row = run.logits_row;
    masked_.head_evaluate(pass, unit, i.piece, a);
    if (run.logits != nullptr && i.piece == 2 && i.microbatch == 0)
      masked_.head_logits(pass, unit, a, run.logits->data());
  }
  const bool has_losses = i.buffer(Role::losses) >= 0;  // so far: the last pair's stay
  if (has_losses) note_loss(i.microbatch, a.loss, rows());
}

template <typename T>
void Executor<T>::classifier_piece(Run& run, const Instruction& i, const model::Pass& pass,
                                   const model::PieceArrays<T>& a) {
  const model::Unit& unit = units_[static_cast<size_t>(i.unit)];
  const bool last = i.piece + 1 == model::kClassifierPieces;
  if (i.op == Op::loss) {
    classifier_.head(pass, unit, i.piece, loss_scale(run), a);
  } else if (last && run.logits != nullptr) {
    if (i.microbatch == 0) classifier_.logits(pass, unit, a, run.logits_row, run.logits->data());
    return;
  } else {
    classifier_.evaluate(pass, unit, i.piece, a);
    if (last)
      note_right(i.microbatch,
                 [&](int64_t row, A* scores) { classifier_.logits(pass, unit, a, row, scores); });
  }
  if (!last) return;
  note_loss(i.microbatch, a.loss, rows());
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
      return from_weft(weftAllGather(from, to, bytes(Role::input), weftUint8, tensor, stream));
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
  template void Executor<T>::piece(Run&, const Instruction&);                               \
  template void Executor<T>::head_piece(Run&, const Instruction&, const model::Pass&,       \
                                        const model::PieceArrays<T>&);                      \
  template Status Executor<T>::check_targets(const Instruction&);                           \
  template void Executor<T>::masked_piece(Run&, const Instruction&, const model::Pass&,     \
                                          model::PieceArrays<T>);                           \
  template void Executor<T>::classifier_piece(Run&, const Instruction&, const model::Pass&, \
                                              const model::PieceArrays<T>&);                \
  template Status Executor<T>::exchange(Run&, const Instruction&);                          \
  template Status Executor<T>::gather_batch(weftStream_t);                                  \
  template void Executor<T>::find_held_by_all();                                            \
  template void Executor<T>::sum_squares(const model::Unit&, double*);                      \
  template Status Executor<T>::share_logits(std::vector<float>&) const;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(fp16)

}  // namespace loom::engine
