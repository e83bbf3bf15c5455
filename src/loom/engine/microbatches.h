// Microbatches: tokens and targets of a rank's microbatches, and what the host derives from them
// (model/batch_layout.h), in the host's window of the arena. The program says when what the host has of a
// microbatch goes to the arena.
//
// Thread safety: one thread.
#pragma once

#include <weft/weft.h>

#include <span>
#include <vector>

#include "engine/host_window.h"
#include "model/batch_layout.h"
#include "program/job.h"

namespace loom::engine {

class Microbatches {
 public:
  /// `job` and `window` outlive it; the job may still be empty. `layout` is of a microbatch.
  Microbatches(const program::Job& job, const model::BatchLayout& layout, HostWindow& window)
      : job_(job), layout_(layout), window_(window) {}

  /// The program's batch, in the arena, a part of the window.
  void take_memory(std::byte* there);

  /// [batch, tokens] each, where the host writes them.
  std::span<int32_t> tokens(int microbatch) const { return here(2 * microbatch); }
  std::span<int32_t> targets(int microbatch) const { return here(2 * microbatch + 1); }
  /// The same in the arena.
  int32_t* tokens_there(int microbatch) const { return there_ + 2 * microbatch * rows(); }
  int32_t* targets_there(int microbatch) const { return tokens_there(microbatch) + rows(); }

  /// A run begins, of logits with their row; else with -1. Tokens and targets may have changed.
  void begin(int64_t only_row) { only_row_ = only_row; }
  /// Derives what steps read besides tokens and targets, and queues the copy of all of them.
  void load(int microbatch);
  /// What steps read besides tokens and targets, of a microbatch that was loaded in this run.
  const model::BatchArrays& arrays(int microbatch) const { return arrays_[static_cast<size_t>(microbatch)]; }

  /// invalid_argument if the head reads rows with targets and a microbatch has more of them than the job
  /// states. The head picks as many rows as the job states, and would silently leave out the others.
  Status check_targets(int microbatch) const;
  /// Tokens and targets of each microbatch, of which each tensor rank was given a part, in place. `tensor`
  /// moves host memory.
  Status gather(int tensor_rank, weftComm_t tensor, weftStream_t stream) const;

 private:
  int64_t rows() const { return job_.batch * job_.tokens; }
  std::span<int32_t> here(int part) const {
    return {window_.here(there_ + part * rows()), static_cast<size_t>(rows())};
  }

  const program::Job& job_;
  const model::BatchLayout layout_;  // of a microbatch
  HostWindow& window_;
  int32_t* there_ = nullptr;
  int64_t only_row_ = -1;
  std::vector<model::BatchArrays> arrays_;  // of each microbatch
};

}  // namespace loom::engine
