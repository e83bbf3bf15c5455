// A rank that dies, as real processes, at any time of a run: no other rank is left hanging, also those that
// wait for somebody who is alive and has given up, and every one of them says which rank it was.
#include <filesystem>

#include "command/processes.h"

namespace loom::testing {
namespace {

class Deaths : public Command {
 protected:
  static constexpr int kTries = 20;

  /// A script that starts a rank and, if it is this one, kills it without a warning once the shell finds that
  /// `when` is so; $pid is the process.
  std::string killer(int rank, const std::string& when) const {
    const std::string script = folder_ / "kill.sh";
    put_file(script, fmt::format("if [ \"$WEFT_RANK\" != {} ]; then exec \"$@\"; fi\n"
                                 "\"$@\" & pid=$!\n"
                                 "while kill -0 $pid 2> /dev/null && ! {{ {}; }}; do :; done\n"
                                 "kill -9 $pid; wait $pid\n",
                                 rank, when));
    return "sh " + script + " ";
  }
  std::string lines_of_log(int lines) const {
    return fmt::format("[ \"$(cat {}/log.jsonl 2> /dev/null | wc -l)\" -ge {} ]", folder_ / "run", lines);
  }

  /// Weft itself would give up after ten minutes.
  Outcome ended(int ranks, int nodes, int dies, const std::string& when, const std::string& keys) const {
    return shell(fmt::format(WEFT_RUN " -n {} --nodes {} --keep-going --timeout 20 {}{}", ranks, nodes,
                             killer(dies, when), train("--run.trace_ranks=0 " + keys)));
  }

  /// Whether each rank but that one has ended, with a line of its own that has these words, or those.
  static void expect_all_know(const Outcome& ended, int ranks, int dead, const std::string& words,
                              const std::string& or_words = {}) {
    EXPECT_NE(ended.code, 0) << ended.text;
    EXPECT_NE(ended.code, 124) << "a rank was left hanging: " << ended.text;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == dead) continue;
      const size_t begin = ended.text.find(fmt::format("[{}] loom: ", rank));
      ASSERT_NE(begin, std::string::npos) << "rank " << rank << " says nothing: " << ended.text;
      const std::string line = ended.text.substr(begin, ended.text.find('\n', begin) - begin);
      const bool known = line.find(words) != std::string::npos ||
                         (!or_words.empty() && line.find(or_words) != std::string::npos);
      EXPECT_TRUE(known) << "not \"" << words << "\": " << line;
    }
  }
  /// The same of a rank that died. Whoever reads its memory, or has a connection for data, may notice it
  /// first, and knows the group's number of the rank only.
  static void expect_death_known(const Outcome& ended, int ranks, int nodes, int dead) {
    expect_all_know(ended, ranks, dead, fmt::format("rank {} is dead", dead),
                    nodes > 1 ? "connection" : "its process");
  }
};

TEST_F(Deaths, InAStepLeaveNobodyWaitingInGroupsThatTheDeadRankWasNotIn) {
  const std::string endless = "--run.steps=1000000 --run.checkpoint_every=0 ";
  struct Layout {
    const char* keys;
    int dies, nodes;
  };
  for (const auto& [keys, dies, nodes] :
       {Layout{"--parallel.sharded_data_parallel_degree=2 ", 3, 1},
        Layout{"--parallel.sharded_data_parallel_degree=2 ", 0, 2},
        Layout{"--parallel.pipeline_degree=2 --parallel.tensor_degree=2 --data.microbatch=1 ", 3, 1},
        Layout{"--parallel.pipeline_degree=2 --parallel.tensor_degree=2 --data.microbatch=1 ", 0, 1},
        Layout{"--parallel.pipeline_degree=2 --parallel.tensor_degree=2 --data.microbatch=1 ", 2, 2},
        Layout{"--parallel.pipeline_degree=4 --data.microbatch=1 --model.layers=4 ", 2, 1}}) {
    SCOPED_TRACE(fmt::format("{}, rank {} dies, {} nodes", keys, dies, nodes));
    std::filesystem::remove_all(folder_ / "run");
    expect_death_known(ended(4, nodes, dies, lines_of_log(3), endless + keys), 4, nodes, dies);
  }
}

/// A rank that never joins, rank 0 being the one that the others join at.
TEST_F(Deaths, BeforeTheRanksHaveMetAreToldByTheDeadline) {
  ::setenv("WEFT_INIT_TIMEOUT_S", "2", 1);
  for (const int dies : {1, 0}) expect_all_know(ended(3, 1, dies, "true", ""), 3, dies, "could not join");
  ::unsetenv("WEFT_INIT_TIMEOUT_S");
}

TEST_F(Deaths, WhileARunStartsLoadsSavesOrEvaluatesAreToldToAll) {
  // So much that loading, and writing a checkpoint, take some time, and an evaluation more.
  const std::string large =
      "--model.width=384 --model.heads=6 --model.layers=6 --parallel.sharded_data_parallel_degree=2 "
      "--run.checkpoint_every=1 --run.keep=100 ";
  const std::string checkpoints = folder_ / "run/checkpoints";
  const std::string begun = "[ -d " + checkpoints + "/step-00000002 ]";
  for (const int dies : {1, 0}) {
    SCOPED_TRACE(fmt::format("rank {} dies", dies));
    std::filesystem::remove_all(folder_ / "run");
    expect_death_known(ended(2, 2, dies, begun, large + "--run.steps=50"), 2, 2, dies);
    EXPECT_FALSE(std::filesystem::exists(checkpoints + "/step-00000002/manifest.json")) << "it was saved";
    EXPECT_TRUE(std::filesystem::exists(checkpoints + "/step-00000001/manifest.json"));
    // From the checkpoint before, which is mapped as long as it is read.
    const std::string log = get_file(folder_ / "run/log.jsonl");
    // That takes some milliseconds, and the killer as long to look: if it has missed them it tries again.
    const std::string loads = "grep -q step-00000001/state- /proc/$pid/maps 2> /dev/null";
    std::filesystem::copy(folder_ / "run", folder_ / "kept", std::filesystem::copy_options::recursive);
    for (int tries = 1; tries <= kTries; ++tries) {
      const Outcome loading = ended(2, 1, dies, loads, large + "--run.steps=3");
      if (get_file(folder_ / "run/log.jsonl") == log) {
        expect_death_known(loading, 2, 1, dies);
        break;
      }
      EXPECT_LT(tries, kTries) << "it always went on for a step";
      std::filesystem::remove_all(folder_ / "run");
      std::filesystem::copy(folder_ / "kept", folder_ / "run", std::filesystem::copy_options::recursive);
    }
    std::filesystem::remove_all(folder_ / "kept");
    // What rank 0 writes when all is loaded, before machines are measured and the first step is done.
    std::filesystem::remove_all(folder_ / "run");
    expect_death_known(
        ended(2, 1, dies, "[ -f " + (folder_ / "run/config.json") + " ]", large + "--run.steps=50"), 2, 1,
        dies);
    EXPECT_EQ(get_file(folder_ / "run/log.jsonl"), "");
  }
  std::string text;
  for (int i = 0; i < 400000; ++i) text += fmt::format("line {} of {}\n", i, i * 7 % 10);
  put_file(folder_ / "text.txt", text);
  const Outcome made = loom("tokenize " + (folder_ / "text.txt") + " --out " + (folder_ / "data"));
  ASSERT_EQ(made.code, 0) << made.text;
  const std::string evaluates =
      "--data.sequence_length=4 --run.evaluate_every=2 --run.evaluation_steps=1000000 --run.steps=50";
  for (const int dies : {1, 0}) {
    std::filesystem::remove_all(folder_ / "run");
    // The line of the first step is there, that of the second waits for its evaluation.
    expect_death_known(ended(2, 2, dies, lines_of_log(1) + " && sleep 0.1", evaluates), 2, 2, dies);
    EXPECT_EQ(std::ranges::count(get_file(folder_ / "run/log.jsonl"), '\n'), 1) << "the evaluation was over";
  }
}

TEST_F(Deaths, ARunOfMoreStepsThanMemoryHoldsRecordsOfBegins) {
  const Outcome begun =
      shell(LOOM_PROGRAM " train " + config() +
            " --run.steps=3000000000 --run.checkpoint_every=0 | grep -m 1 'step 2/3000000000'");
  EXPECT_EQ(begun.code, 0) << begun.text;
}

}  // namespace
}  // namespace loom::testing
