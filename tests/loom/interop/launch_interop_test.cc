// Training under PyTorch's own torchrun. Needs a Python with torch, whose name may be given in LOOM_PYTHON.
// Skipped without.
#include <cstdlib>

#include "command/launched.h"

namespace loom::testing {
namespace {

class LaunchInterop : public Launched {
 protected:
  /// torchrun, as it is started in a Python that has no such program on its path.
  static std::string torchrun() {
    const char* const chosen = std::getenv("LOOM_PYTHON");
    return fmt::format("'{}' -m torch.distributed.run", chosen ? chosen : "python3");
  }
};

TEST_F(LaunchInterop, UnderTorchrun) {
  if (const Outcome help = shell(torchrun() + " --help"); help.code != 0)
    GTEST_SKIP() << "no Python with torch: " << help.text;
  const Outcome trained = shell("WEFT_LOG=error OMP_NUM_THREADS=1 timeout 120 " + torchrun() +
                                " --standalone --nproc_per_node 2 --no-python " + train(two_));
  expect_trained(trained, "2 ranks on 1 node, sharded over 2;");
}

TEST_F(LaunchInterop, TorchrunIsToldOfAFailure) {
  if (shell(torchrun() + " --help").code != 0) GTEST_SKIP() << "no Python with torch";
  const Outcome refused =
      shell("WEFT_LOG=error timeout 120 " + torchrun() + " --standalone --nproc_per_node 2 --no-python " +
            train("--parallel.sharded_data_parallel_degree=3"));
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.code, 124) << "a rank was left hanging: " << refused.text;
  EXPECT_NE(refused.text.find("sharded_data_parallel_degree"), std::string::npos) << refused.text;
}

}  // namespace
}  // namespace loom::testing
