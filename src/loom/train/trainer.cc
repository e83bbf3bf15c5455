// A run, step by step.
#include "train/trainer.h"

#include <algorithm>

#include "base/file.h"
#include "base/process_memory.h"
#include "engine/weft_call.h"
#include "model/hugging_face.h"
#include "model/same_model.h"
#include "text/replace_tokenizer.h"
#include "text/same_tokenizer.h"
#include "train/machine.h"
#include "train/threads.h"

namespace loom::train {
namespace {

// Of the manifest.
constexpr char kLossScale[] = "loss_scale";
constexpr char kMomentsBegin[] = "moments_begin";

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

/// What a rank can find wrong by itself: a folder that is not there on its node, for one.
Result<model::ModelSpec> Trainer::open() {
  Result<Data> data = open_data(config_);
  LOOM_TRY(data.status());
  data_ = data.take();
  Result<model::ModelSpec> spec = spec_of(config_, data_);
  LOOM_TRY(spec.status());
  LOOM_TRY(check_label_order(config_, data_.labels));
  return spec;
}

/// Where the config asks for it. A model whose units cannot be measured is divided by the cost model.
Status Trainer::measure_units(const model::ModelSpec& spec, int ranks, weftComm_t world) {
  if (!config_.parallel.profile) return {};
  int rank = 0;
  if (world != nullptr) LOOM_TRY_WEFT(weftCommUserRank(world, &rank));
  using Units = std::vector<engine::UnitProfile>;
  const Result<Units> own = rank == 0 ? profile(config_, spec, ranks, threads_) : Result<Units>(Units());
  Result<SharedProfile> shared = share_profile(own, static_cast<size_t>(spec.layers) + 2, world);
  LOOM_TRY(shared.status());
  if (!shared->failure.empty())
    notes_.push_back(fmt::format("units are not measured (parallel.profile), their costs are modelled: {}",
                                 shared->failure));
  profiles_ = std::move(shared->units);
  return {};
}

Result<std::unique_ptr<Trainer>> Trainer::create(const Config& config, weftComm_t world) {
  std::unique_ptr<Trainer> trainer(new Trainer(config));
  trainer->memory_before_ = resident_bytes();
  const Result<model::ModelSpec> spec = trainer->open();
  LOOM_TRY(engine::agree(world, spec.status()));
  LOOM_TRY(same_config(config, world));
  int ranks = 1;
  if (world != nullptr) LOOM_TRY_WEFT(weftCommCount(world, &ranks));
  const Result<int> beside = ranks_of_machine(world);
  LOOM_TRY(beside.status());
  trainer->threads_ = threads_of(config, *beside);
  LOOM_TRY(trainer->measure_units(*spec, ranks, world));
  const Result<program::Job> job = job_of(config, *spec, ranks, engine::measures_of(trainer->profiles_));
  LOOM_TRY(job.status());
  Result<engine::Groups> groups = engine::Groups::create(world, job->layout(), job->strict);
  LOOM_TRY(groups.status());
  trainer->groups_.emplace(groups.take());
  trainer->config_ = resolved(config, *spec, *job, trainer->threads_);
  Result<std::unique_ptr<engine::Engine>> engine =
      engine::Engine::create(*job, *trainer->groups_, trainer->threads_, config.parallel.offload_folder);
  LOOM_TRY(trainer->groups_->agree(engine.status()));
  trainer->engine_ = engine.take();
  Result<format::Checkpoints> checkpoints =
      format::Checkpoints::open(join_path(config.run.out, "checkpoints"), static_cast<int>(config.run.keep));
  LOOM_TRY(trainer->groups_->agree(checkpoints.status()));
  trainer->checkpoints_.emplace(checkpoints.take());
  LOOM_TRY(trainer->resume());
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
    LOOM_TRY(begins_alone());
  }
  return config_.run.resume_from;
}

/// Checkpoints are told apart by their steps: among those of an earlier run the new ones would be the oldest,
/// and the first to be removed, and whoever resumed would go on with the earlier run.
Status Trainer::begins_alone() const {
  const Result<std::optional<uint64_t>> latest = checkpoints_->latest();
  LOOM_TRY(latest.status());
  if (!latest->has_value()) return {};
  return fail(
      Code::invalid_argument,
      "{} is a checkpoint of an earlier run, among whose checkpoints a run with run.resume=false would "
      "lose its own: remove the folder {}, name another run.out, or let the run resume",
      checkpoints_->step_folder(**latest), join_path(config_.run.out, "checkpoints"));
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

Status Trainer::place_in_data(const format::Json& manifest, int64_t step, bool own_run) {
  const Result<Position> stored = position_of(manifest, step);
  LOOM_TRY(stored.status());
  const Result<Continuation> next = continuation(*stored, config_, own_run);
  LOOM_TRY(next.status());
  if (!next->note.empty()) notes_.push_back(next->note);
  from_step_ = step;
  from_sequence_ = next->sequence;
  data_.train->go_on(static_cast<uint64_t>(step), static_cast<uint64_t>(next->sequence));
  return {};
}

/// The checkpoint that the run begins with, opened, and where it lies; nothing where there is none.
Result<std::optional<StoredState>> Trainer::state_to_begin_with(Beginning& beginning) const {
  const Result<std::string> folder = checkpoint_to_begin_with();
  LOOM_TRY(folder.status());
  if (folder->empty()) return std::optional<StoredState>();
  Result<StoredState> state = open_state(*folder);
  LOOM_TRY(*folder == config_.run.resume_from ? state.status().in("run.resume_from") : state.status());
  const Result<int64_t> step = format::required<int64_t>(state->manifest, "step");
  LOOM_TRY(step.status().in(*folder));
  LOOM_TRY(check_goes_on(state->manifest).in(*folder));
  beginning = {*step, *folder, state->manifest.dump()};
  return std::optional(state.take());
}

Status Trainer::resume() {
  Beginning beginning;
  Result<std::optional<StoredState>> state = state_to_begin_with(beginning);
  LOOM_TRY(groups_->agree(state.status()));
  LOOM_TRY(same_beginning(beginning, groups_->world()));
  if (state->has_value()) return groups_->agree(go_on(**state, beginning).in(beginning.checkpoint));
  return groups_->agree(begin());
}

Status Trainer::begin() {
  if (config_.model.from.empty()) return engine_->initialize(static_cast<uint64_t>(config_.run.seed));
  Result<format::SafetensorsReader> file = format::SafetensorsReader::open(config_.model.from);
  LOOM_TRY(file.status());
  return engine_->load_model(*file);
}

Status Trainer::go_on(const StoredState& state, const Beginning& beginning) {
  const int64_t step = beginning.step;
  LOOM_TRY(place_in_data(state.manifest, step, beginning.checkpoint != config_.run.resume_from));
  LOOM_TRY(engine_->load_state(state.readers));
  if (state.manifest.contains(kLossScale)) LOOM_TRY(loss_scaler_.restore(state.manifest[kLossScale], step));
  next_step_ = step;
  const int64_t applied = step - loss_scaler_.skipped();
  moments_begin_ = applied;
  if (!engine::has_moments(state.readers)) return {};
  const Result<int64_t> begin = format::value_or<int64_t>(state.manifest, kMomentsBegin, 0);
  LOOM_TRY(begin.status());
  if (*begin < 0 || *begin > applied)
    return fail(Code::invalid_data, "{} is {}, must be from 0 to the {} steps that were applied",
                kMomentsBegin, *begin, applied);
  moments_begin_ = *begin;
  return {};
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
  settings.uncounted = static_cast<uint32_t>(skipped + moments_begin_);
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
  if (!result.ok()) return with_way_back(result.status());
  LOOM_TRY(with_way_back(loss_scaler_.update(next_step_, result->loss, result->skipped)));
  last_ = *result;
  const program::Job& job = engine_->job();
  Breakdown breakdown = breakdown_of(engine_->training(), engine_->timeline(), result->seconds * 1e6, false);
  if (job.pipeline_degree > 1) breakdown.bubble = result->bubble;
  measured_.add(breakdown);
  if (measured_.steps() <= 2) look_at_memory();
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
  record.flops = record.tokens_per_second * job.flops_per_token() / job.world;
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

/// Of a run that has diverged, the checkpoint to go back to.
Status Trainer::with_way_back(Status status) const {
  if (status.ok() || status.code() != Code::not_finite) return status;
  const Result<std::optional<uint64_t>> latest = checkpoints_->latest();
  if (!latest.ok() || !latest->has_value())
    return fail(Code::not_finite, "{}; there is no checkpoint to go back to, run.checkpoint_every makes some",
                status.message());
  return fail(
      Code::not_finite,
      "{}; the newest checkpoint is of step {}: the same run.out goes on from it, and another one with "
      "run.resume_from={}",
      status.message(), **latest, checkpoints_->step_folder(**latest));
}

/// What a checkpoint's manifest has beside the list of its files, which are told apart as well.
Result<format::Json> Trainer::manifest(std::vector<std::string>& files) const {
  const program::Job& job = engine_->job();
  const int64_t batch = config_.data.global_batch;
  const Position position{from_sequence_ + (next_step_ - from_step_) * batch, batch,
                          config_.data.sequence_length, config_.run.seed};
  format::Json manifest = {{"config", to_json(config_)},
                           {"model", model_config()},
                           {"tokenizer", text::tokenizer_key(*data_.tokenizer)},
                           {"data", position.to_json()}};
  for (int stage = 0; stage < job.pipeline_degree; ++stage)
    for (int tensor = 0; tensor < job.tensor_degree; ++tensor) {
      const Result<format::FlatLayout> layout =
          engine_->state_layout(stage, tensor, config_.run.checkpoint_optimizer);
      LOOM_TRY(layout.status());
      manifest[engine::state_name(stage, tensor)] = layout->to_json();
      for (int owner = 0; owner < layout->owners(); ++owner) files.push_back(layout->file_name(owner));
    }
  if (loss_scaler_.scales() || loss_scaler_.skipped() > 0) manifest[kLossScale] = loss_scaler_.to_json();
  if (moments_begin_ > 0 && config_.run.checkpoint_optimizer) manifest[kMomentsBegin] = moments_begin_;
  return manifest;
}

/// Rank 0's part, when all have written theirs.
Status Trainer::commit_checkpoint(uint64_t step) {
  std::vector<std::string> files;
  const Result<format::Json> content = manifest(files);
  LOOM_TRY(content.status());
  LOOM_TRY(checkpoints_->commit(step, *content, files));
  return checkpoints_->prune();
}

Status Trainer::save_checkpoint() {
  const auto step = static_cast<uint64_t>(next_step_);
  const bool first = groups_->rank() == 0;
  // Before anything is written: a state that nobody can go on with must not push out one that somebody can.
  LOOM_TRY(with_way_back(groups_->agree(engine_->check_state())));
  LOOM_TRY(groups_->agree(first ? checkpoints_->begin(step) : Status()));
  LOOM_TRY(
      groups_->agree(engine_->save_state(checkpoints_->step_folder(step), config_.run.checkpoint_optimizer)));
  return groups_->agree(first ? commit_checkpoint(step) : Status());
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
