// Measures the bubble of a pipeline, and the time of a step outside of computing, and compares them with the
// formula and the simulator, one line a schedule. One rank a stage, or tensor and data ranks besides.
//
// The programs, the executor and its lanes, Weft's transfers, the waiting and the clock are real. Computing
// is not: instead of computing a unit, the rank sleeps for the unit's time, which is given or was measured
// before. So any number of stages "compute" side by side on any number of cores. It does not measure the
// speed of a model.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <weft/weft.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>

#include "engine/engine.h"
#include "engine/profile.h"
#include "engine/weft_call.h"
#include "program/generate.h"
#include "program/schedule.h"
#include "train/machine.h"

namespace loom {
namespace {

struct Options {
  std::vector<std::string> schedules = {"simple", "1f1b", "interleaved"};
  int microbatches = 8, virtual_stages = 2, repeats = 7;
  int stages = 0, tensor = 1, sharded = 1, active = 0;
  int64_t layers = 16, width = 256, tokens = 256, batch = 1, vocabulary = 1024;
  double block_ms = 0, embedding_ms = 0, head_ms = 0;
  std::vector<int> first_units;
  std::string timelines;
};

void declare(CLI::App& app, Options& o) {
  app.add_option("--schedules", o.schedules, "Schedules")->delimiter(',')->capture_default_str();
  app.add_option("-m,--microbatches", o.microbatches, "Of a step")->capture_default_str();
  app.add_option("--stages", o.stages, "Stages; 0: no data ranks");
  app.add_option("--tensor", o.tensor, "Tensor ranks of a stage")->capture_default_str();
  app.add_option("--sharded", o.sharded, "Data ranks that share one copy of the state")
      ->capture_default_str();
  app.add_option("--active", o.active,
                 "Most microbatches that a stage has begun and not finished; 0: what the schedule wants. Not "
                 "interleaved")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--virtual-stages", o.virtual_stages, "Of a rank, interleaved")->capture_default_str();
  app.add_option("--repeats", o.repeats, "Steps that count; one before them does not")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", o.layers, "Blocks")->capture_default_str();
  app.add_option("--width", o.width, "Of the model")->capture_default_str();
  app.add_option("--tokens", o.tokens, "Of a sequence")->capture_default_str();
  app.add_option("--batch", o.batch, "Sequences of a microbatch")->capture_default_str();
  app.add_option("--block-ms", o.block_ms, "A block's forward and backward pass; measured if not given");
  app.add_option("--embedding-ms", o.embedding_ms, "The embedding's, where the block's is given");
  app.add_option("--head-ms", o.head_ms, "The head's, where the block's is given");
  app.add_option("--first-units", o.first_units, "First unit of each part; equal times as far as that goes")
      ->delimiter(',');
  app.add_option(
         "--timelines", o.timelines,
         "Folder for tables of the last step, one a schedule and rank: when each instruction began and "
         "ended, simulated and measured")
      ->check(CLI::ExistingDirectory);
}

/// The times that ranks sleep: rank 0's, on all ranks.
Result<std::vector<double>> unit_times(const Options& o, const program::Job& job, weftComm_t world,
                                       int rank) {
  std::vector<double> us(static_cast<size_t>(job.units()), o.block_ms * 1e3);
  us.front() = o.embedding_ms * 1e3;
  us.back() = o.head_ms * 1e3;
  if (o.block_ms <= 0 && rank == 0) {
    const Result<std::vector<engine::UnitProfile>> measured = engine::profile_units(job, 1);
    LOOM_TRY(measured.status());
    us = engine::times_of(*measured);
  }
  LOOM_TRY_WEFT(weftBroadcast(us.data(), us.data(), us.size(), weftFloat64, 0, world, nullptr));
  return us;
}

/// Parts as equal as can be: each ends where it comes closest to its share of the time, and has one unit at
/// least.
std::vector<int> equal_parts(const std::vector<double>& unit_us, int parts) {
  const double all = std::accumulate(unit_us.begin(), unit_us.end(), 0.0);
  std::vector<int> first = {0};
  double before = 0;
  for (int unit = 0; unit + 1 < static_cast<int>(unit_us.size()) && static_cast<int>(first.size()) < parts;
       ++unit) {
    const double time = unit_us[static_cast<size_t>(unit)], next = unit_us[static_cast<size_t>(unit) + 1];
    before += time;
    const int left = static_cast<int>(unit_us.size()) - unit - 1;
    if (before + next / 2 >= all * static_cast<double>(first.size()) / parts - 1e-9 ||
        left == parts - static_cast<int>(first.size()))
      first.push_back(unit + 1);
  }
  return first;
}

/// Of m microbatches over stages that take t[s] for each: the slowest is always busy, and the first
/// microbatch comes to it and the last one leaves it through one part of every other stage. Of equal stages
/// this is (P-1)/(v·m+P-1).
double formula(const program::Job& job, const std::vector<double>& unit_us) {
  std::vector<double> stage_us(static_cast<size_t>(job.pipeline_degree));
  for (const program::Part& part : program::parts_of(job))
    for (int unit = part.begin; unit < part.end; ++unit)
      stage_us[static_cast<size_t>(part.stage)] += unit_us[static_cast<size_t>(unit)];
  const double all = std::accumulate(stage_us.begin(), stage_us.end(), 0.0);
  const double most = *std::max_element(stage_us.begin(), stage_us.end());
  const double time = job.microbatches * most + (all - most) / job.virtual_stages;
  return 1 - job.microbatches * all / job.pipeline_degree / time;
}

Result<program::Job> job_of(const Options& o, const std::string& schedule, int ranks) {
  program::Job job;
  job.spec.vocabulary = o.vocabulary;
  job.spec.context = o.tokens;
  job.spec.width = o.width;
  job.spec.layers = o.layers;
  job.spec.heads = std::max<int64_t>(1, o.width / 64);
  job.spec.feed_forward = 4 * o.width;
  job.tokens = o.tokens;
  job.batch = o.batch;
  job.microbatches = o.microbatches;
  job.world = ranks;
  job.pipeline_degree = o.stages > 0 ? o.stages : ranks / std::max(1, o.tensor);
  job.tensor_degree = o.tensor;
  job.degree = o.sharded;
  job.active_microbatches = o.active;
  const auto known = [&](program::Schedule one) { return schedule == program::schedule_name(one); };
  if (known(program::Schedule::simple)) {
    job.schedule = program::Schedule::simple;
  } else if (known(program::Schedule::interleaved)) {
    job.schedule = program::Schedule::interleaved;
    job.virtual_stages = o.virtual_stages;
    job.active_microbatches = 0;
  } else if (!known(program::Schedule::one_f_one_b)) {
    return fail(Code::invalid_argument, "there is no schedule {}, must be simple, 1f1b or interleaved",
                schedule);
  }
  LOOM_TRY(job.check());
  return job;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Measured {
  std::vector<double> bubbles, seconds;
  std::vector<double> outside;  // seconds of a step in which a rank does not compute, mean over the ranks
  std::vector<double> late;     // part by which computing took longer than planned, mean over the ranks
  double planned = 0;           // seconds of computing in a step, mean over the ranks
};

/// Time that passes where a unit would be computed. It is slept in slices: a virtual machine stands still now
/// and then, for tens of milliseconds, and nobody computes meanwhile. What a slice takes beyond kLate is
/// such time, and does not count as computed, or ranks that stand still together would go on apart.
class Sleeper {
 public:
  void compute(double us) {
    planned_us += us;
    for (double left = us; left > 0;) {
      const double slice = std::min(left, kSlice);
      const auto begin = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(Microseconds(slice));
      const double took = Microseconds(std::chrono::steady_clock::now() - begin).count();
      slept_us += took;
      left -= std::min(took, slice + kLate);
    }
  }
  double planned_us = 0, slept_us = 0;

 private:
  using Microseconds = std::chrono::duration<double, std::micro>;
  static constexpr double kSlice = 2000, kLate = 1000;
};

/// The mean of `value` over the ranks.
Result<double> mean(double value, const engine::Groups& groups) {
  LOOM_TRY_WEFT(weftAllReduce(&value, &value, 1, weftFloat64, weftSum, groups.world(), nullptr));
  return value / groups.ranks();
}

/// A line an instruction. What is measured of communication is how long issuing it took; `after` tells what
/// was waited for before it. Clocks of ranks on one machine agree.
Status write_timeline(const std::string& path, const engine::Engine& engine, const engine::StepResult& step,
                      const program::Forecast& forecast) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return fail(Code::invalid_argument, "cannot write {}", path);
  fmt::print(file, "# the step began at {:.1f} us and took {:.1f}\n", step.begin_us, step.seconds * 1e6);
  fmt::print(file,
             "instruction\tunit\tmicrobatch\tlane\tsimulated_begin_us\tsimulated_end_us\t"
             "begin_us\tend_us\tafter\n");
  for (size_t i = 0; i < engine.timeline().size(); ++i) {
    const program::Instruction& one = engine.training().instructions[i];
    const program::Interval &there = forecast.intervals[i], &here = engine.timeline()[i];
    fmt::print(file, "{}\t{}\t{}\t{}\t{:.1f}\t{:.1f}\t{:.1f}\t{:.1f}\t{}\n", program::op_name(one.op),
               one.unit, one.microbatch, one.lane, there.begin_us, there.end_us, here.begin_us, here.end_us,
               fmt::join(one.after, ","));
  }
  std::fclose(file);
  return {};
}

Result<Measured> measure(const Options& o, const program::Job& job, const engine::Groups& groups,
                         const program::Machine& machine, const program::PipelineForecast& forecast) {
  Result<std::unique_ptr<engine::Engine>> made = engine::Engine::create(job, groups, {});
  LOOM_TRY(made.status());
  engine::Engine& engine = **made;
  LOOM_TRY(engine.initialize(1));
  Sleeper sleeper;
  engine.stand_in(
      [&](const program::Instruction& i) { sleeper.compute(program::compute_us(job, machine, i)); });
  engine::StepSettings settings;
  settings.optimizer.learning_rate = 1e-3f;
  Measured measured;
  for (int step = 0; step <= o.repeats; ++step) {
    settings.step = static_cast<uint32_t>(step);
    LOOM_TRY(groups.barrier());
    sleeper = {};
    const Result<engine::StepResult> result = engine.step(settings);
    LOOM_TRY(result.status());
    const Result<double> outside = mean(result->seconds - sleeper.slept_us / 1e6, groups);
    LOOM_TRY(outside.status());
    const Result<double> planned = mean(sleeper.planned_us / 1e6, groups);
    LOOM_TRY(planned.status());
    const Result<double> late = mean(sleeper.slept_us / sleeper.planned_us - 1, groups);
    LOOM_TRY(late.status());
    if (step == 0) continue;  // it touches memory and opens connections
    measured.bubbles.push_back(result->bubble);
    measured.seconds.push_back(result->seconds);
    measured.outside.push_back(*outside);
    measured.late.push_back(*late);
    measured.planned = *planned;
    if (step < o.repeats || o.timelines.empty()) continue;
    const std::string name =
        fmt::format("{}/{}.{}", o.timelines, program::schedule_name(job.schedule), groups.rank());
    const program::Coordinates at = groups.coordinates();
    LOOM_TRY(write_timeline(name, engine, *result, forecast.stages[static_cast<size_t>(at.stage)]));
  }
  return measured;
}

/// What all schedules of a run have in common, so that their rows can be compared: the groups, the times of
/// units, and the links, measured once.
struct Ground {
  engine::Groups groups;
  program::Machine machine;
};

Result<Ground> ground_of(const Options& o, weftComm_t world, int rank, int ranks) {
  const Result<program::Job> job = job_of(o, o.schedules.front(), ranks);
  LOOM_TRY(job.status());
  Result<std::vector<double>> times = unit_times(o, *job, world, rank);
  LOOM_TRY(times.status());
  Result<engine::Groups> groups = engine::Groups::create(world, job->layout(), false);
  LOOM_TRY(groups.status());
  Result<program::Machine> machine = train::measure_machine(*job, *groups, 1);
  LOOM_TRY(machine.status());
  machine->unit_us = times.take();
  return Ground{groups.take(), machine.take()};
}

Status bench_schedule(const Options& o, const std::string& schedule, const Ground& ground) {
  const engine::Groups& groups = ground.groups;
  const program::Machine& machine = ground.machine;
  Result<program::Job> made = job_of(o, schedule, groups.ranks());
  LOOM_TRY(made.status());
  program::Job job = made.take();
  job.first_units = o.first_units.empty()
                        ? equal_parts(machine.unit_us, job.pipeline_degree * job.virtual_stages)
                        : o.first_units;
  LOOM_TRY(job.check());
  const Result<std::vector<program::Program>> programs = program::make_programs(job);
  LOOM_TRY(programs.status());
  const program::PipelineForecast forecast = program::simulate(job, *programs, machine);
  const Result<Measured> measured = measure(o, job, groups, machine, forecast);
  LOOM_TRY(measured.status());
  if (groups.rank() != 0) return {};
  const auto [least, most] = std::minmax_element(measured->bubbles.begin(), measured->bubbles.end());
  fmt::print(
      "{:<12}{:>8.1f}{:>10.1f}{:>11.1f}{:>10.1f}   {:.1f} to "
      "{:.1f}{:>12.1f}{:>12.1f}{:>16.1f}{:>16.1f}{:>9.1f}{:>10.0f}"
      "{:>9.0f}\n",
      schedule, program::ideal_bubble(job) * 100, formula(job, machine.unit_us) * 100, forecast.bubble * 100,
      median(measured->bubbles) * 100, *least * 100, *most * 100, forecast.step_us / 1e3,
      median(measured->seconds) * 1e3, forecast.step_us / 1e3 - measured->planned * 1e3,
      median(measured->outside) * 1e3, median(measured->late) * 100, machine.inter_bandwidth / 1e6,
      machine.inter_latency_us);
  std::fflush(stdout);
  return {};
}

Status bench_schedules(const Options& o, weftComm_t world, int rank, int ranks) {
  const Result<Ground> ground = ground_of(o, world, rank, ranks);
  LOOM_TRY(ground.status());
  for (const std::string& schedule : o.schedules) LOOM_TRY(bench_schedule(o, schedule, *ground));
  return {};
}

Status bench(const Options& o) {
  weftComm_t world = nullptr;
  int rank = 0, ranks = 0;
  LOOM_TRY_WEFT(weftCommInitEnv(&world));
  LOOM_TRY_WEFT(weftCommUserRank(world, &rank));
  LOOM_TRY_WEFT(weftCommCount(world, &ranks));
  if (ranks < 2)
    return fail(Code::invalid_argument, "a pipeline has a rank a stage, two at least; this job has {}",
                ranks);
  if (rank == 0)
    fmt::print(
        "{} ranks, {} stages of {} tensor ranks, {} data ranks share a copy; {} microbatches\n"
        "computing is sleeping; bubbles in %, medians of {} steps; outside: of computing, mean over the "
        "ranks; late: by how many % it took longer\n"
        "schedule       equal   formula  simulated  measured   of these   sim., ms  measured, ms  "
        "outside sim., ms   measured, ms     late      MB/s       us\n",
        ranks, o.stages > 0 ? o.stages : ranks / o.tensor, o.tensor, o.sharded, o.microbatches, o.repeats);
  const Status status = bench_schedules(o, world, rank, ranks);
  (void)weftCommDestroy(world);
  return status;
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  CLI::App app("The bubble of a pipeline, measured beside formula and simulator; computing is sleeping");
  loom::Options options;
  loom::declare(app, options);
  CLI11_PARSE(app, argc, argv);
  const loom::Status status = loom::bench(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "pipeline_bench: {}\n", status.message());
  return 1;
}
