// What a run prints.
#include <cstdio>

#include "loom/observer.h"
#include "loom/training.h"
#include "program/schedule.h"
#include "train/lines_above_bar.h"
#include "train/report.h"

namespace loom {
namespace {

/// The keys of the config that differ from their defaults, with those that Loom filled in; a line for each
/// section.
std::string not_default(const train::Config& config) {
  const format::Json all = train::to_json(config), defaults = train::to_json({});
  std::string lines;
  for (const auto& [section, keys] : all.items()) {
    std::string line;
    for (const auto& [key, value] : keys.items())
      if (value != defaults[section][key])
        line += fmt::format(" {}.{}={}", section, key,
                            value.is_string() ? value.get<std::string>() : value.dump());
    if (!line.empty()) lines += line.substr(1) + '\n';
  }
  return lines;
}

class Console final : public Observer {
 public:
  Status begin(const Training& run) override {
    if (run.rank() != 0) return {};
    speaks_ = true;
    const train::Trainer& trainer = run.trainer();
    peak_ = trainer.machine() ? trainer.machine()->flops : 0;
    fmt::print("{}{}\n", not_default(trainer.config()), job(trainer));
    if (trainer.engine().job().offload && peak_ > 0)
      fmt::print("activations go to a file and back at {:.2f} GB/s, measured\n",
                 trainer.machine()->tier_bandwidth / 1e9);
    const train::Devices& devices = trainer.devices();
    fmt::print("computes on {}{}\n", devices.description,
               devices.reason.empty() ? "" : ", for " + devices.reason);
    if (const std::string& library = trainer.engine().attention().library; !library.empty())
      fmt::print("{} computes attention\n", library);
    if (devices.gpu >= 0)
      fmt::print("a GPU's rates are not measured, so nothing is predicted of this run but its memory\n");
    if (run.next_step() > 0) fmt::print("resumed after step {}\n", run.next_step());
    std::fflush(stdout);
    return {};
  }

  void note(const Training&, const std::string& sentence) override {
    if (!speaks_) return;
    bar_.erase();
    fmt::print("note: {}\n", sentence);
    std::fflush(stdout);
  }

  void step(const Training& run, const StepRecord& record) override {
    if (!speaks_) return;
    bar_.line(train::log_line(record, run.trainer(), peak_), record.step + 1, run.steps());
    ++steps_;
  }

  Status end(const Training& run, const Status&) override {
    if (!speaks_) return {};
    bar_.erase();
    if (steps_ > 0 && (run.trainer().is_over() || run.stopped()))
      fmt::print("\n{}\n", train::to_text(run.comparison()));
    return {};
  }

 private:
  /// The job in a sentence.
  std::string job(const train::Trainer& trainer) const {
    const auto counted = [](int64_t number, const std::string& one, const char* many = "s") {
      return fmt::format("{} {}{}", number, one, number == 1 ? "" : many);
    };
    const program::Job& job = trainer.engine().job();
    const auto units = trainer.engine().units();
    std::string divided;
    if (job.pipeline_degree > 1)
      divided = fmt::format(", {} stages ({})", job.pipeline_degree, program::schedule_name(job.schedule));
    if (job.tensor_degree > 1)
      divided += fmt::format(", {} tensor ranks{}", job.tensor_degree,
                             job.divides_rows ? ", rows divided" : ", rows whole");
    std::string measured;
    if (peak_ > 0)
      measured = fmt::format(", {:.1f} GFLOP/s of {} matrix products measured", peak_ / 1e9,
                             trainer.config().parallel.precision);
    return fmt::format(
        "{} parameters in {} units, {}; {} on {}, sharded over {}{}; {} of {} x {} tokens a rank; {} a "
        "rank{}; arena {} MiB",
        model::parameter_count(units), units.size(), trainer.config().parallel.precision,
        counted(job.world, "rank"), counted(trainer.groups().nodes(), "node"), job.degree, divided,
        counted(job.microbatches, "microbatch", "es"), job.batch, job.tokens,
        counted(trainer.threads(), "thread"), measured, trainer.engine().memory().bytes >> 20);
  }

  bool speaks_ = false;  // rank 0's
  double peak_ = 0;      // that was measured; 0: it was not
  int64_t steps_ = 0;
  train::LinesAboveBar bar_;
};

}  // namespace

std::unique_ptr<Observer> console() { return std::make_unique<Console>(); }

}  // namespace loom
