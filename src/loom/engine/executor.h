// The executor: an Engine for one element type. It goes through a program's list, computes what is on lane 0
// and issues the rest on lanes; it knows no way of training.
//
// Internal to engine/: others use Engine.
#pragma once

#include "engine/arena.h"
#include "engine/engine.h"
#include "engine/lanes.h"
#include "engine/microbatches.h"
#include "engine/rank_state.h"
#include "engine/step_end.h"
#include "model/runner.h"
#include "program/generate.h"

namespace loom::engine {

template <typename T>
class Executor final : public Engine {
 public:
  Executor(const program::Job& job, const Groups& groups, std::unique_ptr<RankDevice> device);
  ~Executor() override { (void)device_->queue().drain(); }  // it may still use the arena
  /// What can fail of the construction. On a GPU a collective.
  Status prepare(const std::string& tier_folder);

  int64_t arena_bytes() const override { return arena_->bytes(); }
  int64_t memory_bytes() const override { return arena_->bytes() + device_->memory_bytes(); }
  std::span<std::byte> arena() override {
    return {arena_->data(), device_->on_gpu() ? 0 : static_cast<size_t>(arena_->bytes())};
  }
  Status initialize(uint64_t seed) override { return state_.initialize(seed); }
  Status load_model(const format::SafetensorsReader& file) override { return state_.load_model(file); }
  Status save_model(const std::string& folder, format::DType dtype) override;
  Status save_state(const std::string& folder, bool optimizer) const override;
  Status check_state() const override { return state_.check(end_->owned()); }
  Status load_state(const StateReaders& readers) override { return state_.load(readers); }
  std::span<int32_t> tokens(int index) override { return batches_.tokens(index); }
  std::span<int32_t> targets(int index) override { return batches_.targets(index); }
  Result<StepResult> step(const StepSettings& settings) override;
  Result<std::vector<cuda::KernelTime>> timed_step(const StepSettings& settings) override;
  Result<double> evaluate(double targets) override;
  Result<std::vector<float>> logits(int64_t row) override;

 private:
  using A = acc_t<T>;
  using Role = program::Role;

  /// One run of a program.
  struct Run {
    const program::Program& program;
    const program::MemoryPlan& memory;
    StepProgress progress = {};
    int64_t logits_row = -1;  // of logits: the row of microbatch 0
  };

  Status plan(program::Purpose purpose, const char* what, program::Program& program,
              program::MemoryPlan& memory);
  Status make_memory(const std::string& tier_folder);
  /// Computes all of a program once, without what is in flight beside it.
  Status compute_all(Run run);
  /// Everything that is computed runs once: see device/cuda/compute.h. A collective.
  Status prepare_gpu();
  Status run(Run& run);
  Status run_all(Run& run);
  Status execute(Run& run, const program::Instruction& instruction);
  void compute(Run& run, const program::Instruction& instruction);
  /// Where the arrays of the instruction's recipe are.
  model::Bound<T> bind(Run& run, const program::Instruction& instruction);
  model::Pass pass_of(const Run& run, const program::Instruction& i);
  Status load_batch(const Run& run, int microbatch);
  Status communicate(Run& run, const program::Instruction& instruction);
  Status transfer(Run& run, const program::Instruction& instruction);
  Status exchange(Run& run, const program::Instruction& instruction);
  Status sum_gradients(Run& run, const program::Instruction& instruction);
  Status fetch_logits(const Run& run, std::vector<float>& logits);
  Status share_logits(std::vector<float>& logits) const;

  std::byte* at(const Run& run, program::BufferId buffer) const {
    return buffer < 0 ? nullptr : arena_->data() + run.memory.offset[static_cast<size_t>(buffer)];
  }
  template <typename E>
  E* at(const Run& run, const program::Instruction& instruction, Role role) const {
    return reinterpret_cast<E*>(at(run, instruction.buffer(role)));
  }

  const Groups& groups_;
  const std::unique_ptr<RankDevice> device_;
  const model::TensorRank tensor_;
  const RankContext context_;
  const model::RecipeSizes sizes_;
  const model::Recipes recipes_;
  model::Runner<T> runner_;
  std::vector<std::byte*> exchanged_;  // of the instruction at hand: arrays by their numbers
  HostWindow window_;
  Microbatches batches_;
  RankState<T> state_;
  std::unique_ptr<StepEnd<T>> end_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Lanes> lanes_;
};

extern template class Executor<float>;
extern template class Executor<bf16>;
extern template class Executor<fp16>;

}  // namespace loom::engine
