// loom train.
#include <fmt/format.h>
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/file.h"
#include "loom/commands.h"
#include "loom/lines_above_bar.h"
#include "program/schedule.h"
#include "train/report.h"
#include "train/run_log.h"

namespace loom::command {
namespace {

/// The job's communicator, destroyed at the end.
class World {
 public:
  static Result<World> join() {
    World world;
    if (weftCommInitEnv(&world.comm_) != weftSuccess)
      return fail(Code::communication_error, "{}", weftGetLastError(nullptr));
    return world;
  }
  World(World&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  ~World() {
    if (comm_ != nullptr) (void)weftCommDestroy(comm_);
  }
  weftComm_t comm() const { return comm_; }

 private:
  World() = default;
  weftComm_t comm_ = nullptr;
};

/// SIGTERM asks a run to end: launchers send it before a job's time is over, or its machines go to another,
/// and kill what does not end by itself in time. From its first step on a run ends by itself, and does not
/// heed a second one: what is left is soon done, and launchers that see one rank end send it to the others.
/// SIGINT, which people send, does the same; a second one is death, for who cannot wait.
///
/// A thread of its own waits for them, and no other is interrupted: under a handler that ran on a thread that
/// was inside dnnl_sgemm, oneDNN 2.6.3 wrote beyond its buffers.
class Termination {
 public:
  /// Before there are other threads, which have the signals blocked, as this one has from now on.
  static void wait_for_signals() {
    sigset_t awaited;
    sigemptyset(&awaited);
    for (const int signal : {SIGTERM, SIGINT}) {
      struct sigaction now;
      if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&awaited, signal);
    }
    pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
    std::thread([awaited] {
      for (int came = 0, interrupts = 0; sigwait(&awaited, &came) == 0;) {
        if (!heeded_ || (came == SIGINT && ++interrupts > 1)) die(came);
        int none = 0;
        signal_.compare_exchange_strong(none, came);
      }
    }).detach();
  }
  /// Until now a signal ends the process.
  static void heed() { heeded_ = true; }
  static bool asked() { return signal_ != 0; }
  /// 128 + the signal that came first; of a rank that was told by others, SIGTERM.
  static int code() { return 128 + (asked() ? signal_.load() : SIGTERM); }

 private:
  static void die(int came) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, came);
    std::signal(came, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    (void)raise(came);
  }
  static inline std::atomic<bool> heeded_ = false;
  static inline std::atomic<int> signal_ = 0;
};

/// What rank 0 keeps of a run and leaves in its folder; other ranks keep nothing.
class Chronicle {
 public:
  /// What an interrupted run has told is read back.
  static Result<Chronicle> open(const train::Trainer& trainer) {
    Chronicle chronicle(trainer);
    if (trainer.groups().rank() != 0) return chronicle;
    const std::string& out = trainer.config().run.out;
    LOOM_TRY(make_folders(out));
    LOOM_TRY(format::write_json(join_path(out, "config.json"), train::to_json(trainer.config())));
    Result<train::RunLog> log = train::RunLog::open(join_path(out, "log.jsonl"), trainer.next_step());
    LOOM_TRY(log.status());
    chronicle.records_ = log->earlier();
    chronicle.log_.emplace(log.take());
    return chronicle;
  }

  void add(const train::StepRecord& record) {
    records_.push_back(record);
    line(train::json_line(record));
    ++steps_;
  }

  /// Those that the trainer has had since the last call; they are printed.
  void add_notes() {
    for (; notes_ < trainer_.notes().size(); ++notes_) {
      const std::string& note = trainer_.notes()[notes_];
      fmt::print("note: {}\n", note);
      line(train::note_line(note));
    }
    std::fflush(stdout);
  }

  /// The sums of a run that is over.
  void conclude() {
    if (steps_ == 0) return;
    fmt::print("\n{}\n", train::to_text(comparison()));
    if (trainer_.trace()) line(train::trace_line(trainer_, comparison()));
    line(train::json_line(comparison()));
  }

  /// For who looks at a run that goes on, or at one that was killed. Like a line of the log, it is not worth
  /// the run.
  void report_so_far() {
    const Status written = report({});
    if (!written.ok())
      fmt::print(stderr, "loom: warning: {}; the run goes on without a report of step {}\n",
                 written.message(), trainer_.next_step());
  }

  /// Of a run that was over before, the report stays that has what only the run itself could tell; a failure
  /// in it is mended.
  Status report(const Status& ended) {
    const std::string path = join_path(trainer_.config().run.out, "report.html");
    if (!ended.ok() || steps_ > 0 || !is_file(path))
      return write_file(path, train::html_report(records_, trainer_, comparison(), ended));
    const Result<std::string> page = read_file(path);
    LOOM_TRY(page.status());
    const std::string mended = train::without_failure(*page);
    return mended == *page ? Status() : write_file(path, mended);
  }

 private:
  explicit Chronicle(const train::Trainer& trainer) : trainer_(trainer) {}

  /// As of now; the forecast is made once.
  const train::Comparison& comparison() {
    if (comparison_) train::measure_again(trainer_, *comparison_);
    else comparison_ = train::compare(trainer_, trainer_.machine());
    return *comparison_;
  }

  /// A log that cannot be written is no reason to end a run, but one to say so.
  void line(const std::string& text) {
    const Status written = log_->line(text);
    if (!written.ok())
      fmt::print(stderr, "loom: warning: {}; the run goes on, and such lines are lost\n", written.message());
  }

  const train::Trainer& trainer_;
  std::optional<train::RunLog> log_;
  std::vector<train::StepRecord> records_;
  std::optional<train::Comparison> comparison_;
  int64_t steps_ = 0;  // of this process
  size_t notes_ = 0;   // that were told
};

/// What rank 0 says before the first step; `peak` is 0 where there is none, and nothing was measured.
void introduce(const train::Trainer& trainer, double peak) {
  const program::Job& job = trainer.engine().job();
  fmt::print("{}\n", train::to_json(trainer.config()).dump(2));
  std::string divided;
  if (job.pipeline_degree > 1)
    divided = fmt::format(", {} stages ({})", job.pipeline_degree, program::schedule_name(job.schedule));
  if (job.tensor_degree > 1)
    divided += fmt::format(", {} tensor ranks{}", job.tensor_degree,
                           job.divides_rows ? ", rows divided" : ", rows whole");
  std::string measured;
  if (peak > 0)
    measured = fmt::format(", {:.1f} GFLOP/s of {} matrix products measured", peak / 1e9,
                           trainer.config().parallel.precision);
  fmt::print(
      "{} parameters in {} units, {}; {} on {}, sharded over {}{}; {} of {} x {} tokens a rank; {} a rank{}; "
      "arena {} MiB\n",
      model::parameter_count(trainer.engine().units()), trainer.engine().units().size(),
      trainer.config().parallel.precision, counted(job.world, "rank"),
      counted(trainer.groups().nodes(), "node"), job.degree, divided,
      counted(job.microbatches, "microbatch", "microbatches"), job.batch, job.tokens,
      counted(trainer.threads(), "thread"), measured, trainer.engine().memory().bytes >> 20);
  if (job.offload && peak > 0)
    fmt::print("activations go to a file and back at {:.2f} GB/s, measured\n",
               trainer.machine()->tier_bandwidth / 1e9);
  const train::Devices& devices = trainer.devices();
  fmt::print("computes on {}{}\n", devices.description,
             devices.reason.empty() ? "" : ", for " + devices.reason);
  if (devices.gpu >= 0)
    fmt::print("a GPU's rates are not measured, so nothing is predicted of this run but its memory\n");
  if (trainer.next_step() > 0) fmt::print("resumed after step {}\n", trainer.next_step());
}

}  // namespace

Result<int> train(const TrainOptions& options) {
  const Result<format::Json> json = format::read_json(options.config);
  LOOM_TRY(json.status());
  const Result<train::Config> config = train::parse_config(*json, options.overrides);
  LOOM_TRY(config.status().in(options.config));
  Termination::wait_for_signals();
  Result<World> world = World::join();
  LOOM_TRY(world.status());
  Result<std::unique_ptr<train::Trainer>> made =
      train::Trainer::create(*config, world->comm(), train::Measuring::machine);
  LOOM_TRY(made.status());
  train::Trainer& trainer = **made;
  const bool speaks = trainer.groups().rank() == 0;
  Result<Chronicle> chronicle = Chronicle::open(trainer);
  LOOM_TRY(trainer.groups().agree(chronicle.status()));
  const double peak = trainer.machine() ? trainer.machine()->flops : 0;
  if (speaks) {
    introduce(trainer, peak);
    chronicle->add_notes();
  }
  std::optional<LinesAboveBar> bar(std::in_place, speaks);
  Termination::heed();
  Status ended = trainer.run(
      [&](const train::StepRecord& record) {
        if (!speaks) return;
        bar->line(train::log_line(record, trainer, peak), record.step + 1, config->run.steps);
        chronicle->add(record);
        const int64_t every = config->run.checkpoint_every;
        if (every > 0 && trainer.next_step() % every == 0 && !trainer.is_over()) chronicle->report_so_far();
      },
      Termination::asked);
  bar.reset();
  const bool complete = ended.ok();
  // Of a run that has gone further than it is to now, the model there is of that step.
  const bool saves = complete && trainer.next_step() == config->run.steps;
  if (saves) ended = trainer.save_model();
  Status reported;
  if (speaks) {  // what was is worth a look, whatever ended it; the other ranks may be gone
    chronicle->add_notes();
    if (complete) chronicle->conclude();
    reported = chronicle->report(ended);
  }
  LOOM_TRY(ended);
  const std::string& out = config->run.out;
  if (speaks)
    fmt::print("{}report in {}/report.html\n", saves ? fmt::format("model in {}/model, ", out) : "", out);
  LOOM_TRY(trainer.groups().agree(reported));
  return trainer.stopped() ? Termination::code() : 0;
}

}  // namespace loom::command
