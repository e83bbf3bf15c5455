// LOOM_INSTRUCTIONS chooses what a process computes with, and ranks that do not agree on it are told.
#include <cmath>

#include "command/processes.h"
#include "ops/tables.h"

namespace loom::testing {
namespace {

class Instructions : public Command {
 protected:
  /// Two ranks, of which the second has another environment.
  Outcome mixed(const std::string& keys, const std::string& second = "baseline") const {
    return on_processes(2, "sh -c 'test $WEFT_RANK = 1 && export LOOM_INSTRUCTIONS=" + second + "; exec " +
                               train(keys) + "'");
  }
  static bool this_cpu_has_but_one() { return ops::all_operators<float>().size() == 1; }
};

TEST_F(Instructions, OfEveryTableTrainToTheSameLossesButForRounding) {
  std::vector<std::multimap<int64_t, double>> all;
  for (const auto& table : ops::all_operators<float>()) {
    const std::string out = folder_ / table.name;
    const Outcome trained =
        shell(fmt::format("LOOM_INSTRUCTIONS={} {}", table.name, train("--run.out=" + out)));
    ASSERT_EQ(trained.code, 0) << trained.text;
    all.push_back(losses(out));
    ASSERT_EQ(all.back().size(), 6u);
    for (const auto& [step, loss] : all.back())
      EXPECT_NEAR(loss, all[0].find(step)->second, 1e-5 * loss) << table.name << ", step " << step;
  }
}

TEST_F(Instructions, ThatThereAreNotAreRefusedWithTheRightOnes) {
  const Outcome refused = shell("LOOM_INSTRUCTIONS=avx1024 " + train());
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.text.find(
                "LOOM_INSTRUCTIONS is \"avx1024\", must be amx, avx512_bf16, avx512, avx2 or baseline"),
            std::string::npos)
      << refused.text;
}

TEST_F(Instructions, ThatDifferBetweenRanksAreNotedOrRefusedInStrictOrder) {
  if (this_cpu_has_but_one()) GTEST_SKIP() << "this CPU has the baseline only";
  const Outcome noted = mixed("--parallel.strict=false");
  EXPECT_EQ(noted.code, 0) << noted.text;
  EXPECT_NE(noted.text.find("rank 1 with baseline, which rounds otherwise"), std::string::npos) << noted.text;
  const Outcome refused = mixed("--parallel.strict=true --run.out=" + (folder_ / "strict"));
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.text.find("LOOM_INSTRUCTIONS=baseline in every rank's environment"), std::string::npos)
      << refused.text;
}

TEST_F(Instructions, ForBfloat16DifferForModelsInShortFloatsOnly) {
  const std::string best = ops::all_operators<bf16>()[0].name;
  if (best != "amx" && best != "avx512_bf16") GTEST_SKIP() << "this CPU has none for bfloat16";
  const Outcome longer = mixed("--parallel.precision=fp32 --run.out=" + (folder_ / "fp32"), "avx512");
  EXPECT_EQ(longer.code, 0) << longer.text;
  EXPECT_EQ(longer.text.find("rounds otherwise"), std::string::npos) << longer.text;
  const Outcome shorter = mixed("--parallel.precision=bf16 --run.out=" + (folder_ / "bf16"), "avx512");
  EXPECT_EQ(shorter.code, 0) << shorter.text;
  EXPECT_NE(shorter.text.find("rank 0 computes with " + best + ", rank 1 with avx512, which"),
            std::string::npos)
      << shorter.text;
}

TEST_F(Instructions, ThatAreTheLowestOnAllRanksMakeThemEqual) {
  const Outcome trained =
      shell("export LOOM_INSTRUCTIONS=baseline; " WEFT_RUN " -n 2 --no-label --timeout 120 " +
            train("--parallel.strict=true"));
  EXPECT_EQ(trained.code, 0) << trained.text;
  EXPECT_EQ(trained.text.find("rounds otherwise"), std::string::npos) << trained.text;
}

}  // namespace
}  // namespace loom::testing
