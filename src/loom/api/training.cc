// A run: the trainer, behind functions whose types are public.
#include "loom/training.h"

#include "train/trainer.h"

namespace loom {

Training::Training(std::unique_ptr<train::Trainer> trainer) : trainer_(std::move(trainer)) {}
Training::Training(Training&& other) noexcept = default;
Training& Training::operator=(Training&& other) noexcept = default;
Training::~Training() = default;

Result<Training> Training::create(const Config& config, weftComm_t world) {
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config.values(), world);
  LOOM_TRY(trainer.status());
  return Training(trainer.take());
}

int Training::rank() const { return trainer_->groups().rank(); }
int Training::ranks() const { return trainer_->groups().ranks(); }
int64_t Training::parameters() const {
  const auto units = trainer_->engine().units();
  return model::parameter_count({units.begin(), units.end()});
}
int64_t Training::memory_bytes() const { return trainer_->engine().memory_bytes(); }
int64_t Training::next_step() const { return trainer_->next_step(); }
int64_t Training::steps() const { return trainer_->config().run.steps; }
const std::vector<std::string>& Training::notes() const { return trainer_->notes(); }

Result<StepRecord> Training::step() { return trainer_->step(); }
Status Training::run(const std::function<void(const StepRecord&)>& tell, const std::function<bool()>& stop) {
  return trainer_->run(
      tell ? tell : [](const StepRecord&) {}, stop);
}
bool Training::stopped() const { return trainer_->stopped(); }
Result<std::optional<double>> Training::validate() { return trainer_->validate(); }
Status Training::save_checkpoint() { return trainer_->save_checkpoint(); }
Status Training::save_model() { return trainer_->save_model(); }

}  // namespace loom
