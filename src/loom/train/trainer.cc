// A run: how it begins, and its steps.
#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "engine/attention_choice.h"
#include "engine/weft_call.h"
#include "model/hugging_face.h"
#include "model/model_file.h"
#include "model/same_model.h"
#include "text/same_tokenizer.h"
#include "text/tokenizer.h"
#include "train/classes.h"
#include "train/companions.h"
#include "train/gpu_memory.h"
#include "train/machine.h"
#include "train/model_dtype.h"
#include "train/rate_cache.h"
#include "train/read_batch.h"
#include "train/threads.h"
#include "train/token_ids.h"
#include "train/write_checkpoint.h"

namespace loom::train {
namespace {

// Of the manifest.
constexpr char kLossScale[] = "loss_scale";
constexpr char kMomentsBegin[] = "moments_begin";

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// What models are saved in; the setting was checked with the config.
format::DType saved_dtype(const Config& config, const format::Json& origin) {
  return model_dtype(config.run.model_dtype, origin).take();
}

/// config.json, with the names of the dataset's labels, the ids of what begins and ends texts, and the type
/// of the parameters.
format::Json model_config(const model::ModelSpec& spec, const format::Json& origin, const Data& data,
                          const Config& run) {
  format::Json config = model::config_of(spec);
  set_dtype(saved_dtype(run, origin), config);
  if (!data.labels.empty()) model::set_label_names(data.labels, config);
  set_token_ids(origin, *data.tokenizer, config);
  return config;
}

/// That a checkpoint is of this model and of tokens that mean the same: as many elements prove neither.
Status check_goes_on(const format::Json& manifest, const format::Json& own_config, const Data& data,
                     const std::string& folder) {
  const std::string key = text::tokenizer_key(*data.tokenizer);
  if (manifest.contains("tokenizer") && manifest["tokenizer"] != key)
    return fail(
        Code::invalid_argument,
        "the checkpoint was trained on tokens of another tokenizer than those of {} ({}): give it data "
        "that `loom tokenize --tokenizer` has made with the tokenizer of that run's model, or name "
        "another run.out",
        folder, data.tokenizer->description());
  if (!manifest.contains("model")) return {};
  const Result<model::ModelSpec> stored = model::spec_from_config(manifest["model"]);
  LOOM_TRY(stored.status());
  // Through config.json as well, which does not have everything.
  const Result<model::ModelSpec> own = model::spec_from_config(own_config);
  LOOM_TRY(own.status());
  const std::string difference = model::difference(*stored, *own);
  if (difference.empty()) return {};
  return fail(
      Code::invalid_data,
      "the checkpoint is of another model: it has {}; give the config the checkpoint's, or name another "
      "run.out",
      difference);
}

/// Where the ranks' CPUs round differently.
Status note_instructions(const Config& config, weftComm_t world, std::vector<std::string>& notes) {
  const ops::Instructions computes_with =
      program::with_type(precision_of(config), []<typename T>(T) { return ops::instructions<T>(); });
  const Result<std::string> mixed = same_instructions(computes_with, config.parallel.strict, world);
  LOOM_TRY(mixed.status());
  if (!mixed->empty()) notes.push_back(*mixed);
  return {};
}

Result<program::Job> make_job(const Config& config, const model::ModelSpec& spec, int ranks,
                              const std::vector<engine::UnitProfile>& profiles, const Devices& devices) {
  const program::MeasuredUnits measured = engine::measures_of(profiles);
  if (devices.gpu < 0) return job_of(config, spec, ranks, measured);
  Result<program::Job> job = job_on_gpus(config, spec, ranks, measured, devices.memory_bytes);
  LOOM_TRY(job.status());
  const int64_t beside = engine::attention_bytes(*job, engine::attention_from(config.parallel.attention));
  if (beside > 0)
    job = job_on_gpus(config, spec, ranks, measured, std::max<int64_t>(0, devices.memory_bytes - beside));
  return job;
}

Status make_groups(const program::Job& job, weftComm_t world, int gpu, std::optional<engine::Groups>& into) {
  into.reset();
  Result<engine::Groups> groups = engine::Groups::create(world, job.layout(), job.strict, gpu);
  LOOM_TRY(groups.status());
  into.emplace(groups.take());
  return {};
}

/// A skipped step takes its batch and nothing else: the schedule and the moments go on where they were, as
/// they do with SMP.
engine::StepSettings settings_of_step(const Config& config, const LossScaler& loss_scaler, int64_t step,
                                      int64_t moments_begin) {
  const Config::Optimizer& o = config.optimizer;
  const int64_t skipped = loss_scaler.skipped();
  engine::StepSettings settings;
  settings.step = static_cast<uint32_t>(step);
  settings.seed = static_cast<uint64_t>(config.run.seed);
  settings.optimizer.learning_rate = static_cast<float>(learning_rate(config, step - skipped));
  settings.optimizer.beta1 = static_cast<float>(o.beta1);
  settings.optimizer.beta2 = static_cast<float>(o.beta2);
  settings.optimizer.epsilon = static_cast<float>(o.epsilon);
  settings.optimizer.weight_decay = static_cast<float>(o.weight_decay);
  settings.clip_norm = static_cast<float>(o.clip_norm);
  settings.uncounted = static_cast<uint32_t>(skipped + moments_begin);
  settings.loss_scale = loss_scaler.scale();
  return settings;
}

}  // namespace

/// What a rank can find wrong by itself: a folder that is not there on its node, for one.
Result<model::ModelSpec> Trainer::open() {
  Result<Data> data = open_data(config_);
  LOOM_TRY(data.status());
  data_ = data.take();
  Result<model::ModelSpec> spec = spec_of(config_, data_);
  LOOM_TRY(spec.status());
  Result<std::string> other_classes = take_classes(config_, *spec, data_.labels);
  LOOM_TRY(other_classes.status());
  start_.other_classes = other_classes.take();
  if (std::string note = data_.train->note(); !note.empty()) notes_.push_back(std::move(note));
  if (data_.validation == nullptr && config_.run.evaluate_every > 0)
    notes_.push_back(fmt::format("{} has no validation split, so that run.evaluate_every has no meaning",
                                 config_.data.folder));
  const std::string& from = config_.model.from;
  if (!from.empty()) {
    const Result<format::Json> json = format::read_config(from);
    LOOM_TRY(json.status());
    take_token_ids(*json, origin_);
    take_dtype(*json, origin_);
  }
  if (!from.empty() && spec->vocabulary > data_.vocabulary &&
      text::open_tokenizer(from).status().code() == Code::not_found)
    notes_.push_back(
        fmt::format("model.from, {}, has a vocabulary of {} tokens and no tokenizer beside it, the dataset's "
                    "tokenizer has "
                    "{}: nothing tells whether its tokens are those that the model was trained on",
                    from, spec->vocabulary, data_.vocabulary));
  return spec;
}

Status Trainer::place_in_data(const format::Json& manifest, int64_t step, bool own_run) {
  const Result<Position> stored = position_of(manifest, step);
  LOOM_TRY(stored.status());
  const Result<Continuation> next = continuation(*stored, config_, dataset_key(*data_.train), own_run);
  LOOM_TRY(next.status());
  if (!next->note.empty()) notes_.push_back(next->note);
  progress_.from_step = step;
  progress_.from_sequence = next->sequence;
  data_.train->go_on(static_cast<uint64_t>(step), static_cast<uint64_t>(next->sequence));
  return {};
}

/// The checkpoint that the run begins with, opened, and where it lies; nothing where there is none.
Result<std::optional<StoredState>> Trainer::state_to_begin_with() {
  const Result<std::string> folder = folder_->checkpoint_to_begin_with(notes_);
  LOOM_TRY(folder.status());
  if (folder->empty()) return std::optional<StoredState>();
  Result<StoredState> state = open_state(*folder);
  LOOM_TRY(*folder == config_.run.resume_from ? state.status().in("run.resume_from") : state.status());
  const Result<int64_t> step = format::required<int64_t>(state->manifest, "step");
  LOOM_TRY(step.status().in(*folder));
  LOOM_TRY(
      check_goes_on(state->manifest, model_config(spec_, origin_, data_, config_), data_, config_.data.folder)
          .in(*folder));
  if (state->manifest.contains("model"))
    LOOM_TRY(take_classes(state->manifest["model"], data_.labels).in(*folder));
  start_.beginning = {*step, *folder, state->manifest.dump()};
  return std::optional(state.take());
}

/// Where the config asks for it. A model whose units cannot be measured is divided by the cost model.
Status Trainer::measure_units(const model::ModelSpec& spec, int ranks, weftComm_t world) {
  if (!config_.parallel.profile) return {};
  if (devices_.gpu >= 0) {
    notes_.push_back("units are not measured (parallel.profile) on GPUs, their costs are modelled");
    return {};
  }
  int rank = 0;
  if (world != nullptr) LOOM_TRY_WEFT(weftCommUserRank(world, &rank));
  using Units = std::vector<engine::UnitProfile>;
  const Result<Units> own = rank == 0 ? profile(config_, spec, ranks, threads_) : Result<Units>(Units());
  Result<SharedProfile> shared = share_profile(own, static_cast<size_t>(spec.layers) + 2, world);
  LOOM_TRY(shared.status());
  if (!shared->failure.empty())
    notes_.push_back(fmt::format("units are not measured (parallel.profile), their costs are modelled: {}",
                                 shared->failure));
  findings_.profiles = std::move(shared->units);
  if (const std::string note = engine::left_out(findings_.profiles); !note.empty())
    notes_.push_back("units (parallel.profile): " + note);
  return {};
}

/// Where the ranks compute, and what is not the same on all of them.
Status Trainer::find_devices(weftComm_t world) {
  Result<Devices> devices = choose_devices(config_, world);
  LOOM_TRY(devices.status());
  devices_ = devices.take();
  if (!devices_.note.empty()) notes_.push_back(devices_.note);
  const Result<Sharers> sharers = find_sharers(world);
  LOOM_TRY(sharers.status());
  threads_ = threads_of(config_, *sharers);
  if (devices_.gpu >= 0) {
    memory_.watch([device = devices_.device] {
      const Result<device::MemoryState> memory = device->memory();
      return memory.ok() ? memory->all - memory->free : 0;
    });
    return {};
  }
  return note_instructions(config_, world, notes_);
}

/// With parallel.device auto, CPUs do what the engine cannot do on GPUs, but for cuDNN's attention. All ranks
/// turn to CPUs, or none: not where some rank has failed by anything else.
Status Trainer::make_engine(const program::Job& job, weftComm_t world) {
  Result<std::unique_ptr<engine::Engine>> engine =
      engine::Engine::create(job, *groups_,
                             {.threads = threads_,
                              .gpu = devices_.gpu,
                              .attention = engine::attention_from(config_.parallel.attention)},
                             config_.parallel.offload_folder);
  const Status made = groups_->agree(engine.status());
  if (!made.ok() && devices_.gpu >= 0 && config_.parallel.attention != "cudnn" &&
      device::wanted_from(config_.parallel.device) == device::Wanted::automatic) {
    const bool failed = !engine.ok() && engine.status().code() != Code::unsupported;
    const Result<bool> some_failed = engine::any_rank(*groups_, failed);
    LOOM_TRY(some_failed.status());
    if (*some_failed) return made;
    notes_.push_back("all ranks compute on CPUs: " + made.message());
    devices_ = {};
    memory_.watch(resident_bytes);
    LOOM_TRY(note_instructions(config_, world, notes_));
    LOOM_TRY(make_groups(job, world, devices_.gpu, groups_));
    program::Job on_cpus = job;
    on_cpus.table = {};
    return make_engine(on_cpus, world);
  }
  LOOM_TRY(made);
  engine_ = engine.take();
  if (const std::string& why_not = engine_->attention().why_not; !why_not.empty()) notes_.push_back(why_not);
  return {};
}

Result<std::unique_ptr<Trainer>> Trainer::create(const Config& config, weftComm_t world,
                                                 Measuring measuring) {
  std::unique_ptr<Trainer> trainer(new Trainer(config));
  const Result<model::ModelSpec> spec = trainer->open();
  LOOM_TRY(engine::agree(world, spec.status()));
  LOOM_TRY(same_config(config, world));
  LOOM_TRY(trainer->find_devices(world));
  LOOM_TRY(same_data(config.data.folder, trainer->data_.key(), world));
  int ranks = 1;
  if (world != nullptr) LOOM_TRY_WEFT(weftCommCount(world, &ranks));
  LOOM_TRY(trainer->measure_units(*spec, ranks, world));
  const Result<program::Job> job =
      make_job(config, *spec, ranks, trainer->findings_.profiles, trainer->devices_);
  LOOM_TRY(job.status());
  LOOM_TRY(make_groups(*job, world, trainer->devices_.gpu, trainer->groups_));
  trainer->spec_ = job->spec;
  Result<RunFolder> folder = RunFolder::open(config.run, *trainer->groups_, trainer->notes_);
  LOOM_TRY(folder.status());
  trainer->folder_.emplace(folder.take());
  LOOM_TRY(trainer->find_beginning());
  // Before the arena is there: what measuring takes was beside it at the run's beginning, above the plan.
  const bool measures = measuring == Measuring::machine && trainer->devices_.gpu < 0 &&
                        trainer->start_.beginning.step < config.run.steps;
  if (measures) LOOM_TRY(trainer->measure_machine(*job));
  LOOM_TRY(trainer->make_engine(*job, world));
  trainer->config_ = resolved(config, *spec, *job, trainer->threads_);
  trainer->config_.parallel.device = trainer->devices_.gpu >= 0 ? "cuda" : "cpu";
  trainer->config_.parallel.attention = trainer->engine_->attention().library.empty() ? "own" : "cudnn";
  LOOM_TRY(trainer->begin());
  return trainer;
}

/// The same on all ranks.
Status Trainer::find_beginning() {
  Result<std::optional<StoredState>> state = state_to_begin_with();
  LOOM_TRY(groups_->agree(state.status()));
  start_.state = state.take();
  return same_beginning(start_.beginning, *groups_);
}

Status Trainer::begin() {
  Status begun;
  if (start_.state.has_value()) {
    // Each rank reads its part of the files for that: what loading reads of them next is in memory then.
    const Status whole = format::check_hashes(start_.state->manifest, start_.beginning.checkpoint,
                                              groups_->rank(), groups_->ranks());
    LOOM_TRY(groups_->agree(folder_->with_one_before(whole, start_.beginning)));
    begun = folder_->with_one_before(go_on(*start_.state).in(start_.beginning.checkpoint), start_.beginning);
    start_.state.reset();
    start_.beginning.manifest.clear();
  } else {
    begun = begin_anew();
  }
  LOOM_TRY(groups_->agree(begun));
  return memory_.look(Moment::state, *groups_);
}

Status Trainer::begin_anew() {
  if (config_.model.from.empty()) return engine_->initialize(static_cast<uint64_t>(config_.run.seed));
  const Result<model::ModelFile> file = model::open_model_file(config_.model.from, spec_);
  LOOM_TRY(file.status());
  if (!start_.other_classes.empty()) notes_.push_back(start_.other_classes);
  for (const std::string& note : file->notes) notes_.push_back(note);
  LOOM_TRY(engine_->load_model(file->tensors));
  return engine_->check_state().in(config_.model.from);
}

Status Trainer::go_on(const StoredState& state) {
  const int64_t step = start_.beginning.step;
  LOOM_TRY(place_in_data(state.manifest, step, folder_->is_own(start_.beginning.checkpoint)));
  LOOM_TRY(engine_->load_state(state.readers));
  if (state.manifest.contains(kLossScale)) LOOM_TRY(loss_scaler_.restore(state.manifest[kLossScale], step));
  progress_.next_step = step;
  if (folder_->is_own(start_.beginning.checkpoint)) progress_.saved_step = step;
  if (state.manifest.contains("model")) take_token_ids(state.manifest["model"], origin_);
  if (is_over())
    notes_.push_back(fmt::format(
        "nothing to do: the checkpoint is of step {}, run.steps is {}; a larger run.steps goes on", step,
        config_.run.steps));
  const int64_t applied = step - loss_scaler_.skipped();
  if (folder_->is_own(start_.beginning.checkpoint) && !is_over() && state.manifest.contains("config")) {
    const Result<Config> before = stored_config(state.manifest["config"]);
    LOOM_TRY(before.status().in("config"));
    if (const std::string note = rate_change(*before, config_, applied); !note.empty())
      notes_.push_back(note);
  }
  progress_.moments_begin = applied;
  if (!engine::has_slots(state.readers)) return {};
  const Result<int64_t> begin = format::value_or<int64_t>(state.manifest, kMomentsBegin, 0);
  LOOM_TRY(begin.status());
  if (*begin < 0 || *begin > applied)
    return fail(Code::invalid_data, "{} is {}, must be from 0 to the {} steps that were applied",
                kMomentsBegin, *begin, applied);
  progress_.moments_begin = *begin;
  return {};
}

Result<StepRecord> Trainer::step() {
  const auto begin = Clock::now();
  LOOM_TRY(read_batch(*engine_, *groups_, *data_.train, progress_.next_step, config_.data.global_batch));
  const double data_seconds = seconds_since(begin);
  engine::StepSettings settings =
      settings_of_step(config_, loss_scaler_, progress_.next_step, progress_.moments_begin);
  settings.stop = &stop_;
  settings.targets = static_cast<double>(
      data_.train->targets(static_cast<uint64_t>(progress_.next_step), config_.data.global_batch));
  const Result<engine::StepResult> result = engine_->step(settings);
  if (!result.ok()) return folder_->with_way_back(result.status());
  LOOM_TRY(folder_->with_way_back(loss_scaler_.update(progress_.next_step, result->loss, result->skipped)));
  last_ = *result;
  LOOM_TRY(memory_.look(Moment::step, *groups_));
  const program::Job& job = engine_->job();
  const double seconds = data_seconds + result->seconds;
  const bool timed = devices_.gpu < 0;  // of a GPU the timeline only tells when work was queued
  Breakdown breakdown;
  breakdown.step_us = seconds * 1e6;
  breakdown.waiting_us = -1;
  if (timed)
    breakdown = breakdown_of(engine_->training(), engine_->timeline(), seconds * 1e6, false,
                             result->met_seconds * 1e6);
  breakdown.data_us = data_seconds * 1e6;
  if (job.pipeline_degree > 1 && timed) breakdown.bubble = result->bubble;
  findings_.measured.add(breakdown);
  StepRecord record;
  record.step = progress_.next_step++;
  record.loss = result->loss;
  record.gradient_norm = result->gradient_norm;
  record.learning_rate = settings.optimizer.learning_rate;
  record.loss_scale = loss_scaler_.scales() ? settings.loss_scale : 0;
  record.skipped = result->skipped;
  record.skipped_steps = loss_scaler_.skipped();
  record.seconds = seconds;
  record.data_seconds = data_seconds;
  record.seconds_left = static_cast<double>(config_.run.steps - progress_.next_step) * seconds;
  record.memory_bytes = std::max<int64_t>(0, memory_.most_bytes());
  record.exposed = timed ? result->exposed_seconds / seconds : NAN;
  record.bubble = timed ? result->bubble : NAN;
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
  findings_.machine = machine.take();
  return {};
}

Status Trainer::gather_trace() {
  RankTotals own = totals_of(engine_->training(), engine_->timeline(), last_);
  own.peak_flops = findings_.machine ? findings_.machine->flops : 0;
  own.planned_bytes = static_cast<double>(engine_->memory().bytes);
  own.scratch_bytes = static_cast<double>(engine_->memory_bytes() - engine_->arena_bytes());
  own.process_bytes = static_cast<double>(memory_.own_bytes());
  Result<Trace> trace =
      train::gather_trace(*engine_, *groups_, own, static_cast<int>(config_.run.trace_ranks));
  LOOM_TRY(trace.status());
  if (groups_->rank() != 0) return {};
  findings_.trace = trace.take();
  findings_.trace->step = progress_.next_step - 1;
  return {};
}

/// If batches do not divide the set, the last batch has rows beyond it. Their targets do not count.
Result<std::optional<double>> Trainer::validate() {
  if (!data_.validation) return std::optional<double>();
  const auto all = static_cast<int64_t>(data_.validation->windows());
  const int64_t batch = config_.data.global_batch;
  const int64_t batches = std::min((all - 1) / batch + 1, config_.run.evaluation_steps);
  const int64_t sequences = std::min(all, batches * batch);
  double sum = 0, counted = 0;
  int64_t right = 0;
  for (int64_t step = 0; step < batches; ++step) {
    LOOM_TRY(read_batch(*engine_, *groups_, *data_.validation, step, all - step * batch));
    const auto targets = static_cast<double>(
        data_.validation->targets(static_cast<uint64_t>(step), std::min(batch, all - step * batch)));
    const Result<double> loss = engine_->evaluate(targets);
    LOOM_TRY(loss.status());
    sum += *loss * targets;
    counted += targets;
    right += engine_->right();
    const Result<bool> asked = engine::any_rank(*groups_, stop_ && stop_());
    LOOM_TRY(asked.status());
    asked_ = *asked;
    if (asked_) return std::optional<double>();
  }
  if (spec_.objective().metric == model::Metric::accuracy)
    findings_.validation_accuracy = static_cast<double>(right) / static_cast<double>(sequences);
  LOOM_TRY(memory_.look(Moment::evaluation, *groups_));
  return std::optional<double>(sum / counted);
}

/// What a checkpoint's manifest has beside files and layouts of the state.
format::Json Trainer::manifest() const {
  const int64_t batch = config_.data.global_batch;
  const Position position{progress_.from_sequence + (progress_.next_step - progress_.from_step) * batch,
                          batch, config_.data.sequence_length, config_.run.seed, dataset_key(*data_.train)};
  format::Json manifest = {{"config", to_json(config_)},
                           {"model", model_config(spec_, origin_, data_, config_)},
                           {"tokenizer", text::tokenizer_key(*data_.tokenizer)},
                           {"data", position.to_json()}};
  if (loss_scaler_.scales() || loss_scaler_.skipped() > 0) manifest[kLossScale] = loss_scaler_.to_json();
  if (progress_.moments_begin > 0 && config_.run.checkpoint_optimizer)
    manifest[kMomentsBegin] = progress_.moments_begin;
  return manifest;
}

Status Trainer::save_checkpoint() {
  if (progress_.saved_step == progress_.next_step) return {};
  // Before anything is written: a state that nobody can go on with must not push out one that somebody can.
  LOOM_TRY(folder_->with_way_back(groups_->agree(engine_->check_state())));
  LOOM_TRY(write_checkpoint(
      *engine_, *groups_, *folder_, static_cast<uint64_t>(progress_.next_step),
      config_.run.checkpoint_optimizer, [&] { return manifest(); },
      [&] { return memory_.look(Moment::checkpoint, *groups_); }));
  progress_.saved_step = progress_.next_step;
  return {};
}

Status Trainer::save_model() { return save_model_in(join_path(config_.run.out, "model")); }

Status Trainer::save_model_of_step() {
  LOOM_TRY(folder_->with_way_back(groups_->agree(engine_->check_state())));
  return save_model_in(
      join_path(join_path(config_.run.out, "models"), fmt::format("step-{:08}", progress_.next_step)));
}

Status Trainer::save_model_in(const std::string& folder) {
  Status made;
  if (groups_->rank() == 0) {
    made = make_folders(folder);
    if (made.ok()) made = put_tokenizer(*data_.tokenizer, {config_.model.from}, spec_, folder).status();
    if (made.ok()) made = copy_companions(config_.model.from, spec_, folder);
  }
  LOOM_TRY(groups_->agree(made));
  LOOM_TRY(engine_->save_model(folder, saved_dtype(config_, origin_)));
  LOOM_TRY(memory_.look(Moment::model, *groups_));
  // What the engine knows nothing of.
  return groups_->agree(groups_->rank() == 0
                            ? format::write_config(folder, model_config(spec_, origin_, data_, config_))
                            : Status());
}

Status Trainer::run(const std::function<void(const StepRecord&)>& tell, const std::function<bool()>& stop) {
  stop_ = stop;
  const auto due = [&](int64_t every) {
    return progress_.next_step == config_.run.steps || (every > 0 && progress_.next_step % every == 0);
  };
  const int64_t traced = config_.run.trace_step > 0 ? config_.run.trace_step : config_.run.steps;
  asked_ = false;
  while (!is_over() && !asked_) {
    Result<StepRecord> record = step();
    LOOM_TRY(record.status());
    asked_ = last_.stop;
    if (due(config_.run.evaluate_every)) LOOM_TRY(validate_after(*record));
    record->seconds_left = pace_.seconds_left(*record, config_.run.steps);
    record->memory_bytes = std::max(record->memory_bytes, memory_.most_bytes());
    tell(*record);
    // A run that is stopped has little time, which the checkpoint needs.
    if (asked_) LOOM_TRY(save_checkpoint());
    const int64_t models = config_.run.save_model_every;
    if (models > 0 && progress_.next_step % models == 0) {
      LOOM_TRY(save_model_of_step());
      const Result<bool> asked = engine::any_rank(*groups_, asked_ || (stop_ && stop_()));
      LOOM_TRY(asked.status());
      asked_ = *asked;
    }
    // Otherwise last: who goes on from it does nothing of its step again.
    if (asked_ || due(config_.run.checkpoint_every)) LOOM_TRY(save_checkpoint());
    // With the memory that all of these were seen to take.
    if (config_.run.trace_ranks > 0 && progress_.next_step == traced && devices_.gpu < 0)
      LOOM_TRY(gather_trace());
  }
  stop_ = {};
  if (stopped())
    notes_.push_back(fmt::format(
        "stopped after step {} of {}, as it was asked to: the same run.out goes on from its checkpoint",
        progress_.next_step, config_.run.steps));
  return {};
}

/// A run that is asked to stop leaves it out.
Status Trainer::validate_after(StepRecord& record) {
  if (!data_.validation) return {};
  if (!asked_) {
    const Result<std::optional<double>> loss = validate();
    LOOM_TRY(loss.status());
    record.validation_loss = *loss;
    if (*loss) record.validation_accuracy = findings_.validation_accuracy;
  }
  if (asked_)
    notes_.push_back(fmt::format("the validation after step {} is left out: the run was asked to stop",
                                 progress_.next_step));
  return {};
}

}  // namespace loom::train
