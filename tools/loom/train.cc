// loom train.
#include <fmt/format.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/file.h"
#include "loom/commands.h"
#include "loom/lines_above_bar.h"
#include "program/schedule.h"
#include "train/report.h"

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

class Log {
 public:
  explicit Log(const std::string& path, bool append) : file_(std::fopen(path.c_str(), append ? "a" : "w")) {}
  ~Log() {
    if (file_ != nullptr) std::fclose(file_);
  }
  Log(const Log&) = delete;
  void line(const std::string& text) {
    if (file_ == nullptr) return;
    fmt::print(file_, "{}\n", text);
    std::fflush(file_);
  }

 private:
  std::FILE* file_;
};

/// What rank 0 says before the first step.
void introduce(const train::Trainer& trainer, double peak) {
  const program::Job& job = trainer.engine().job();
  fmt::print("{}\n", train::to_json(trainer.config()).dump(2));
  std::string divided;
  if (job.pipeline_degree > 1)
    divided = fmt::format(", {} stages ({})", job.pipeline_degree, program::schedule_name(job.schedule));
  if (job.tensor_degree > 1)
    divided += fmt::format(", {} tensor ranks{}", job.tensor_degree,
                           job.divides_rows ? ", rows divided" : ", rows whole");
  fmt::print(
      "{} parameters in {} units, {}; {} ranks on {} nodes, sharded over {}{}; {} microbatches of {} x {} "
      "tokens a rank; {} threads a rank, {:.1f} GFLOP/s of matrix products measured; arena {} MiB\n",
      model::parameter_count(trainer.engine().units()), trainer.engine().units().size(),
      trainer.config().parallel.precision, job.world, trainer.groups().nodes(), job.degree, divided,
      job.microbatches, job.batch, job.tokens, trainer.threads(), peak / 1e9,
      trainer.engine().memory().bytes >> 20);
  if (job.offload)
    fmt::print("activations go to a file and back at {:.2f} GB/s, measured\n",
               trainer.machine().tier_bandwidth / 1e9);
  if (trainer.next_step() > 0) fmt::print("resumed after step {}\n", trainer.next_step());
  std::fflush(stdout);
}

}  // namespace

Status train(const TrainOptions& options) {
  const Result<format::Json> json = format::read_json(options.config);
  LOOM_TRY(json.status());
  const Result<train::Config> config = train::parse_config(*json, options.overrides);
  LOOM_TRY(config.status().in(options.config));
  Result<World> world = World::join();
  LOOM_TRY(world.status());
  Result<std::unique_ptr<train::Trainer>> made = train::Trainer::create(*config, world->comm());
  LOOM_TRY(made.status());
  train::Trainer& trainer = **made;
  const bool speaks = trainer.groups().rank() == 0;
  const std::string& out = config->run.out;
  Status ready;
  if (speaks) {
    ready = make_folders(out);
    if (ready.ok())
      ready = format::write_json(join_path(out, "config.json"), train::to_json(trainer.config()));
  }
  LOOM_TRY(trainer.groups().agree(ready));
  LOOM_TRY(trainer.measure_machine());
  const double peak = trainer.machine().flops;
  if (speaks) introduce(trainer, peak);
  std::vector<train::StepRecord> records;
  records.reserve(static_cast<size_t>(std::min<int64_t>(config->run.steps, 1 << 16)));
  Log log(speaks ? join_path(out, "log.jsonl") : "/dev/null", trainer.next_step() > 0);
  std::optional<LinesAboveBar> bar(std::in_place, speaks);
  LOOM_TRY(trainer.run([&](const train::StepRecord& record) {
    if (!speaks) return;
    records.push_back(record);
    bar->line(train::log_line(record, trainer, peak), record.step + 1, config->run.steps);
    log.line(train::json_line(record, trainer.engine().memory_bytes()));
  }));
  bar.reset();
  LOOM_TRY(trainer.save_model());
  Status reported;
  if (speaks) {
    const train::Comparison comparison = train::compare(trainer, trainer.machine());
    if (!records.empty()) {
      fmt::print("\n{}\n", train::to_text(comparison));
      if (trainer.trace()) log.line(train::trace_line(trainer, comparison));
      log.line(train::json_line(comparison));
    }
    reported = write_file(join_path(out, "report.html"), train::html_report(records, trainer, comparison));
    fmt::print("model in {0}/model, report in {0}/report.html\n", out);
  }
  return trainer.groups().agree(reported);
}

}  // namespace loom::command
