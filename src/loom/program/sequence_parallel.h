// Sequence parallelism as instructions: what tensor ranks exchange where a piece that works on rows meets one
// that works on a sublayer. Where each rank has M / T of the rows (model/sequence_parallel.h), rows that
// enter a sublayer are gathered, its summands are reduce-scattered, and gradients of what only rows see are
// added up once a step. Where every rank has all M, what enters is there, and summands are all-reduced.
//
// Thread safety: one thread.
#pragma once

#include <vector>

#include "model/split_sizes.h"
#include "program/job.h"
#include "program/program.h"

namespace loom::program {

/// Writes the pieces of one whole instruction after the other, and the exchanges between them.
class RowExchanges {
 protected:
  RowExchanges(const Job& job, Program& program) : job_(job), program_(program) {}

  static Use read(Role role, BufferId buffer) { return {role, buffer, true, false}; }
  static Use write(Role role, BufferId buffer) { return {role, buffer, false, true}; }
  static Use change(Role role, BufferId buffer) { return {role, buffer, true, true}; }

  /// What comes next is of this instruction, which must stay.
  void begin(const Instruction& whole) { whole_ = &whole; }
  const Instruction& whole() const { return *whole_; }
  BufferId of(Role role) const { return whole_->buffer(role); }

  BufferId fresh(const char* what, Category category, int64_t bytes);
  void emit(Op op, int piece, std::vector<Use> uses);

  /// What a piece on rows made, as a sublayer needs it: all rows.
  BufferId entering(BufferId own, const model::SplitSizes& sizes);
  /// The sum of what the ranks' sublayers made, as pieces on rows need it.
  BufferId leaving(BufferId summand, const model::SplitSizes& sizes);
  /// Norms and positions are held by all ranks, and each saw its own rows only. `steps` has the instructions
  /// that need the sums.
  void sum_gradients(const std::vector<Instruction>& steps);

  const Job& job_;
  Program& program_;

 private:
  const Instruction* whole_ = nullptr;  // that is being divided
  int buffers_ = 0;
};

}  // namespace loom::program
