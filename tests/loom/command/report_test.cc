// What a run leaves behind: its report has all steps, also those before it was resumed, and there is one of
// runs that fail.
#include <filesystem>

#include "command/processes.h"

namespace loom::testing {
namespace {

/// The charts of a page, by title.
std::map<std::string, format::Json> charts_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" class=\"chart\">{";
  std::map<std::string, format::Json> charts;
  for (size_t at = 0; (at = page.find(begin, at)) != std::string::npos;) {
    at += begin.size() - 1;
    const Result<format::Json> chart = format::parse_json(page.substr(at, page.find("</script>", at) - at));
    EXPECT_TRUE(chart.ok());
    if (chart.ok()) charts[(*chart)["title"]] = *chart;
  }
  return charts;
}

/// Nothing that a browser would ask a network for.
void expect_whole(const std::string& page) {
  for (const char* reference : {"http:", "https:", "src=", "<link", "@import", "url("})
    EXPECT_EQ(page.find(reference), std::string::npos) << reference;
  EXPECT_NE(page.find("class Chart"), std::string::npos) << "what draws";
}

class Report : public Command {
 protected:
  std::string page() const { return get_file(folder_ / "run/report.html"); }
  /// Numbers of the first and last step on the chart of losses.
  std::pair<int, int> steps() const {
    const format::Json loss = charts_of(page()).at("Loss");
    std::vector<int> numbers;
    for (const format::Json& point : loss["series"][0]["points"]) numbers.push_back(point[0]);
    return numbers.empty() ? std::pair(0, 0) : std::pair(numbers.front(), numbers.back());
  }
};

TEST_F(Report, OfAResumedRunHasTheStepsBefore) {
  ASSERT_EQ(loom("train " + config() + " --run.steps=4").code, 0);
  EXPECT_EQ(steps(), std::pair(1, 4));
  const Outcome resumed = loom(
      "train " + config() + " --run.steps=6 '--parallel.offload_folder=<a>&'");  // of what is not offloaded
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_NE(resumed.text.find("resumed after step 4"), std::string::npos);
  EXPECT_EQ(steps(), std::pair(1, 6));
  EXPECT_NE(page().find("\"offload_folder\": \"&lt;a&gt;&amp;\""), std::string::npos);
}

/// What was measured of a run that is over is not there any more.
TEST_F(Report, OfARunThatWasOverIsLeftAsItIs) {
  ASSERT_EQ(loom("train " + config() + " --run.steps=2").code, 0);
  const std::string before = page();
  const Outcome again = loom("train " + config() + " --run.steps=2");
  ASSERT_EQ(again.code, 0) << again.text;
  EXPECT_NE(again.text.find("resumed after step 2"), std::string::npos);
  EXPECT_EQ(page(), before);
  std::filesystem::remove(folder_ / "run/report.html");
  ASSERT_EQ(loom("train " + config() + " --run.steps=2").code, 0);
  EXPECT_EQ(steps(), std::pair(1, 2)) << "losses are in the log";
}

/// A model of a later step than the run is to have is not put in the place of another.
TEST_F(Report, OfARunThatWasOverIsSaidAndItsModelStays) {
  ASSERT_EQ(loom("train " + config() + " --run.steps=2").code, 0);
  const std::string model = folder_ / "run/model/model.safetensors";
  const std::string of_step_2 = get_file(model);
  ASSERT_EQ(loom("train " + config() + " --run.steps=4").code, 0);
  const std::string of_step_4 = get_file(model);
  EXPECT_NE(of_step_2, of_step_4);
  const auto again = [&](const std::string& steps) {
    const Outcome outcome = loom("train " + config() + " --run.steps=" + steps);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_NE(outcome.text.find("note: nothing to do: the checkpoint is of step 4, run.steps is " + steps),
              std::string::npos)
        << outcome.text;
    EXPECT_EQ(outcome.text.find("measured"), std::string::npos) << outcome.text;
    EXPECT_NE(get_file(folder_ / "run/log.jsonl").find("{\"note\":\"nothing to do"), std::string::npos);
  };
  std::filesystem::remove(model);
  again("4");
  EXPECT_EQ(get_file(model), of_step_4) << "it was to have that";
  put_file(model, of_step_2);
  again("2");
  EXPECT_EQ(get_file(model), of_step_2);
}

TEST_F(Report, OfARunThatPassesADamagedCheckpointOverSaysSo) {
  ASSERT_EQ(loom("train " + config() + " --run.steps=4").code, 0);
  const std::string checkpoints = folder_ / "run/checkpoints/step-0000000";
  put_file(checkpoints + "4/state-00000-of-00001.safetensors", "");
  const Outcome resumed = loom("train " + config() + " --run.steps=6");
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_NE(resumed.text.find("resumed after step 2"), std::string::npos) << resumed.text;
  EXPECT_NE(resumed.text.find("note: a checkpoint is passed over: "), std::string::npos) << resumed.text;
  EXPECT_NE(page().find("<p>Note: a checkpoint is passed over: "), std::string::npos);
  // Where all are damaged nothing of what the run has left is touched.
  for (const char* step : {"4", "6"}) put_file(checkpoints + step + "/state-00000-of-00001.safetensors", "");
  const std::string log = get_file(folder_ / "run/log.jsonl"), told = get_file(folder_ / "run/config.json");
  const Outcome refused = loom("train " + config() + " --run.steps=8");
  EXPECT_EQ(refused.code, 1) << refused.text;
  EXPECT_NE(refused.text.find("remove that folder to begin anew"), std::string::npos) << refused.text;
  EXPECT_EQ(get_file(folder_ / "run/log.jsonl"), log);
  EXPECT_EQ(get_file(folder_ / "run/config.json"), told);
}

TEST_F(Report, OfARunWhoseModelCannotBeSavedHasItsStepsAndItsEnd) {
  std::filesystem::create_directory(folder_ / "run");
  put_file(folder_ / "run/model", "");  // where the folder is to be
  const Outcome ended = loom("train " + config() + " --run.steps=2");
  EXPECT_EQ(ended.code, 2) << ended.text;
  EXPECT_NE(ended.text.find(folder_ / "run/model"), std::string::npos) << ended.text;
  EXPECT_NE(page().find("The run failed after 2 of 2 steps"), std::string::npos);
  EXPECT_EQ(steps(), std::pair(1, 2));
  EXPECT_NE(get_file(folder_ / "run/log.jsonl").find("{\"predicted\":"), std::string::npos);
  std::filesystem::remove(folder_ / "run/model");
  const std::string before = page();
  const Outcome again = loom("train " + config() + " --run.steps=2");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/model/model.safetensors"));
  EXPECT_EQ(page().find("failed"), std::string::npos) << "what failed is done";
  // What only the run itself could tell is there as before.
  EXPECT_EQ(page().substr(page().find("<h2>")), before.substr(before.find("<h2>")));
}

TEST_F(Report, OfARunThatDivergedSaysSoAndHasItsSteps) {
  const Outcome ended = loom("train " + config() +
                             " --run.steps=100 --run.checkpoint_every=4 --optimizer.learning_rate=1e6"
                             " --optimizer.warmup_steps=12 --optimizer.clip_norm=0");
  EXPECT_EQ(ended.code, 1) << ended.text;
  EXPECT_EQ(steps().first, 1) << ended.text;
  EXPECT_NE(page().find("The run failed after"), std::string::npos);
  EXPECT_NE(page().find("a smaller learning rate or clip_norm may help"), std::string::npos);
}

TEST_F(Report, OfARunWhoseRankDiedIsWrittenByRankZero) {
  const std::string script = folder_ / "kill.sh";
  put_file(script, fmt::format("if [ \"$WEFT_RANK\" != 1 ]; then exec \"$@\"; fi\n"
                               "\"$@\" & pid=$!\n"
                               "while [ \"$(cat {}/log.jsonl 2> /dev/null | wc -l)\" -lt 3 ]; do sleep 0.01; "
                               "done\n"
                               "kill -9 $pid; wait $pid\n",
                               folder_ / "run"));
  const Outcome ended =
      on_processes(2, "sh " + script + " " + train("--run.steps=1000000 --run.checkpoint_every=0 "));
  EXPECT_NE(ended.code, 0);
  EXPECT_EQ(steps().first, 1) << ended.text;
  EXPECT_NE(page().find("is gone: rank 1 is dead"), std::string::npos) << ended.text;
}

/// It used to be written at the end only.
TEST_F(Report, IsThereOfARunThatWasKilled) {
  const std::string script = folder_ / "kill.sh";
  put_file(script, fmt::format("\"$@\" & pid=$!\n"
                               "while [ \"$(cat {}/log.jsonl 2> /dev/null | wc -l)\" -lt 7 ]; do sleep 0.01; "
                               "done\n"
                               "kill -9 $pid; wait $pid\n",
                               folder_ / "run"));
  const Outcome ended = shell("sh " + script + " " + train("--run.steps=1000000 --run.checkpoint_every=3"));
  EXPECT_EQ(ended.code, 137) << ended.text;
  EXPECT_EQ(steps().first, 1) << ended.text;
  EXPECT_GE(steps().second, 6) << "two checkpoints were due";
  EXPECT_EQ(steps().second % 3, 0);
  EXPECT_NE(page().find(fmt::format("<p>Written after step {} of 1000000.</p>", steps().second)),
            std::string::npos);
}

TEST_F(Report, NamesThePrecisionOfTheMeasuredProducts) {
  for (const std::string precision : {"fp32", "bf16"}) {
    std::filesystem::remove_all(folder_ / "run");
    const Outcome run = loom("train " + config() + " --run.steps=2 --parallel.precision=" + precision);
    ASSERT_EQ(run.code, 0) << run.text;
    EXPECT_NE(run.text.find("GFLOP/s of " + precision + " matrix products measured"), std::string::npos)
        << run.text;
    EXPECT_NE(page().find("over the peak of " + precision + " products"), std::string::npos);
  }
}

TEST_F(Report, ALogThatCannotBeWrittenEndsTheRunBeforeItBegins) {
  std::filesystem::create_directories(folder_ / "run/log.jsonl");
  const Outcome refused = loom("train " + config());
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.text.find("cannot write the log of the run, " + (folder_ / "run/log.jsonl")),
            std::string::npos)
      << refused.text;
  EXPECT_EQ(refused.text.find("step 1/"), std::string::npos) << refused.text;
}

TEST_F(Report, AnotherBatchIsSaidWhereARunGoesOn) {
  ASSERT_EQ(loom("train " + config() + " --run.steps=2").code, 0);
  const Outcome resumed = loom("train " + config() + " --run.steps=4 --data.global_batch=4");
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_NE(resumed.text.find("note: data.global_batch is 4 and was 8 before"), std::string::npos)
      << resumed.text;
}

TEST_F(Report, ComparesRuns) {
  ASSERT_EQ(loom("train " + config() + " --run.steps=3").code, 0);
  ASSERT_EQ(
      loom("train " + config() + " --run.steps=4 --run.seed=2 '--run.out=" + (folder_ / "<second>'")).code,
      0);
  expect_whole(page());
  const std::string out = folder_ / "both.html";
  const Outcome made = loom(fmt::format("report {} '{}' -o {}", folder_ / "run", folder_ / "<second>", out));
  ASSERT_EQ(made.code, 0) << made.text;
  const std::string both = get_file(out);
  expect_whole(both);
  const format::Json loss = charts_of(both).at("Loss");
  std::map<std::string, format::Json> series;
  for (const format::Json& one : loss["series"]) series[one["name"]] = one["points"];
  ASSERT_EQ(series.at(folder_ / "run, training").size(), 3u);
  const format::Json& second = series.at(folder_ / "<second>, training");
  ASSERT_EQ(second.size(), 4u);
  const auto logged = losses(folder_ / "<second>");
  for (const format::Json& point : second) EXPECT_EQ(point[1], logged.find(point[0])->second);
  EXPECT_NE(both.find("&lt;second&gt;"), std::string::npos);
  const Outcome missing = loom("report " + (folder_ / "nowhere") + " -o " + out);
  EXPECT_EQ(missing.code, 1);
  EXPECT_NE(missing.text.find("nowhere/log.jsonl"), std::string::npos) << missing.text;
}

TEST_F(Report, OfASweepHasALineForEachEngine) {
  const std::string out = folder_ / "sweep.html";
  const Outcome made = loom(fmt::format(
      "plan {0}/../perf/seeds/models/gpt_neox_13b.json --cluster {0}/../clusters/p4d.json --nodes 8 "
      "--data.global_batch=512 --sweep nodes=8:16 --baseline smddp --html {1}",
      LOOM_EXAMPLES, out));
  ASSERT_EQ(made.code, 0) << made.text;
  const std::string text = get_file(out);
  expect_whole(text);
  const format::Json rate = charts_of(text).at("Rate of a rank");
  ASSERT_EQ(rate["series"].size(), 2u);
  for (const format::Json& one : rate["series"]) {
    ASSERT_EQ(one["points"].size(), 2u) << one;
    EXPECT_EQ(one["points"][1][0], 16);
    EXPECT_GT(one["points"][1][1], 10) << "TFLOP/s";
  }
}

}  // namespace
}  // namespace loom::testing
