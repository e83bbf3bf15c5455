// A run, step by step.
#include "train/trainer.h"

#include <algorithm>

#include "base/file.h"
#include "base/process_memory.h"
#include "engine/weft_call.h"
#include "model/hugging_face.h"
#include "model/model_file.h"
#include "text/replace_tokenizer.h"
#include "text/same_tokenizer.h"
#include "train/machine.h"
#include "train/rate_cache.h"
#include "train/threads.h"
#include "train/token_ids.h"

namespace loom::train {
namespace {

// Of the manifest.
constexpr char kLossScale[] = "loss_scale";
constexpr char kMomentsBegin[] = "moments_begin";

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

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
  if (const std::string note = engine::left_out(profiles_); !note.empty())
    notes_.push_back("units (parallel.profile): " + note);
  return {};
}

Result<std::unique_ptr<Trainer>> Trainer::create(const Config& config, weftComm_t world,
                                                 Measuring measuring) {
  std::unique_ptr<Trainer> trainer(new Trainer(config));
  trainer->memory_before_ = resident_bytes();
  const Result<model::ModelSpec> spec = trainer->open();
  LOOM_TRY(engine::agree(world, spec.status()));
  LOOM_TRY(same_config(config, world));
  const ops::Instructions computes_with =
      program::with_type(precision_of(config), []<typename T>(T) { return ops::instructions<T>(); });
  const Result<std::string> mixed = same_instructions(computes_with, config.parallel.strict, world);
  LOOM_TRY(mixed.status());
  if (!mixed->empty()) trainer->notes_.push_back(*mixed);
  LOOM_TRY(same_data(config.data.folder, trainer->data_.key(), world));
  int ranks = 1;
  if (world != nullptr) LOOM_TRY_WEFT(weftCommCount(world, &ranks));
  const Result<Sharers> sharers = find_sharers(world);
  LOOM_TRY(sharers.status());
  trainer->threads_ = threads_of(config, *sharers);
  LOOM_TRY(trainer->measure_units(*spec, ranks, world));
  const Result<program::Job> job = job_of(config, *spec, ranks, engine::measures_of(trainer->profiles_));
  LOOM_TRY(job.status());
  Result<engine::Groups> groups = engine::Groups::create(world, job->layout(), job->strict);
  LOOM_TRY(groups.status());
  trainer->groups_.emplace(groups.take());
  trainer->config_ = resolved(config, *spec, *job, trainer->threads_);
  trainer->spec_ = job->spec;
  LOOM_TRY(trainer->groups_->agree(trainer->lock_folder()));
  Result<format::Checkpoints> checkpoints =
      format::Checkpoints::open(join_path(config.run.out, "checkpoints"), static_cast<int>(config.run.keep));
  LOOM_TRY(trainer->groups_->agree(checkpoints.status()));
  trainer->checkpoints_.emplace(checkpoints.take());
  LOOM_TRY(trainer->find_beginning());
  // Before the arena is there: what measuring takes was beside it at the run's beginning, above the plan.
  const bool measures = measuring == Measuring::machine && trainer->beginning_.step < config.run.steps;
  if (measures) LOOM_TRY(trainer->measure_machine(*job));
  Result<std::unique_ptr<engine::Engine>> engine =
      engine::Engine::create(*job, *trainer->groups_, trainer->threads_, config.parallel.offload_folder);
  LOOM_TRY(trainer->groups_->agree(engine.status()));
  trainer->engine_ = engine.take();
  LOOM_TRY(trainer->begin());
  return trainer;
}

/// The same on all ranks.
Status Trainer::find_beginning() {
  Result<std::optional<StoredState>> state = state_to_begin_with();
  LOOM_TRY(groups_->agree(state.status()));
  state_ = state.take();
  return same_beginning(beginning_, *groups_);
}

Status Trainer::begin() {
  Status begun;
  if (state_.has_value()) {
    // Each rank reads its part of the files for that: what loading reads of them next is in memory then.
    const Status whole =
        format::check_hashes(state_->manifest, beginning_.checkpoint, groups_->rank(), groups_->ranks());
    LOOM_TRY(groups_->agree(with_one_before(whole)));
    begun = with_one_before(go_on(*state_).in(beginning_.checkpoint));
    state_.reset();
    beginning_.manifest.clear();
  } else {
    begun = begin_anew();
  }
  LOOM_TRY(groups_->agree(begun));
  return look_at_memory(Moment::state);
}

Status Trainer::begin_anew() {
  if (config_.model.from.empty()) return engine_->initialize(static_cast<uint64_t>(config_.run.seed));
  const Result<model::ModelFile> file = model::open_model_file(config_.model.from, spec_);
  LOOM_TRY(file.status());
  if (!other_classes_.empty()) notes_.push_back(other_classes_);
  for (const std::string& note : file->notes) notes_.push_back(note);
  return engine_->load_model(file->tensors);
}

Status Trainer::go_on(const StoredState& state) {
  const int64_t step = beginning_.step;
  LOOM_TRY(place_in_data(state.manifest, step, is_own()));
  LOOM_TRY(engine_->load_state(state.readers));
  if (state.manifest.contains(kLossScale)) LOOM_TRY(loss_scaler_.restore(state.manifest[kLossScale], step));
  next_step_ = step;
  if (is_own()) saved_step_ = step;
  if (state.manifest.contains("model")) take_token_ids(state.manifest["model"], origin_);
  if (is_over())
    notes_.push_back(fmt::format(
        "nothing to do: the checkpoint is of step {}, run.steps is {}; a larger run.steps goes on", step,
        config_.run.steps));
  const int64_t applied = step - loss_scaler_.skipped();
  if (is_own() && !is_over() && state.manifest.contains("config")) {
    const Result<Config> before = stored_config(state.manifest["config"]);
    LOOM_TRY(before.status().in("config"));
    if (const std::string note = rate_change(*before, config_, applied); !note.empty())
      notes_.push_back(note);
  }
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
  settings.stop = &stop_;
  return settings;
}

/// Looking takes milliseconds, and nothing is allocated after the first steps. A collective.
Status Trainer::look_at_memory(Moment after) {
  constexpr int kLooks = 2;
  if (looks_[static_cast<size_t>(after)]++ >= kLooks) return {};
  measured_bytes_ = std::max(measured_bytes_, resident_bytes() - memory_before_);
  const Result<int64_t> most = groups_->most(measured_bytes_);
  LOOM_TRY(most.status());
  most_measured_bytes_ = *most;
  return {};
}

/// By the clock since the first step of this object, which is left out: it touches memory for the others.
double Trainer::seconds_left(const StepRecord& record) {
  const auto left = static_cast<double>(config_.run.steps - record.step - 1);
  if (!pace_) {
    pace_.emplace(Clock::now(), record.step);
    return left * record.seconds;
  }
  return left * seconds_since(pace_->first) / static_cast<double>(record.step - pace_->second);
}

Result<StepRecord> Trainer::step() {
  const auto begin = Clock::now();
  LOOM_TRY(read_batch(*data_.train, next_step_));
  const double data_seconds = seconds_since(begin);
  const engine::StepSettings settings = settings_of_step();
  const Result<engine::StepResult> result = engine_->step(settings);
  if (!result.ok()) return with_way_back(result.status());
  LOOM_TRY(with_way_back(loss_scaler_.update(next_step_, result->loss, result->skipped)));
  last_ = *result;
  LOOM_TRY(look_at_memory(Moment::step));
  const program::Job& job = engine_->job();
  const double seconds = data_seconds + result->seconds;
  Breakdown breakdown =
      breakdown_of(engine_->training(), engine_->timeline(), seconds * 1e6, false, result->met_seconds * 1e6);
  breakdown.data_us = data_seconds * 1e6;
  if (job.pipeline_degree > 1) breakdown.bubble = result->bubble;
  measured_.add(breakdown);
  StepRecord record;
  record.step = next_step_++;
  record.loss = result->loss;
  record.gradient_norm = result->gradient_norm;
  record.learning_rate = settings.optimizer.learning_rate;
  record.loss_scale = loss_scaler_.scales() ? settings.loss_scale : 0;
  record.skipped = result->skipped;
  record.skipped_steps = loss_scaler_.skipped();
  record.seconds = seconds;
  record.data_seconds = data_seconds;
  record.seconds_left = static_cast<double>(config_.run.steps - next_step_) * seconds;
  record.memory_bytes = std::max<int64_t>(0, most_measured_bytes_);
  record.exposed = result->exposed_seconds / seconds;
  record.bubble = result->bubble;
  record.tokens_per_second = job.tokens_per_step() / seconds;
  record.flops = record.tokens_per_second * job.flops_per_token() / job.world;
  return record;
}

Status Trainer::measure_machine(const program::Job& job) {
  RateCache cache{rate_cache_folder(), config_.run.remeasure, {}};
  Result<program::Machine> machine =
      train::measure_machine(job, *groups_, threads_, config_.parallel.offload_folder, &cache);
  LOOM_TRY(machine.status());
  if (!cache.kept.ok())
    notes_.push_back(fmt::format("measured rates are not kept for the next run: {}", cache.kept.message()));
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
  int64_t right = 0;
  for (int64_t step = 0; step < batches; ++step) {
    LOOM_TRY(read_batch(*data_.validation, step));
    const Result<double> loss = engine_->evaluate();
    LOOM_TRY(loss.status());
    sum += *loss;
    right += engine_->right();
  }
  if (engine_->job().spec.task == model::Task::classification)
    validation_accuracy_ =
        static_cast<double>(right) / static_cast<double>(batches * config_.data.global_batch);
  LOOM_TRY(look_at_memory(Moment::evaluation));
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

/// Of the part of a checkpoint that each place has written; 0 where it has none. A collective.
Result<std::vector<uint64_t>> Trainer::hashes_of_places(uint64_t step) const {
  const program::Coordinates own = groups_->coordinates();
  Result<uint64_t> hash = uint64_t{0};
  if (groups_->group() == 0) {
    const Result<format::FlatLayout> layout =
        engine_->state_layout(own.stage, own.tensor, config_.run.checkpoint_optimizer);
    LOOM_TRY(layout.status());
    hash = hash_of_file(join_path(checkpoints_->step_folder(step), layout->file_name(groups_->member())));
  }
  LOOM_TRY(groups_->agree(hash.status()));
  const Result<std::vector<uint64_t>> of_ranks = groups_->gather(*hash);
  LOOM_TRY(of_ranks.status());
  std::vector<uint64_t> of_places(of_ranks->size());
  for (int rank = 0; rank < groups_->ranks(); ++rank)
    of_places[static_cast<size_t>(groups_->place_of(rank))] = (*of_ranks)[static_cast<size_t>(rank)];
  return of_places;
}

/// What a checkpoint's manifest has beside the list of its files, which are told apart as well.
Result<format::Json> Trainer::manifest(const std::vector<uint64_t>& hashes,
                                       std::vector<std::string>& files) const {
  const program::Job& job = engine_->job();
  const int64_t batch = config_.data.global_batch;
  const Position position{from_sequence_ + (next_step_ - from_step_) * batch, batch,
                          config_.data.sequence_length, config_.run.seed, dataset_key(*data_.train)};
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
      for (int owner = 0; owner < layout->owners(); ++owner) {
        files.push_back(layout->file_name(owner));
        const int place = groups_->layout().place({owner, stage, tensor});
        manifest[format::kHashes][files.back()] = format::hash_text(hashes[static_cast<size_t>(place)]);
      }
    }
  if (loss_scaler_.scales() || loss_scaler_.skipped() > 0) manifest[kLossScale] = loss_scaler_.to_json();
  if (moments_begin_ > 0 && config_.run.checkpoint_optimizer) manifest[kMomentsBegin] = moments_begin_;
  return manifest;
}

/// Rank 0's part, when all have written theirs.
Status Trainer::commit_checkpoint(uint64_t step, const std::vector<uint64_t>& hashes) {
  std::vector<std::string> files;
  const Result<format::Json> content = manifest(hashes, files);
  LOOM_TRY(content.status());
  LOOM_TRY(checkpoints_->commit(step, *content, files));
  return checkpoints_->prune();
}

Status Trainer::save_checkpoint() {
  const auto step = static_cast<uint64_t>(next_step_);
  const bool first = groups_->rank() == 0;
  if (saved_step_ == next_step_) return {};
  // Before anything is written: a state that nobody can go on with must not push out one that somebody can.
  LOOM_TRY(with_way_back(groups_->agree(engine_->check_state())));
  LOOM_TRY(groups_->agree(first ? checkpoints_->begin(step) : Status()));
  LOOM_TRY(
      groups_->agree(engine_->save_state(checkpoints_->step_folder(step), config_.run.checkpoint_optimizer)));
  LOOM_TRY(look_at_memory(Moment::checkpoint));
  const Result<std::vector<uint64_t>> hashes = hashes_of_places(step);
  LOOM_TRY(hashes.status());
  LOOM_TRY(groups_->agree(first ? commit_checkpoint(step, *hashes) : Status()));
  saved_step_ = next_step_;
  return {};
}

Status Trainer::save_model() { return save_model_in(join_path(config_.run.out, "model")); }

Status Trainer::save_model_of_step() {
  LOOM_TRY(with_way_back(groups_->agree(engine_->check_state())));
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
  LOOM_TRY(look_at_memory(Moment::model));
  // What the engine knows nothing of.
  return groups_->agree(groups_->rank() == 0 ? format::write_config(folder, model_config()) : Status());
}

format::Json Trainer::model_config() const {
  format::Json config = model::config_of(spec_);
  if (!data_.labels.empty()) model::set_label_names(data_.labels, config);
  set_token_ids(origin_, *data_.tokenizer, config);
  return config;
}

Status Trainer::run(const std::function<void(const StepRecord&)>& tell, const std::function<bool()>& stop) {
  stop_ = stop;
  const auto due = [&](int64_t every) {
    return next_step_ == config_.run.steps || (every > 0 && next_step_ % every == 0);
  };
  const int64_t traced = config_.run.trace_step > 0 ? config_.run.trace_step : config_.run.steps;
  stopped_ = false;
  while (!is_over() && !stopped_) {
    Result<StepRecord> record = step();
    LOOM_TRY(record.status());
    stopped_ = last_.stop && !is_over();
    // Whoever stops a run gives it little time, which the checkpoint needs.
    if (!stopped_ && due(config_.run.evaluate_every)) {
      const Result<std::optional<double>> loss = validate();
      LOOM_TRY(loss.status());
      record->validation_loss = *loss;
      record->validation_accuracy = validation_accuracy_;
    }
    record->seconds_left = seconds_left(*record);
    record->memory_bytes = std::max(record->memory_bytes, most_measured_bytes_);
    tell(*record);
    // The checkpoint last: who goes on from it does nothing of its step again.
    const int64_t models = config_.run.save_model_every;
    if (models > 0 && next_step_ % models == 0) LOOM_TRY(save_model_of_step());
    if (stopped_ || due(config_.run.checkpoint_every)) LOOM_TRY(save_checkpoint());
    // With the memory that all of these were seen to take.
    if (config_.run.trace_ranks > 0 && next_step_ == traced) LOOM_TRY(gather_trace());
  }
  stop_ = {};
  if (stopped_)
    notes_.push_back(fmt::format(
        "stopped after step {} of {}, as it was asked to: the same run.out goes on from its checkpoint",
        next_step_, config_.run.steps));
  return {};
}

}  // namespace loom::train
