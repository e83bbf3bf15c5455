// What ends runs before their time: kill -9 of all ranks, a disk that fills up, a loss that is no number.
// Each leaves a checkpoint from which the run goes on as if nothing had happened.
#include <filesystem>
#include <random>

#include "command/processes.h"
#include "format/checkpoints.h"

namespace loom::testing {
namespace {

class Crash : public Command {
 protected:
  /// A script that starts a rank and kills it, without a warning, when the log has so many lines.
  std::string killer(const std::string& out, int lines) const {
    const std::string script = folder_ / "kill.sh";
    put_file(script, fmt::format("\"$@\" & pid=$!\n"
                                 "while [ \"$(cat '{}/log.jsonl' 2> /dev/null | wc -l)\" -lt {} ]; do sleep "
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

/// What is added in an order of its own, divided, offloaded or rounded goes on with its bits on its layout.
TEST_F(Crash, KilledAndResumedEveryKindOfLayoutHasItsOwnBits) {
  const std::string common = "--run.steps=40 --run.checkpoint_every=4 --model.dropout=0.1 --model.layers=4 ";
  struct Layout {
    const char *name, *keys;
  };
  for (const auto& [name, keys] :
       {Layout{"shards and stages",
               "--parallel.sharded_data_parallel_degree=2 --parallel.pipeline_degree=2 --data.microbatch=2 "},
        Layout{"stages of tensor ranks, offloading, bf16",
               "--parallel.pipeline_degree=2 --parallel.tensor_degree=2 --data.microbatch=1 "
               "--parallel.activation_offloading=true --parallel.offload_folder=/var/tmp "
               "--parallel.activation_checkpointing=each --parallel.activation_loading_horizon=1 "
               "--parallel.precision=bf16 "}}) {
    SCOPED_TRACE(name);
    const std::string whole = folder_ / fmt::format("whole {}", name),
                      out = folder_ / fmt::format("out {}", name);
    const auto run = [&](const std::string& script, const std::string& into) {
      return on_processes(4, script + train(common + keys + "--run.out='" + into + "'"));
    };
    const Outcome reference = run("", whole);
    ASSERT_EQ(reference.code, 0) << reference.text;
    const auto wanted = losses(whole);
    ASSERT_EQ(wanted.size(), 40u);
    EXPECT_NE(run(killer(out, 8 + static_cast<int>(std::random_device()() % 12)), out).code, 0);
    EXPECT_LT(losses(out).size(), 40u) << "it was over before it was killed";
    const Outcome resumed = run("", out);
    ASSERT_EQ(resumed.code, 0) << resumed.text;
    EXPECT_NE(resumed.text.find("resumed after step "), std::string::npos) << resumed.text;
    const auto got = losses(out);
    EXPECT_GE(got.size(), 40u);
    for (const auto& [step, loss] : got) EXPECT_EQ(loss, wanted.find(step)->second) << "step " << step;
  }
}

/// One rank of two is told to end, as launchers tell all of them; the others hear of it in the step.
TEST_F(Crash, ToldToEndItSavesACheckpointOfTheStepAtHand) {
  const std::string script = folder_ / "end.sh", out = folder_ / "out", whole = folder_ / "whole";
  put_file(script,
           fmt::format("if [ \"$WEFT_RANK\" != 1 ]; then exec \"$@\"; fi\n"
                       "\"$@\" & pid=$!\n"
                       "while [ \"$(cat '{}/log.jsonl' 2> /dev/null | wc -l)\" -lt 5 ]; do sleep 0.01; "
                       "done\n"
                       "kill -TERM $pid; wait $pid\n",
                       out));
  const std::string common =
      "--parallel.sharded_data_parallel_degree=2 --model.dropout=0.1 --run.checkpoint_every=0 ";
  const Outcome ended =
      on_processes(2, "sh " + script + " " + train(common + "--run.steps=1000000 --run.out=" + out));
  EXPECT_EQ(ended.code, 143) << ended.text;
  EXPECT_NE(ended.text.find("note: stopped after step "), std::string::npos) << ended.text;
  const Result<format::Checkpoints> checkpoints = format::Checkpoints::open(out + "/checkpoints", 1);
  LOOM_ASSERT_OK(checkpoints);
  const std::vector<uint64_t> steps = *checkpoints->complete_steps();
  ASSERT_EQ(steps.size(), 1u) << ended.text;
  EXPECT_FALSE(std::filesystem::exists(out + "/model"));
  EXPECT_TRUE(std::filesystem::exists(out + "/report.html"));

  const std::string longer = common + fmt::format("--run.steps={} ", steps[0] + 5);
  const Outcome resumed = on_processes(2, train(longer + "--run.out=" + out));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_NE(resumed.text.find(fmt::format("resumed after step {}\n", steps[0])), std::string::npos)
      << resumed.text;
  ASSERT_EQ(on_processes(2, train(longer + "--run.out=" + whole)).code, 0);
  EXPECT_EQ(losses(out), losses(whole));
}

/// The whole job is interrupted, as by Ctrl-C: weft_run tells its ranks and gives them time. Both used to die
/// in the step at hand. A shell has what it starts in the background ignore the signal, hence `env`.
TEST_F(Crash, InterruptedItSavesACheckpointAndGoesOn) {
  const std::string script = folder_ / "interrupt.sh", out = folder_ / "out";
  put_file(script,
           fmt::format("env --default-signal=INT \"$@\" & pid=$!\n"
                       "while [ \"$(cat '{}/log.jsonl' 2> /dev/null | wc -l)\" -lt 5 ]; do sleep 0.01; "
                       "done\n"
                       "kill -INT $pid; wait $pid\n",
                       out));
  const std::string keys = "--run.checkpoint_every=0 --run.out=" + out;
  const Outcome ended = shell("sh " + script + " " WEFT_RUN " -n 2 --no-label --grace 100 --timeout 120 " +
                              train(keys + " --run.steps=1000000"));
  EXPECT_EQ(ended.code, 130) << ended.text;
  EXPECT_NE(ended.text.find("weft_run: Interrupt; stopping the ranks, which have 100 s"), std::string::npos)
      << ended.text;
  EXPECT_NE(ended.text.find("note: stopped after step "), std::string::npos) << ended.text;
  EXPECT_TRUE(std::filesystem::exists(out + "/report.html"));
  const Result<format::Checkpoints> checkpoints = format::Checkpoints::open(out + "/checkpoints", 1);
  LOOM_ASSERT_OK(checkpoints);
  const std::vector<uint64_t> steps = *checkpoints->complete_steps();
  ASSERT_EQ(steps.size(), 1u) << ended.text;
  const Outcome resumed = on_processes(2, train(keys + fmt::format(" --run.steps={}", steps[0] + 2)));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_NE(resumed.text.find(fmt::format("resumed after step {}\n", steps[0])), std::string::npos)
      << resumed.text;
}

/// Without weft_run, whose own end by a signal is the same: what a shell or another launcher sees of a rank.
TEST_F(Crash, InterruptedARankExitsAsShellsExpect) {
  for (const auto& [signal, code] : {std::pair<const char*, int>("INT", 130), {"TERM", 143}}) {
    const std::string script = folder_ / "alone.sh", out = folder_ / signal;
    put_file(
        script,
        fmt::format("env --default-signal={0} {1} & pid=$!\n"
                    "while [ \"$(cat '{2}/log.jsonl' 2> /dev/null | wc -l)\" -lt 2 ]; do sleep "
                    "0.01; done\n"
                    "kill -{0} $pid; wait $pid\n",
                    signal, train("--run.checkpoint_every=0 --run.steps=1000000 --run.out=" + out), out));
    const Outcome ended = shell("timeout 100 sh " + script);
    EXPECT_EQ(ended.code, code) << ended.text;
    EXPECT_NE(ended.text.find("note: stopped after step "), std::string::npos) << ended.text;
  }
}

/// Who cannot wait interrupts twice. Rank 1 stands still, so the step of rank 0 does not end in between.
TEST_F(Crash, InterruptedAgainItDies) {
  const std::string script = folder_ / "twice.sh", still = folder_ / "still", dead = folder_ / "dead";
  put_file(script,
           fmt::format("env --default-signal=INT \"$@\" & pid=$!\n"
                       "if [ \"$WEFT_RANK\" = 1 ]; then\n"
                       "  while [ \"$(cat '{0}/log.jsonl' 2> /dev/null | wc -l)\" -lt 3 ]; do sleep 0.01; "
                       "done\n"
                       "  kill -STOP $pid; touch '{1}'\n"
                       "  while [ ! -e '{2}' ]; do sleep 0.01; done\n"
                       "  kill -KILL $pid; wait $pid\n"
                       "else\n"
                       "  while [ ! -e '{1}' ]; do sleep 0.01; done\n"
                       "  kill -INT $pid\n"
                       "  while grep -q '^ShdPnd:.*[2367abef]$' /proc/$pid/status; do sleep 0.01; done\n"
                       "  kill -INT $pid; wait $pid; echo \"rank 0 ended with $?\"; touch '{2}'\n"
                       "fi\n",
                       folder_ / "run", still, dead));
  const Outcome ended = on_processes(
      2, "sh " + script + " " + train("--run.steps=1000000 --run.checkpoint_every=0 --run.trace_ranks=0"));
  EXPECT_NE(ended.text.find("rank 0 ended with 130"), std::string::npos) << ended.text;
  EXPECT_EQ(ended.text.find("note: stopped"), std::string::npos) << ended.text;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/report.html")) << "it waited for the step";
}

/// A disk of one rank that fills up, as a limit on the size of its files from some step on.
class FullDisk : public Crash {
 protected:
  /// A script that starts a rank and, if it is this one, limits its files once the log has so many lines.
  std::string limiter(int rank, uint64_t bytes, int64_t lines) const {
    const std::string script = folder_ / "small.sh";
    put_file(
        script,
        fmt::format("if [ \"$WEFT_RANK\" != {} ]; then exec \"$@\"; fi\n"
                    "\"$@\" & pid=$!\n"
                    "while [ \"$(cat {}/log.jsonl 2> /dev/null | wc -l)\" -lt {} ]; do sleep 0.01; done\n"
                    "prlimit --pid $pid --fsize={}; wait $pid\n",
                    rank, folder_ / "run", lines, bytes));
    return "sh " + script + " ";
  }
  /// It ended with the sentence of that rank, which both ranks know, about a file of that name.
  static void expect_full(const Outcome& full, int rank, const std::string& file) {
    EXPECT_NE(full.code, 0) << full.text;
    EXPECT_NE(full.code, 124) << "a rank was left hanging: " << full.text;
    EXPECT_NE(full.text.find("File too large"), std::string::npos) << full.text;
    EXPECT_NE(full.text.find(file), std::string::npos) << full.text;
    EXPECT_NE(full.text.find(fmt::format("loom: rank {}: ", rank)), std::string::npos)
        << "the other rank does not know: " << full.text;
  }
  /// The newest complete checkpoint, which is one of step `least` or later, goes on.
  void expect_resumes(const std::string& keys, uint64_t least) const {
    Result<format::Checkpoints> checkpoints = format::Checkpoints::open(folder_ / "run/checkpoints", 2);
    LOOM_ASSERT_OK(checkpoints);
    const Result<std::optional<uint64_t>> latest = checkpoints->latest();
    LOOM_ASSERT_OK(latest);
    ASSERT_TRUE(latest->has_value());
    EXPECT_GE(**latest, least);
    const Outcome resumed = on_processes(2, train(keys + fmt::format("--run.steps={}", **latest + 2)));
    EXPECT_EQ(resumed.code, 0) << resumed.text;
    EXPECT_NE(resumed.text.find(fmt::format("resumed after step {}", **latest)), std::string::npos)
        << resumed.text;
  }

  int64_t lines_of_log() const {
    const std::string log = get_file(folder_ / "run/log.jsonl");
    return std::count(log.begin(), log.end(), '\n');
  }
  uint64_t bytes(const std::string& file) const {
    return std::filesystem::file_size(folder_ / ("run/" + file));
  }

  /// Rank 0 of a run may write files as large as `fits` was in the first four steps, but not as `full`, once
  /// the log has `lines` more lines; the run ends for that, and goes on from step `least` or later.
  void expect_full_between(const std::string& fits, const std::string& full, uint64_t apart, int64_t lines,
                           const std::string& keys, uint64_t least) const {
    ASSERT_EQ(on_processes(2, train(narrow_ + "--run.steps=4")).code, 0);
    const uint64_t smaller = bytes(fits), larger = bytes(full);
    ASSERT_LT(smaller + apart, larger);
    const Outcome outcome =
        on_processes(2, limiter(0, (smaller + larger) / 2, lines_of_log() + lines) + train(narrow_ + keys));
    expect_full(outcome, 0, std::filesystem::path(full).filename());
    expect_resumes(narrow_, least);
  }

  /// Rank 0 has the embedding of a narrow model, so that its state is smaller than the manifest, which has a
  /// line of each of many blocks, and that is smaller than the model.
  const std::string narrow_ =
      "--model.width=4 --model.heads=1 --model.layers=48 --parallel.pipeline_degree=2 "
      "--parallel.partition=0,1 --parallel.tied=copies "
      "--data.microbatch=4 --run.checkpoint_optimizer=false --run.trace_ranks=0 ";
};

TEST_F(FullDisk, EndsAllRanksAndTheCheckpointBeforeIsKept) {
  const std::string two = "--parallel.sharded_data_parallel_degree=2 ";
  ASSERT_EQ(on_processes(2, train(two + "--run.steps=4")).code, 0);
  for (const int rank : {1, 0}) {  // 8 KiB is much less than its part of a checkpoint
    const Outcome full =
        on_processes(2, limiter(rank, 8192, lines_of_log() + 2) +
                            train(two + "--run.steps=100000 --run.checkpoint_every=3 --run.keep=100000"));
    expect_full(full, rank, fmt::format("state-0000{}-of-00002.safetensors", rank));
    expect_resumes(two, 4);
  }
}

TEST_F(FullDisk, OfAManifestLeavesACheckpointThatIsPassedOver) {
  expect_full_between("checkpoints/step-00000004/state-00000-of-00001.safetensors",
                      "checkpoints/step-00000004/manifest.json", 500, 2,
                      "--run.steps=100000 --run.checkpoint_every=3 --run.keep=100000", 4);
}

TEST_F(FullDisk, OfTheModelLeavesTheLastCheckpoint) {
  expect_full_between("checkpoints/step-00000004/manifest.json", "model/model.safetensors", 2000, 1,
                      "--run.steps=30", 30);
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
