// What ends runs before their time: kill -9 of all ranks, a disk that fills up, a loss that is no number.
// Each leaves a checkpoint from which the run goes on as if nothing had happened.
#include <filesystem>
#include <map>
#include <random>
#include <sstream>

#include "command/processes.h"
#include "format/checkpoints.h"

namespace loom::testing {
namespace {

class Crash : public Command {
 protected:
  /// What log.jsonl of a run says of each step; those that were done again after a crash stand there twice.
  std::multimap<int64_t, double> losses(const std::string& out) const {
    std::multimap<int64_t, double> losses;
    std::istringstream lines(get_file(out + "/log.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Result<format::Json> json = format::parse_json(line);
      if (json.ok() && json->contains("step")) losses.emplace((*json)["step"], (*json)["loss"]);
    }
    return losses;
  }

  /// A script that starts a rank and kills it, without a warning, when the log has so many lines.
  std::string killer(const std::string& out, int lines) const {
    const std::string script = folder_ / "kill.sh";
    put_file(script, fmt::format("\"$@\" & pid=$!\n"
                                 "while [ \"$(cat {}/log.jsonl 2> /dev/null | wc -l)\" -lt {} ]; do sleep "
                                 "0.01; done\n"
                                 "kill -9 $pid; wait $pid\n",
                                 out, lines));
    return "sh " + script + " ";
  }
};

TEST_F(Crash, KilledAtARandomStepAndResumedItHasTheSameLosses) {
  const std::string common =
      "--parallel.strict=true --data.microbatch=1 --run.steps=120 --run.checkpoint_every=7 "
      "--model.dropout=0.1 ";
  const std::string on_two = "--parallel.sharded_data_parallel_degree=2 ";
  const std::string whole = folder_ / "whole";
  const Outcome reference = on_processes(2, train(common + on_two + "--run.out=" + whole));
  ASSERT_EQ(reference.code, 0) << reference.text;
  const auto wanted = losses(whole);
  ASSERT_EQ(wanted.size(), 120u);

  std::random_device random;
  for (const auto& [ranks, degree] : {std::pair{2, 2}, {4, 2}, {1, 1}}) {
    const int lines = 10 + static_cast<int>(random() % 50);
    SCOPED_TRACE(fmt::format("killed after {} lines, resumed on {} ranks", lines, ranks));
    const std::string out = folder_ / fmt::format("out-{}", ranks);
    const Outcome killed = on_processes(2, killer(out, lines) + train(common + on_two + "--run.out=" + out));
    EXPECT_NE(killed.code, 0);
    EXPECT_LT(losses(out).size(), 120u) << "it was over before it was killed";
    const std::string again =
        fmt::format("--parallel.sharded_data_parallel_degree={} --run.out={}", degree, out);
    const Outcome resumed = on_processes(ranks, train(common + again));
    ASSERT_EQ(resumed.code, 0) << resumed.text;
    EXPECT_NE(resumed.text.find("resumed after step "), std::string::npos) << resumed.text;
    const auto got = losses(out);
    for (const auto& [step, loss] : wanted) EXPECT_TRUE(got.contains(step)) << step;
    for (const auto& [step, loss] : got) EXPECT_EQ(loss, wanted.find(step)->second) << "step " << step;
  }
}

/// In the default order a layout has bits of its own; going on with it gives them, another is close.
TEST_F(Crash, KilledAndResumedInTheDefaultOrderDataRanksHaveTheSameLosses) {
  const std::string common =
      "--data.microbatch=1 --run.steps=60 --run.checkpoint_every=7 --model.dropout=0.1 ";
  const std::string whole = folder_ / "whole";
  const Outcome reference = on_processes(2, train(common + "--run.out=" + whole));
  ASSERT_EQ(reference.code, 0) << reference.text;
  const auto wanted = losses(whole);
  ASSERT_EQ(wanted.size(), 60u);
  for (const int ranks : {2, 4}) {
    const std::string out = folder_ / fmt::format("out-{}", ranks);
    const Outcome killed = on_processes(2, killer(out, 20) + train(common + "--run.out=" + out));
    EXPECT_NE(killed.code, 0);
    EXPECT_LT(losses(out).size(), 60u) << "it was over before it was killed";
    const Outcome resumed = on_processes(ranks, train(common + "--run.out=" + out));
    ASSERT_EQ(resumed.code, 0) << resumed.text;
    EXPECT_NE(resumed.text.find("resumed after step "), std::string::npos) << resumed.text;
    const auto got = losses(out);
    EXPECT_GE(got.size(), 60u);
    for (const auto& [step, loss] : got) {
      const double same = wanted.find(step)->second;
      EXPECT_NEAR(loss, same, ranks == 2 ? 0 : 1e-5 * same) << "step " << step << " on " << ranks;
    }
  }
}

TEST_F(Crash, AFullDiskEndsAllRanksAndTheCheckpointBeforeIsKept) {
  const std::string two = "--parallel.sharded_data_parallel_degree=2 ";
  ASSERT_EQ(on_processes(2, train(two + "--run.steps=4")).code, 0);
  // Once it trains, files of rank 1 may grow to 8 KiB only, much less than its part of a checkpoint.
  const std::string script = folder_ / "small.sh";
  put_file(script,
           "if [ \"$WEFT_RANK\" != 1 ]; then exec \"$@\"; fi\n"
           "\"$@\" & pid=$!\n"
           "while [ \"$(wc -l < " +
               (folder_ / "run/log.jsonl") +
               ")\" -lt 8 ]; do sleep 0.01; done\n"
               "prlimit --pid $pid --fsize=8192; wait $pid\n");
  const Outcome full = on_processes(
      2, "sh " + script + " " + train(two + "--run.steps=100000 --run.checkpoint_every=3 --run.keep=100000"));
  EXPECT_NE(full.code, 0);
  EXPECT_NE(full.code, 124) << "a rank was left hanging: " << full.text;
  EXPECT_NE(full.text.find("File too large"), std::string::npos) << full.text;
  EXPECT_NE(full.text.find("loom: rank 1: "), std::string::npos) << "rank 0 does not know: " << full.text;
  // What was complete is complete, and what was not is passed over.
  Result<format::Checkpoints> checkpoints = format::Checkpoints::open(folder_ / "run/checkpoints", 2);
  LOOM_ASSERT_OK(checkpoints);
  const Result<std::optional<uint64_t>> latest = checkpoints->latest();
  LOOM_ASSERT_OK(latest);
  ASSERT_TRUE(latest->has_value());
  EXPECT_GE(**latest, 4u);
  const Outcome resumed = on_processes(2, train(two + fmt::format("--run.steps={}", **latest + 3)));
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_NE(resumed.text.find(fmt::format("resumed after step {}", **latest)), std::string::npos)
      << resumed.text;
}

TEST_F(Crash, ALossThatIsNoNumberEndsTheRunAndTheCheckpointBeforeIsKept) {
  const std::string two = "--parallel.sharded_data_parallel_degree=2 ";
  ASSERT_EQ(on_processes(2, train(two + "--run.steps=4")).code, 0);
  const std::string wild =
      "--run.steps=100 --run.checkpoint_every=1000 --optimizer.learning_rate=1e6 --optimizer.clip_norm=0 ";
  const Outcome ended = on_processes(2, train(two + wild));
  EXPECT_EQ(ended.code, 1) << ended.text;
  EXPECT_NE(ended.text.find("a smaller learning rate or clip_norm may help"), std::string::npos)
      << ended.text;
  const Outcome resumed = on_processes(2, train(two + "--run.steps=6"));
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_NE(resumed.text.find("resumed after step 4"), std::string::npos) << resumed.text;
}

}  // namespace
}  // namespace loom::testing
