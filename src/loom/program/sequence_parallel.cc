// An exchange each.
#include "program/sequence_parallel.h"

#include <fmt/format.h>

namespace loom::program {

BufferId RowExchanges::fresh(const char* what, Category category, int64_t bytes) {
  return program_.add(fmt::format("{} {}.{} #{}", what, whole_->unit, whole_->microbatch, ++buffers_),
                      category, bytes);
}

void RowExchanges::emit(Op op, int piece, std::vector<Use> uses) {
  program_.instructions.push_back({op, whole_->unit, whole_->microbatch, 0, std::move(uses), {}, piece});
}

BufferId RowExchanges::entering(BufferId own, const model::SplitSizes& sizes) {
  if (!job_.divides_rows) return own;
  const BufferId all = fresh("gathered rows", Category::activations, sizes.rows);
  emit(Op::tensor_gather, -1, {read(Role::input, own), write(Role::output, all)});
  return all;
}

BufferId RowExchanges::leaving(BufferId summand, const model::SplitSizes& sizes) {
  if (!job_.divides_rows) {
    emit(Op::tensor_all_reduce, -1, {change(Role::output, summand)});
    return summand;
  }
  const BufferId own = fresh("sum", Category::activations, sizes.own);
  emit(Op::tensor_reduce_scatter, -1, {read(Role::input, summand), write(Role::output, own)});
  return own;
}

void RowExchanges::sum_gradients(const std::vector<Instruction>& steps) {
  for (const Instruction& i : steps)
    if (i.op == Op::step)
      program_.instructions.push_back(
          {Op::tensor_gradients, i.unit, -1, 0, {change(Role::shard, i.buffer(Role::shard))}, {}});
}

}  // namespace loom::program
