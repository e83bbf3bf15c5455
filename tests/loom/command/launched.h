// What the tests of launchers share: that what was launched trained together.
#pragma once

#include "command/processes.h"

namespace loom::testing {

class Launched : public Command {
 protected:
  /// That the run had so many ranks, and the losses of one rank without a launcher.
  void expect_trained(const Outcome& trained, const std::string& ranks) {
    ASSERT_EQ(trained.code, 0) << trained.text;
    EXPECT_NE(trained.text.find(ranks), std::string::npos) << trained.text;
    const auto got = losses(folder_ / "run");
    const Outcome alone = shell(train(keys_ + "--run.out=" + (folder_ / "alone")));
    ASSERT_EQ(alone.code, 0) << alone.text;
    EXPECT_EQ(got.size(), 6u);
    EXPECT_EQ(got, losses(folder_ / "alone"));
  }

  const std::string keys_ = "--parallel.strict=true --data.microbatch=1 ",
                    two_ = keys_ + "--parallel.sharded_data_parallel_degree=2 ";
};

}  // namespace loom::testing
