// A run, step by step.
#include "train/trainer.h"

#include <algorithm>
#include <thread>

#include "base/file.h"
#include "base/process_memory.h"
#include "model/hugging_face.h"
#include "model/same_model.h"
#include "text/replace_tokenizer.h"
#include "text/same_tokenizer.h"
#include "train/machine.h"
#include "train/stored_state.h"

namespace loom::train {
namespace {

/// CPUs of this machine over the ranks that share it.
int threads_for(const Config& config, int ranks) {
  if (config.parallel.threads > 0) return static_cast<int>(config.parallel.threads);
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cpus / std::max(1, ranks));
}

/// Rank 0 measures for all, so that all divide the model alike. Empty where nothing asks for it.
Result<std::vector<engine::UnitProfile>> unit_profiles(const Config& config, const model::ModelSpec& spec,
                                                       int ranks, weftComm_t world) {
  using engine::UnitProfile;
  std::vector<UnitProfile> units;
  if (!config.parallel.profile) return units;
  int rank = 0;
  if (world != nullptr && weftCommUserRank(world, &rank) != weftSuccess)
    return fail(Code::communication_error, "{}", weftGetLastError(nullptr));
  units.resize(static_cast<size_t>(spec.layers) + 2);
  if (rank == 0) {
    Result<std::vector<UnitProfile>> measured = profile(config, spec, ranks, threads_for(config, ranks));
    // A job that cannot be is refused by all ranks when they make it, with whatever times.
    if (measured.ok()) units = measured.take();
  }
  static_assert(sizeof(UnitProfile) % sizeof(double) == 0, "it travels as numbers of fp64");
  const size_t numbers = units.size() * (sizeof(UnitProfile) / sizeof(double));
  if (world != nullptr &&
      weftBroadcast(units.data(), units.data(), numbers, weftFloat64, 0, world, nullptr) != weftSuccess)
    return fail(Code::communication_error, "{}", weftGetLastError(nullptr));
  return units;
}

/// A classifier that goes on with classes of its own must number them as the dataset does, or its head would
/// be trained for others.
Status check_label_order(const Config& config, const std::vector<std::string>& names) {
  if (names.empty() || config.model.from.empty()) return {};
  const Result<format::Json> json = format::read_config(config.model.from);
  LOOM_TRY(json.status());
  const Result<std::vector<std::string>> own = model::label_names(*json);
  LOOM_TRY(own.status().in(config.model.from));
  if (own->size() != names.size() || !std::is_permutation(own->begin(), own->end(), names.begin())) return {};
  for (size_t label = 0; label < names.size(); ++label)
    if ((*own)[label] != names[label])
      return fail(Code::invalid_argument,
                  "class {} is \"{}\" in the model and \"{}\" in the dataset, must be the same in both: a "
                  "dataset numbers its labels in alphabetical order, so that \"{}-{}\" and the like would be",
                  label, (*own)[label], names[label], label, (*own)[label]);
  return {};
}

}  // namespace

Result<std::vector<engine::UnitProfile>> profile(const Config& config, const model::ModelSpec& spec,
                                                 int ranks, int threads) {
  Config even = config;
  even.parallel.partition = "even";
  even.parallel.memory_limit_mb = 0;
  even.parallel.sharded_data_parallel_degree = 1;
  const Result<program::Job> job = job_of(even, spec, ranks);
  LOOM_TRY(job.status());
  return engine::profile_units(*job, threads);
}

/// What a rank can find wrong by itself: a folder that is not there on its node, for one.
Result<model::ModelSpec> Trainer::open() {
  Result<Data> data = open_data(config_);
  LOOM_TRY(data.status());
  data_ = data.take();
  Result<model::ModelSpec> spec =
      spec_of(config_, data_.vocabulary, static_cast<int64_t>(data_.labels.size()), data_.padding);
  LOOM_TRY(spec.status());
  LOOM_TRY(check_label_order(config_, data_.labels));
  return spec;
}

Result<std::unique_ptr<Trainer>> Trainer::create(const Config& config, weftComm_t world) {
  std::unique_ptr<Trainer> trainer(new Trainer(config));
  trainer->memory_before_ = resident_bytes();
  const Result<model::ModelSpec> spec = trainer->open();
  LOOM_TRY(engine::agree(world, spec.status()));
  int ranks = 1;
  if (world != nullptr && weftCommCount(world, &ranks) != weftSuccess)
    return fail(Code::communication_error, "{}", weftGetLastError(nullptr));
  Result<std::vector<engine::UnitProfile>> measured = unit_profiles(config, *spec, ranks, world);
  LOOM_TRY(measured.status());
  trainer->profiles_ = measured.take();
  const Result<program::Job> job = job_of(config, *spec, ranks, engine::times_of(trainer->profiles_));
  LOOM_TRY(job.status());
  Result<engine::Groups> groups = engine::Groups::create(world, job->layout(), job->strict);
  LOOM_TRY(groups.status());
  trainer->groups_.emplace(groups.take());
  trainer->threads_ = threads_for(config, trainer->groups_->ranks());
  trainer->config_ = resolved(config, *spec, *job, trainer->threads_);
  Result<std::unique_ptr<engine::Engine>> engine =
      engine::Engine::create(*job, *trainer->groups_, trainer->threads_, config.parallel.offload_folder);
  LOOM_TRY(trainer->groups_->agree(engine.status()));
  trainer->engine_ = engine.take();
  Result<format::Checkpoints> checkpoints =
      format::Checkpoints::open(join_path(config.run.out, "checkpoints"), static_cast<int>(config.run.keep));
  LOOM_TRY(trainer->groups_->agree(checkpoints.status()));
  trainer->checkpoints_.emplace(checkpoints.take());
  LOOM_TRY(trainer->groups_->agree(trainer->resume()));
  return trainer;
}

/// This run's newest, so that it goes on where it was interrupted, or else the one that the config names; "":
/// there is none.
Result<std::string> Trainer::checkpoint_to_begin_with() const {
  if (config_.run.resume) {
    const Result<std::optional<uint64_t>> latest = checkpoints_->latest();
    LOOM_TRY(latest.status());
    if (latest->has_value()) return checkpoints_->step_folder(**latest);
  } else {
    LOOM_TRY(spares_the_only_checkpoint());
  }
  return config_.run.resume_from;
}

/// A run that begins anew in the folder of another would fail at its first checkpoint, if that is the only
/// one there: better before the first step.
Status Trainer::spares_the_only_checkpoint() const {
  const Result<std::vector<uint64_t>> complete = checkpoints_->complete_steps();
  LOOM_TRY(complete.status());
  const int64_t every = config_.run.checkpoint_every;
  const int64_t first = every > 0 ? std::min(every, config_.run.steps) : config_.run.steps;
  if (complete->size() != 1 || complete->front() != static_cast<uint64_t>(first)) return {};
  return fail(
      Code::invalid_argument,
      "{} is the only complete checkpoint there, and a run with run.resume=false would write it again: "
      "remove it, name another run.out, or let the run resume",
      checkpoints_->step_folder(complete->front()));
}

/// That a checkpoint is of this model and of tokens that mean the same: as many elements prove neither.
Status Trainer::check_goes_on(const format::Json& manifest) const {
  const std::string key = text::tokenizer_key(*data_.tokenizer);
  if (manifest.contains("tokenizer") && manifest["tokenizer"] != key)
    return fail(
        Code::invalid_argument,
        "the checkpoint was trained on tokens of another tokenizer than those of {} ({}): give it data "
        "that `loom tokenize --tokenizer` has made with the tokenizer of that run's model, or name "
        "another run.out",
        config_.data.folder, data_.tokenizer->description());
  if (!manifest.contains("model")) return {};
  const Result<model::ModelSpec> stored = model::spec_from_config(manifest["model"]);
  LOOM_TRY(stored.status());
  // Through config.json as well, which does not have everything.
  const Result<model::ModelSpec> own = model::spec_from_config(model_config());
  LOOM_TRY(own.status());
  const std::string difference = model::difference(*stored, *own);
  if (difference.empty()) return {};
  return fail(
      Code::invalid_data,
      "the checkpoint is of another model: it has {}; give the config the checkpoint's, or name another "
      "run.out",
      difference);
}

Status Trainer::resume() {
  const Result<std::string> folder = checkpoint_to_begin_with();
  LOOM_TRY(folder.status());
  if (!folder->empty()) {
    const Result<StoredState> state = open_state(*folder);
    LOOM_TRY(*folder == config_.run.resume_from ? state.status().in("run.resume_from") : state.status());
    const Result<int64_t> step = format::required<int64_t>(state->manifest, "step");
    LOOM_TRY(step.status().in(*folder));
    LOOM_TRY(check_goes_on(state->manifest).in(*folder));
    LOOM_TRY(engine_->load_state(state->readers).in(*folder));
    if (state->manifest.contains("loss_scale"))
      LOOM_TRY(loss_scaler_.restore(state->manifest["loss_scale"], *step).in(*folder));
    next_step_ = *step;
    return {};
  }
  if (config_.model.from.empty()) return engine_->initialize(static_cast<uint64_t>(config_.run.seed));
  Result<format::SafetensorsReader> file = format::SafetensorsReader::open(config_.model.from);
  LOOM_TRY(file.status());
  return engine_->load_model(*file);
}

Status Trainer::read_batch(const text::BatchSource& batches, int64_t step) {
  const program::Job& job = engine_->job();
  // Of a batch that is not prescaled each tensor rank reads its part; the ranks exchange them in the step.
  const int readers = job.prescaled_batch ? 1 : job.tensor_degree;
  const int64_t count = job.batch / readers;
  const int64_t first = readers == 1 ? 0 : count * groups_->coordinates().tensor;
  const auto part = [&](std::span<int32_t> all) {
    return all.subspan(static_cast<size_t>(first * job.tokens), static_cast<size_t>(count * job.tokens));
  };
  for (int m = 0; m < job.microbatches; ++m) {
    const int64_t number = program::microbatch_number(job, groups_->group(), groups_->member(), m);
    const Status read = batches.read(static_cast<uint64_t>(step), {number * job.batch + first, count},
                                     part(engine_->tokens(m)), part(engine_->targets(m)));
    if (!read.ok()) groups_->abort(read);  // the others would wait for this rank in the step
    LOOM_TRY(read);
  }
  return {};
}

/// A skipped step takes its batch and nothing else: the schedule and the moments go on where they were, as
/// they do with SMP.
engine::StepSettings Trainer::settings_of_step() const {
  const Config::Optimizer& o = config_.optimizer;
  const int64_t skipped = loss_scaler_.skipped();
  engine::StepSettings settings;
  settings.step = static_cast<uint32_t>(next_step_);
  settings.seed = static_cast<uint64_t>(config_.run.seed);
  settings.optimizer.learning_rate = static_cast<float>(learning_rate(config_, next_step_ - skipped));
  settings.optimizer.beta1 = static_cast<float>(o.beta1);
  settings.optimizer.beta2 = static_cast<float>(o.beta2);
  settings.optimizer.epsilon = static_cast<float>(o.epsilon);
  settings.optimizer.weight_decay = static_cast<float>(o.weight_decay);
  settings.clip_norm = static_cast<float>(o.clip_norm);
  settings.skipped = static_cast<uint32_t>(skipped);
  settings.loss_scale = loss_scaler_.scale();
  return settings;
}

/// Looking takes milliseconds, and nothing is allocated after the first steps.
void Trainer::look_at_memory() {
  measured_bytes_ = std::max(measured_bytes_, resident_bytes() - memory_before_);
}

Result<StepRecord> Trainer::step() {
  LOOM_TRY(read_batch(*data_.train, next_step_));
  const engine::StepSettings settings = settings_of_step();
  const Result<engine::StepResult> result = engine_->step(settings);
  LOOM_TRY(result.status());
  LOOM_TRY(loss_scaler_.update(next_step_, result->loss, result->skipped));
  last_ = *result;
  measured_.add(breakdown_of(engine_->training(), engine_->timeline(), result->seconds * 1e6, false));
  if (measured_.steps() <= 2) look_at_memory();
  const program::Job& job = engine_->job();
  StepRecord record;
  record.step = next_step_++;
  record.loss = result->loss;
  record.gradient_norm = result->gradient_norm;
  record.learning_rate = settings.optimizer.learning_rate;
  record.loss_scale = loss_scaler_.scales() ? settings.loss_scale : 0;
  record.skipped = result->skipped;
  record.skipped_steps = loss_scaler_.skipped();
  record.seconds = result->seconds;
  record.exposed = result->exposed_seconds / result->seconds;
  record.bubble = result->bubble;
  record.tokens_per_second = job.tokens_per_step() / result->seconds;
  record.flops = record.tokens_per_second * job.spec.flops_per_token(job.tokens) / job.world;
  return record;
}

Status Trainer::measure_machine() {
  Result<program::Machine> machine =
      train::measure_machine(engine_->job(), *groups_, threads_, config_.parallel.offload_folder);
  LOOM_TRY(machine.status());
  machine_ = machine.take();
  return {};
}

Status Trainer::gather_trace() {
  RankTotals own = totals_of(engine_->training(), engine_->timeline(), last_);
  own.peak_flops = machine_.flops;
  own.planned_bytes = static_cast<double>(engine_->memory().bytes);
  own.scratch_bytes = static_cast<double>(engine_->memory_bytes() - engine_->arena_bytes());
  own.process_bytes = static_cast<double>(measured_bytes_);
  Result<Trace> trace =
      train::gather_trace(*engine_, *groups_, own, static_cast<int>(config_.run.trace_ranks));
  LOOM_TRY(trace.status());
  if (groups_->rank() != 0) return {};
  trace_ = trace.take();
  trace_->step = next_step_ - 1;
  return {};
}

Result<std::optional<double>> Trainer::validate() {
  if (!data_.validation) return std::optional<double>();
  const int64_t batches =
      std::clamp<int64_t>(static_cast<int64_t>(data_.validation->windows()) / config_.data.global_batch, 1,
                          config_.run.evaluation_steps);
  double sum = 0;
  for (int64_t step = 0; step < batches; ++step) {
    LOOM_TRY(read_batch(*data_.validation, step));
    const Result<double> loss = engine_->evaluate();
    LOOM_TRY(loss.status());
    sum += *loss;
  }
  return std::optional<double>(sum / static_cast<double>(batches));
}

Status Trainer::save_checkpoint() {
  const auto step = static_cast<uint64_t>(next_step_);
  const bool first = groups_->rank() == 0;
  LOOM_TRY(groups_->agree(first ? checkpoints_->begin(step) : Status()));
  LOOM_TRY(
      groups_->agree(engine_->save_state(checkpoints_->step_folder(step), config_.run.checkpoint_optimizer)));
  Status status;
  if (first) {
    const program::Job& job = engine_->job();
    format::Json manifest = {{"config", to_json(config_)},
                             {"model", model_config()},
                             {"tokenizer", text::tokenizer_key(*data_.tokenizer)}};
    for (int stage = 0; stage < job.pipeline_degree; ++stage)
      for (int tensor = 0; tensor < job.tensor_degree; ++tensor) {
        const Result<format::FlatLayout> layout =
            engine_->state_layout(stage, tensor, config_.run.checkpoint_optimizer);
        LOOM_TRY(layout.status());
        manifest[engine::state_name(stage, tensor)] = layout->to_json();
      }
    if (loss_scaler_.scales() || loss_scaler_.skipped() > 0) manifest["loss_scale"] = loss_scaler_.to_json();
    status = checkpoints_->commit(step, manifest);
    if (status.ok()) status = checkpoints_->prune();
  }
  return groups_->agree(status);
}

Status Trainer::save_model() { return save_model_in(join_path(config_.run.out, "model")); }

Status Trainer::save_model_of_step() {
  return save_model_in(
      join_path(join_path(config_.run.out, "models"), fmt::format("step-{:08}", next_step_)));
}

Status Trainer::save_model_in(const std::string& folder) {
  Status made;
  if (groups_->rank() == 0) {
    made = make_folders(folder);
    if (made.ok()) made = text::replace_tokenizer(*data_.tokenizer, folder);
  }
  LOOM_TRY(groups_->agree(made));
  LOOM_TRY(engine_->save_model(folder));
  const bool names = groups_->rank() == 0 && !data_.labels.empty();
  return groups_->agree(names ? format::write_config(folder, model_config()) : Status());
}

format::Json Trainer::model_config() const {
  format::Json config = model::config_of(engine_->job().spec);
  if (!data_.labels.empty()) model::set_label_names(data_.labels, config);
  return config;
}

Status Trainer::run(const std::function<void(const StepRecord&)>& tell) {
  const auto due = [&](int64_t every) {
    return next_step_ == config_.run.steps || (every > 0 && next_step_ % every == 0);
  };
  const int64_t traced = config_.run.trace_step > 0 ? config_.run.trace_step : config_.run.steps;
  while (next_step_ < config_.run.steps) {
    Result<StepRecord> record = step();
    LOOM_TRY(record.status());
    if (config_.run.trace_ranks > 0 && next_step_ == traced) LOOM_TRY(gather_trace());
    if (due(config_.run.evaluate_every)) {
      const Result<std::optional<double>> loss = validate();
      LOOM_TRY(loss.status());
      record->validation_loss = *loss;
    }
    tell(*record);
    if (due(config_.run.checkpoint_every)) LOOM_TRY(save_checkpoint());
    const int64_t models = config_.run.save_model_every;
    if (models > 0 && next_step_ % models == 0) LOOM_TRY(save_model_of_step());
  }
  return {};
}

}  // namespace loom::train
