// A run: the trainer, behind functions whose types are public, and those who are told of it.
#include "loom/training.h"

#include "loom/observer.h"
#include "model/units.h"
#include "train/comparison.h"

namespace loom {

struct Training::Inside {
  std::unique_ptr<train::Trainer> trainer;
  std::vector<Observer*> observers;
  size_t notes_told = 0;
  std::optional<train::Comparison> comparison;  // once somebody has asked for it
};

Observer::~Observer() = default;
Status Observer::begin(const Training&) { return {}; }
void Observer::note(const Training&, const std::string&) {}
void Observer::step(const Training&, const StepRecord&) {}
Status Observer::end(const Training&, const Status&) { return {}; }

Training::Training(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Training::Training(Training&& other) noexcept = default;
Training& Training::operator=(Training&& other) noexcept = default;
Training::~Training() = default;

Result<Training> Training::create(const Config& config, weftComm_t world, Measuring measuring) {
  Result<std::unique_ptr<train::Trainer>> made = train::Trainer::create(config.values(), world, measuring);
  LOOM_TRY(made.status());
  auto inside = std::make_unique<Inside>();
  inside->trainer = made.take();
  return Training(std::move(inside));
}

const train::Trainer& Training::trainer() const { return *inside_->trainer; }
const train::Comparison& Training::comparison() const {
  std::optional<train::Comparison>& comparison = inside_->comparison;
  if (comparison) train::measure_again(trainer(), *comparison);
  else comparison = train::compare(trainer(), trainer().machine());
  return *comparison;
}

Config Training::config() const { return Config(trainer().config()); }
int Training::rank() const { return trainer().groups().rank(); }
int Training::ranks() const { return trainer().groups().ranks(); }
int64_t Training::parameters() const { return model::parameter_count(trainer().engine().units()); }
int64_t Training::memory_bytes() const { return trainer().engine().memory_bytes(); }
std::string Training::device() const { return trainer().devices().description; }
int64_t Training::next_step() const { return trainer().next_step(); }
int64_t Training::steps() const { return trainer().config().run.steps; }
const std::vector<std::string>& Training::notes() const { return trainer().notes(); }

Status Training::observe(Observer& observer) {
  LOOM_TRY(trainer().groups().agree(observer.begin(*this)));
  for (size_t i = 0; i < inside_->notes_told; ++i) observer.note(*this, notes()[i]);
  inside_->observers.push_back(&observer);
  tell_notes();
  return {};
}

void Training::tell_notes() {
  for (size_t& told = inside_->notes_told; told < notes().size(); ++told)
    for (Observer* const observer : inside_->observers) observer->note(*this, notes()[told]);
}

Result<StepRecord> Training::step() { return inside_->trainer->step(); }

Status Training::run(const std::function<void(const StepRecord&)>& tell, const std::function<bool()>& stop) {
  const Status ended = inside_->trainer->run(
      [&](const StepRecord& record) {
        tell_notes();
        if (tell) tell(record);
        for (Observer* const observer : inside_->observers) observer->step(*this, record);
      },
      stop);
  tell_notes();
  return ended;
}

Status Training::complete(const std::function<bool()>& stop) {
  Status ended = run({}, stop);
  // Of a run that has gone further than it is to now, the model there is of that step.
  if (ended.ok() && next_step() == steps()) ended = save_model();
  tell_notes();
  Status told;
  for (Observer* const observer : inside_->observers)
    if (const Status one = observer->end(*this, ended); told.ok()) told = one;
  LOOM_TRY(ended);  // the other ranks may be gone
  return trainer().groups().agree(told);
}

bool Training::stopped() const { return trainer().stopped(); }
Result<std::optional<double>> Training::validate() { return inside_->trainer->validate(); }
Status Training::save_checkpoint() { return inside_->trainer->save_checkpoint(); }
Status Training::save_model() { return inside_->trainer->save_model(); }

}  // namespace loom
