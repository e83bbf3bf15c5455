// A rank that dies in a step, as real processes of one node: no other rank is left hanging, also those that
// wait for somebody who is alive and has given up.
#include "command/processes.h"

namespace loom::testing {
namespace {

class Deaths : public Command {
 protected:
  /// A script that starts a rank and, if it is this one, kills it without a warning once it has done
  /// some steps.
  std::string killer(int rank) const {
    const std::string script = folder_ / "kill.sh";
    put_file(script, fmt::format("if [ \"$WEFT_RANK\" != {} ]; then exec \"$@\"; fi\n"
                                 "\"$@\" & pid=$!\n"
                                 "while [ \"$(cat {}/log.jsonl 2> /dev/null | wc -l)\" -lt 3 ]; do sleep "
                                 "0.01; done\n"
                                 "kill -9 $pid; wait $pid\n",
                                 rank, folder_ / "run"));
    return "sh " + script + " ";
  }
};

TEST_F(Deaths, LeaveNobodyWaitingInGroupsThatTheDeadRankWasNotIn) {
  struct Layout {
    const char* keys;
    int dies;
  };
  for (const auto& [keys, dies] :
       {Layout{"--parallel.sharded_data_parallel_degree=2 ", 3},
        Layout{"--parallel.pipeline_degree=2 --parallel.tensor_degree=2 --data.microbatch=1 ", 3},
        Layout{"--parallel.pipeline_degree=4 --data.microbatch=1 --model.layers=4 ", 2}}) {
    std::filesystem::remove_all(folder_ / "run");
    // Weft itself would give up after two minutes.
    const Outcome ended =
        shell(WEFT_RUN " -n 4 --no-label --keep-going --timeout 20 " + killer(dies) +
              train("--run.steps=1000000 --run.checkpoint_every=0 --run.trace_ranks=0 " + std::string(keys)));
    EXPECT_NE(ended.code, 0) << keys;
    EXPECT_NE(ended.code, 124) << keys << ": a rank was left hanging: " << ended.text;
    EXPECT_NE(ended.text.find(fmt::format("rank {} of communicator run is gone", dies)), std::string::npos)
        << keys << ended.text;
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
