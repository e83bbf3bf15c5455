// What a run leaves in its folder beside checkpoints and the model.
#include "base/file.h"
#include "loom/observer.h"
#include "loom/training.h"
#include "train/report.h"
#include "train/run_log.h"

namespace loom {
namespace {

class RunFiles final : public Observer {
 public:
  /// What an interrupted run has told is read back.
  Status begin(const Training& run) override {
    if (run.rank() != 0) return {};
    const train::Trainer& trainer = run.trainer();
    const std::string& out = trainer.config().run.out;
    LOOM_TRY(make_folders(out));
    // The log first: beside one, a config.json is a run's, and no other.
    Result<train::RunLog> log = train::RunLog::open(join_path(out, "log.jsonl"), run.next_step());
    LOOM_TRY(log.status());
    LOOM_TRY(format::write_json(join_path(out, "config.json"), train::to_json(trainer.config())));
    records_ = log->earlier();
    log_.emplace(log.take());
    return {};
  }

  void note(const Training&, const std::string& sentence) override { line(train::note_line(sentence)); }

  void step(const Training& run, const StepRecord& record) override {
    if (!log_) return;
    records_.push_back(record);
    line(train::json_line(record));
    ++steps_;
    const train::Trainer& trainer = run.trainer();
    const int64_t every = trainer.config().run.checkpoint_every;
    if (every == 0 || run.next_step() % every != 0 || trainer.is_over()) return;
    // For readers of a run that goes on, or that was killed.
    const Status written = write_report(run, {});
    if (!written.ok())
      fmt::print(stderr, "loom: warning: {}; the run goes on without a report of step {}\n",
                 written.message(), run.next_step());
  }

  /// Of a run that was over before, the report stays that has what only the run itself could tell; a failure
  /// in it is mended.
  Status end(const Training& run, const Status& ended) override {
    if (!log_) return {};
    // A run whose model could not be saved has its sums all the same.
    if (steps_ > 0 && (run.trainer().is_over() || run.stopped())) {
      if (run.trainer().trace()) line(train::trace_line(run.trainer(), run.comparison()));
      line(train::json_line(run.comparison()));
    }
    const std::string path = report_of(run);
    if (!ended.ok() || steps_ > 0 || !is_file(path)) return write_report(run, ended);
    const Result<std::string> page = read_file(path);
    LOOM_TRY(page.status());
    const std::string mended = train::without_failure(*page);
    return mended == *page ? Status() : write_file(path, mended);
  }

 private:
  static std::string report_of(const Training& run) {
    return join_path(run.trainer().config().run.out, "report.html");
  }
  Status write_report(const Training& run, const Status& ended) const {
    return write_file(report_of(run), train::html_report(records_, run.trainer(), run.comparison(), ended));
  }
  /// A log that cannot be written is no reason to end a run, but one to say so.
  void line(const std::string& text) {
    if (!log_) return;
    const Status written = log_->line(text);
    if (!written.ok())
      fmt::print(stderr, "loom: warning: {}; the run goes on, and such lines are lost\n", written.message());
  }

  std::optional<train::RunLog> log_;  // on rank 0
  std::vector<StepRecord> records_;
  int64_t steps_ = 0;  // of this process
};

}  // namespace

std::unique_ptr<Observer> run_files() { return std::make_unique<RunFiles>(); }

}  // namespace loom
