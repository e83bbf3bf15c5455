// What Loom trains, `transformers` computes with, to the same logits. Needs a Python with torch and
// transformers; its name may be given in LOOM_PYTHON. Skipped without.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "engine/ranks.h"
#include "format/json_file.h"

namespace loom::testing {
namespace {

constexpr int kSkipped = 77;

TEST(Interop, TransformersComputesTheSameLogits) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "model");
  for (const bool tied : {true, false}) {
    program::Job job = small_job(2, 2, 1, kSequences / 2);
    job.spec.tied = tied;
    train(job, 0, 5, {}, [&](engine::Engine& engine, const engine::Groups& groups) -> Status {
      LOOM_TRY(engine.save_model(folder / "model"));
      const Result<std::vector<float>> logits = engine.logits(job.tokens - 1);
      LOOM_TRY(logits.status());
      if (groups.rank() != 0) return {};
      const std::span<const int32_t> tokens = engine.tokens(0).first(static_cast<size_t>(job.tokens));
      return format::write_json(
          folder / "expected.json",
          {{"tokens", std::vector<int32_t>(tokens.begin(), tokens.end())}, {"logits", *logits}});
    });
    const char* const chosen = std::getenv("LOOM_PYTHON");
    const int status = std::system(fmt::format("{} '{}' '{}'", chosen ? chosen : "python3",
                                               fixture("../interop/load_model.py"), folder.path())
                                       .c_str());
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no Python with transformers";
    EXPECT_EQ(WEXITSTATUS(status), 0) << (tied ? "tied" : "untied");
  }
}

}  // namespace
}  // namespace loom::testing
