// The page of a step: every rank and every instruction is in it, and it says what the simulator said.
#include "train/trace.h"

#include <map>

#include "program/generate.h"
#include "program/schedule.h"
#include "train/report.h"
#include "train/runs.h"
#include "train/throughput.h"

namespace loom::testing {
namespace {

/// The page of a run, the JSON in it, and the programs that its ranks had.
struct Page {
  std::string html, line, table, summary;
  std::vector<train::StepRecord> records;
  format::Json json;
  std::vector<program::Program> programs;
  program::PipelineForecast forecast;
  program::Job job;
};

class Traced : public Runs {
 protected:
  void SetUp() override {
    make_tokens(config_.data.folder, "bytes", 300);
    config_.data.microbatch = 1;
    config_.model.layers = 4;
    config_.parallel.strict = false;
    config_.run.steps = 3;
    config_.run.evaluation_steps = 1;
  }

  Page run(int ranks, const program::Machine& machine = {}) {
    Page page;
    on_ranks(ranks, 2, [&](weftComm_t world) {
      Result<std::unique_ptr<train::Trainer>> made = train::Trainer::create(config_, world);
      LOOM_ASSERT_OK(made);
      train::Trainer& trainer = **made;
      std::vector<train::StepRecord> records;
      LOOM_ASSERT_OK(trainer.run([&](const train::StepRecord& record) { records.push_back(record); }));
      EXPECT_EQ(trainer.trace().has_value(), trainer.groups().rank() == 0 && config_.run.trace_ranks > 0);
      if (trainer.groups().rank() != 0) return;
      train::Comparison comparison = train::compare(trainer, machine);
      page.html = train::html_report(records, trainer, comparison);
      page.line = train::trace_line(trainer, comparison);
      page.table = train::to_text(comparison);
      page.summary = train::json_line(comparison);
      page.records = records;
      page.programs = comparison.programs;
      page.forecast = comparison.forecast;
      page.job = trainer.engine().job();
    });
    const std::string begin = "id=\"trace\">";
    const size_t at = page.html.find(begin);
    if (at == std::string::npos) return page;
    const size_t end = page.html.find("</script>", at);
    const Result<format::Json> json =
        format::parse_json(std::string_view(page.html).substr(at + begin.size(), end - at - begin.size()));
    EXPECT_TRUE(json.ok()) << json.status().message();
    if (json.ok()) page.json = *json;
    return page;
  }
};

TEST_F(Traced, ThePageHasEveryRankAndEveryInstruction) {
  config_.parallel.pipeline_degree = 2;
  config_.parallel.sharded_data_parallel_degree = 2;
  program::Machine machine;
  machine.flops = 1e9;
  const Page page = run(4, machine);
  ASSERT_EQ(page.json["ranks"].size(), 4u);
  ASSERT_EQ(page.json["stages"].size(), 2u);
  EXPECT_EQ(page.json["step"], 3);
  for (size_t stage = 0; stage < 2; ++stage) {
    const auto& list = page.programs[stage].instructions;
    const format::Json& shown = page.json["stages"][stage];
    ASSERT_EQ(shown["instructions"].size(), list.size());
    ASSERT_EQ(shown["predicted"].size(), list.size());
    double end = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      const format::Json wanted = {static_cast<int>(list[i].op), list[i].lane, list[i].unit,
                                   list[i].microbatch, page.programs[stage].shared ? list[i].first : -1};
      EXPECT_EQ(shown["instructions"][i], wanted);
      EXPECT_NEAR(shown["predicted"][i][1], page.forecast.stages[stage].intervals[i].end_us, 0.06);
      end = std::max(end, shown["predicted"][i][1].get<double>());
    }
    EXPECT_NEAR(end, page.forecast.stages[stage].step_us, 0.06);
  }
  EXPECT_EQ(page.json["predicted_step_us"], page.forecast.step_us);
  EXPECT_EQ(page.json["predicted_bubble"], page.forecast.bubble);
  double bubble = 0;
  for (const format::Json& rank : page.json["ranks"]) bubble += rank["bubble"].get<double>() / 4;
  EXPECT_NE(page.html.find(fmt::format("; bubble {:.1f} %, predicted {:.1f}</h2>", bubble * 100,
                                       page.forecast.bubble * 100)),
            std::string::npos);
  std::vector<bool> seen(4);
  for (const format::Json& rank : page.json["ranks"]) {
    const auto& list = page.programs[rank["stage"]].instructions;
    seen[rank["data"].get<size_t>() * 2 + rank["stage"].get<size_t>()] = true;
    ASSERT_EQ(rank["measured"].size(), list.size());
    for (const format::Json& times : rank["measured"]) {
      EXPECT_GE(times[0], 0.0);
      EXPECT_LE(times[0].get<double>(), times[1].get<double>());
      EXPECT_LE(times[1].get<double>(), rank["step_us"].get<double>() + 0.1);
    }
    EXPECT_GT(rank["compute_us"], 0.0);
    EXPECT_LE(rank["compute_us"].get<double>() + rank["exposed_us"].get<double>(),
              rank["step_us"].get<double>());
    EXPECT_GE(rank["clock_error_us"], 0.0);
    EXPECT_GT(rank["planned_bytes"]["arena"], 0);
    EXPECT_NEAR(
        rank["formula_flops"],
        train::flops_by_formula(page.job, static_cast<double>(model::parameter_count(page.job.held_units())),
                                rank["step_us"].get<double>() / 1e6),
        1);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 4);
  for (const char* words : {"<canvas id=\"predicted\">", "MFU", "optimizer", "d1p1t0"})
    EXPECT_NE(page.html.find(words), std::string::npos) << words;
  EXPECT_EQ(page.html.find("src="), std::string::npos) << "the page needs another file";
}

TEST_F(Traced, APipelinesPageShowsTheOrderOfMicrobatches) {
  config_.parallel.pipeline_degree = 2;
  const Page page = run(2);
  ASSERT_EQ(page.json["ranks"].size(), 2u);
  // Beginnings and ends on the common clock, by stage, direction and microbatch.
  struct Times {
    double begin = 1e300, end = 0;
  };
  std::map<std::tuple<int, bool, int>, Times> passes;
  double error = 0;
  for (const format::Json& rank : page.json["ranks"]) {
    const int stage = rank["stage"];
    error += rank["clock_error_us"].get<double>();
    const auto& list = page.programs[static_cast<size_t>(stage)].instructions;
    std::vector<program::Pass> order;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!program::is_compute(list[i].op)) continue;
      const bool forward = list[i].op == program::Op::forward;
      Times& times = passes[{stage, forward, list[i].microbatch}];
      const double begin = rank["begin_us"];
      times.begin = std::min(times.begin, begin + rank["measured"][i][0].get<double>());
      times.end = std::max(times.end, begin + rank["measured"][i][1].get<double>());
    }
    // As the schedule has them, also by the clock.
    double last = -1e300;
    for (const program::Pass& pass : program::schedule_of(page.job, stage)) {
      const Times& times = passes.at({stage, pass.forward, pass.microbatch});
      EXPECT_GE(times.begin, last) << "stage " << stage << ", microbatch " << pass.microbatch;
      last = times.end;
    }
  }
  ASSERT_EQ(passes.size(), 4u * 8);
  for (int m = 0; m < 8; ++m) {  // cause before effect, on different ranks
    EXPECT_LE(passes.at({0, true, m}).end, passes.at({1, true, m}).begin + error) << m;
    EXPECT_LE(passes.at({1, false, m}).end, passes.at({0, false, m}).begin + error) << m;
  }
}

TEST_F(Traced, TheBubbleIsPredictedBesideTheMeasured) {
  program::Machine machine;
  machine.flops = 1e9;
  EXPECT_EQ(run(2, machine).table.find("bubble"), std::string::npos) << "of a job without stages";
  config_.parallel.pipeline_degree = 2;
  config_.run.out = folder_ / "stages";
  const Page page = run(2, machine);
  ASSERT_EQ(page.records.size(), 3u);
  const double measured = (page.records[1].bubble + page.records[2].bubble) / 2;  // the first does not count
  EXPECT_GT(measured, 0);
  const std::string row =
      fmt::format("{:<22}{:>14.2f}{:>14.2f}\n", "bubble, %", page.forecast.bubble * 100, measured * 100);
  EXPECT_NE(page.table.find(row), std::string::npos) << row << page.table;
  const format::Json summary = *format::parse_json(page.summary);
  EXPECT_EQ(summary["predicted"]["bubble"], page.forecast.bubble);
  EXPECT_DOUBLE_EQ(summary["measured"]["bubble"].get<double>(), measured);
  EXPECT_NE(page.html.find("<td>bubble, %</td>"), std::string::npos);
}

TEST_F(Traced, ASettingLimitsWhatIsGathered) {
  config_.run.trace_ranks = 1;
  config_.run.trace_step = 2;
  const Page page = run(2);
  ASSERT_EQ(page.json["ranks"].size(), 2u) << "sums are of all";
  EXPECT_EQ(page.json["step"], 2);
  EXPECT_FALSE(page.json["ranks"][0]["measured"].empty());
  EXPECT_TRUE(page.json["ranks"][1]["measured"].empty());
  EXPECT_LT(page.json["ranks"][1]["clock_error_us"], 0.0) << "nobody asked";
  const format::Json line = *format::parse_json(page.line);
  ASSERT_EQ(line["trace"]["ranks"].size(), 2u);
  EXPECT_GT(line["trace"]["ranks"][1]["compute_us"], 0.0);
  config_.run.trace_ranks = 0;
  config_.run.out = folder_ / "none";
  EXPECT_EQ(run(2).html.find("canvas id"), std::string::npos);
}

TEST(Throughput, IsThePapersFormula) {
  program::Job job = small_job(4, 4, 2, 3);
  // 4 ranks with 2 microbatches of 3 sequences each, in two seconds.
  const double samples = 4 * 2 * 3 / 2.0, parameters = 1000;
  EXPECT_DOUBLE_EQ(train::flops_by_formula(job, parameters, 2), 6 * samples * parameters * 12 / 4);
  job.checkpoint_group = 1;
  EXPECT_DOUBLE_EQ(train::flops_by_formula(job, parameters, 2), 8 * samples * parameters * 12 / 4);
  const double whole = samples * 12 * job.spec.flops_per_token(12) / 4;
  EXPECT_DOUBLE_EQ(train::utilization(job, 2, 4 * whole), 0.25);
  EXPECT_EQ(train::utilization(job, 2, 0), 0);
}

TEST(Totals, AreSumsOfTheTimeline) {
  program::Job job = small_job(1, 1, 1, 1);
  const program::Program program = *program::make_program(job);
  std::vector<program::Interval> timeline;
  double now = 0, computed = 0, norm = 0, before_norm = 0;
  for (const program::Instruction& i : program.instructions) {
    const double took = 1 + static_cast<double>(timeline.size() % 3);
    timeline.push_back({now + 0.5, now + 0.5 + took});
    now += took + 0.5;
    if (i.op == program::Op::norm) norm = now, before_norm = computed;
    if (!program::is_meeting(i.op)) computed += took;
  }
  engine::StepResult result;
  result.seconds = 1;
  const train::RankTotals totals = train::totals_of(program, timeline, result);
  EXPECT_DOUBLE_EQ(totals.compute_us, computed);
  EXPECT_DOUBLE_EQ(totals.bubble, 1 - before_norm / norm);
  EXPECT_EQ(totals.step_us, 1e6);
}

}  // namespace
}  // namespace loom::testing
