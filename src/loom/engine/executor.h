// The executor: an Engine for one element type. It goes through a program's list, computes what is on lane 0
// and issues the rest on streams of Weft, one stream a lane; it knows no way of training.
//
// Internal to engine/: others use Engine.
#pragma once

#include <chrono>

#include "engine/arena.h"
#include "engine/engine.h"
#include "engine/tier.h"
#include "model/runner.h"
#include "program/generate.h"

namespace loom::engine {

template <typename T>
class Executor final : public Engine {
 public:
  Executor(const program::Job& job, const Groups& groups, int threads, std::string tier_folder);
  ~Executor() override;
  /// What can fail of the construction.
  Status prepare();

  int64_t arena_bytes() const override { return arena_->bytes(); }
  int64_t memory_bytes() const override {
    return arena_->bytes() + static_cast<int64_t>(workers_.scratch_bytes());
  }
  std::span<std::byte> arena() override { return {arena_->data(), static_cast<size_t>(arena_->bytes())}; }
  Status initialize(uint64_t seed) override;
  Status load_model(const format::SafetensorsReader& file) override;
  Status save_model(const std::string& folder) override;
  Status save_state(const std::string& folder, bool optimizer) const override;
  Status check_state() const override;
  Status load_state(const StateReaders& readers) override;
  std::span<int32_t> tokens(int index) override;
  std::span<int32_t> targets(int index) override;
  Result<StepResult> step(const StepSettings& settings) override;
  Result<double> evaluate() override;
  Result<std::vector<float>> logits(int64_t row) override;

 private:
  using A = acc_t<T>;
  using Clock = std::chrono::steady_clock;
  using Role = program::Role;

  /// Elements [begin, end) of a shard, in which weight decay applies to all or to none.
  struct Segment {
    int64_t begin, end;
    bool decays;
  };
  struct Range {
    int64_t begin, end;
  };
  /// Where a unit's state lies.
  struct State {
    A *master, *first, *second, *gradient;
    T* parameters;  // the master itself where T is A
    std::vector<Segment> segments;
    std::vector<Range> gaps;         // of the unit's buffer: elements that belong to no parameter
    std::vector<Range> held_by_all;  // of the shard: parameters that every tensor rank has whole,
    std::vector<Range> of_rows;      // and those of them whose gradient is a sum over tensor ranks
  };
  /// One run of a program.
  struct Run {
    const program::Program& program;
    const program::MemoryPlan& memory;
    const StepSettings* settings = nullptr;  // of training
    int64_t logits_row = -1;                 // of logits: the row of microbatch 0
    float* logits = nullptr;
    StepResult result = {};
    Clock::time_point begin = {};
    double busy_seconds = 0;  // on lane 0, without waiting
  };

  static double seconds_between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  }

  Status plan(program::Purpose purpose, const char* what, program::Program& program,
              program::MemoryPlan& memory);
  Status run(Run& run);
  Status run_all(Run& run);
  Status execute(Run& run, const program::Instruction& instruction);
  Status note_issued(const program::Instruction& instruction, uint64_t& ticket);
  Status wait_for(Run& run, const program::Instruction& instruction);
  Status wait_all(Run& run);
  Status synchronize(Run& run, int lane, uint64_t ticket);
  void move(Run& run, size_t index);
  void compute(Run& run, const program::Instruction& instruction);
  /// Operators write parameters' gradients only; what lies between and behind them would count in the norm.
  void clear_gaps(int unit, A* gradient) const;
  /// Where the arrays of the instruction's recipe are.
  model::Bound<T> bind(Run& run, const program::Instruction& instruction);
  Status check_targets(const program::Instruction& instruction);
  void note_loss(int microbatch);
  Status communicate(Run& run, const program::Instruction& instruction);
  Status transfer(Run& run, const program::Instruction& instruction);
  Status exchange(Run& run, const program::Instruction& instruction);
  Status gather_batch(weftStream_t stream);
  void find_held_by_all();
  void find_norms();
  void sum_squares(const model::Unit& unit, double* chunk);
  Status share_logits(std::vector<float>& logits) const;
  Status find_norm(Run& run, const program::Instruction& instruction);
  double sum_of_norms(const double* all, int64_t count) const;
  Result<double> mean_loss(Run* run);
  void optimize(Run& run, const program::Instruction& instruction);
  model::Pass pass_of(const Run& run, const program::Instruction& i);

  template <typename E>
  E* at(const Run& run, const program::Instruction& instruction, Role role) const {
    const program::BufferId buffer = instruction.buffer(role);
    return buffer < 0 ? nullptr : reinterpret_cast<E*>(arena_->data() + run.memory.offset[buffer]);
  }
  template <typename E>
  E* state_at(program::BufferId buffer) const {
    return reinterpret_cast<E*>(arena_->data() + memory_.offset[buffer]);
  }
  void find_state();
  template <typename F>
  Status read_masters(F&& read);
  class Collector;
  /// Copies masters to parameters, and clears the moments.
  void after_load(bool clear_moments);
  int64_t shard_begin(const model::Unit& unit) const { return groups_.member() * job_.shard(unit); }
  /// What a rank tells all others after a step or an evaluation, behind the losses of its microbatches.
  enum Told : size_t { kRight, kOverflows, kStops, kBusy, kTold };
  size_t told() const { return static_cast<size_t>(job_.microbatches) + kTold; }
  /// What the head multiplies derivatives by: the loss is a mean, and scaled.
  A loss_scale(const Run& run) const {
    return static_cast<A>(run.settings->loss_scale / job_.targets_per_step());
  }
  int64_t rows() const { return job_.batch * job_.tokens; }

  const Groups& groups_;
  Workers workers_;
  const model::TensorRank tensor_;
  const model::Share share_;
  const model::Recipes recipes_;
  model::Runner<T> runner_;
  std::vector<std::byte*> exchanged_;  // of the instruction at hand: arrays by their numbers
  const ops::Operators<T>& op_;
  std::unique_ptr<Arena> arena_;
  std::string tier_folder_;
  std::unique_ptr<Tier> tier_;  // where something is offloaded
  int tier_lane_ = 0;
  std::vector<uint64_t> tickets_;  // of each instruction on another lane than 0
  std::vector<State> states_;
  /// Where a unit's sums of squares are among those of its stage's ranks.
  struct Norms {
    int stage = 0;
    int64_t first = 0;  // chunk
  };
  std::vector<Norms> norms_;
  std::vector<int> owned_;              // units of this stage
  int64_t most_chunks_ = 0;             // of any stage
  std::vector<weftStream_t> streams_;   // of lanes 1, 2, …
  std::vector<uint64_t> issued_;        // by lane: the last ticket
  std::vector<uint64_t> over_;          // … that was waited for
  double* losses_ = nullptr;            // at the arena's end: what this rank tells, then what all ranks told
  std::vector<double> ordered_losses_;  // by number of the microbatch
  std::vector<int32_t> lengths_;        // of the sequences of the microbatch at hand
  int32_t* batch_ = nullptr;
  double* token_losses_ = nullptr;
};

extern template class Executor<float>;
extern template class Executor<bf16>;
extern template class Executor<fp16>;

}  // namespace loom::engine
