// What Loom trains, `transformers` computes with, to the same logits. Needs a Python with torch and
// transformers, such as `make interop` makes; its name may be given in LOOM_PYTHON. Skipped without.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "divide_into_files.h"
#include "engine/ranks.h"
#include "format/json_file.h"
#include "model/hugging_face.h"

namespace loom::testing {
namespace {

constexpr int kSkipped = 77;

/// Loads every model of a folder, and compares its logits with those of the checkpoint that it came from.
int load_families(const std::string& folder) {
  const char* const chosen = std::getenv("LOOM_PYTHON");
  const int status =
      std::system(fmt::format("{} '{}' '{}' '{}'", chosen ? chosen : "python3",
                              fixture("../interop/load_families.py"), folder, fixture("families"))
                      .c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A checkpoint, read by the ranks of two stages, each of tensor ranks, and gathered from them again.
void divide_and_save(const std::string& from, const std::string& to) {
  const auto spec = model::spec_from_config(*format::read_config(from));
  LOOM_ASSERT_OK(spec);
  const auto file = format::SafetensorsReader::open(from);
  LOOM_ASSERT_OK(file);
  program::Job job;
  job.spec = *spec;
  job.tokens = 10;
  job.targets = spec->task == model::Task::classification ? 1 : 0;
  job.pipeline_degree = 2;
  const model::AttentionGeometry attention = spec->attention();
  job.tensor_degree = attention.divides(2) ? 2 : static_cast<int>(attention.key_value_heads);
  job.world = job.pipeline_degree * job.tensor_degree;
  const auto read = [&](engine::Engine& engine, const engine::Groups&) { return engine.load_model(*file); };
  const auto save = [&](engine::Engine& engine, const engine::Groups&) { return engine.save_model(to); };
  train(job, 0, 0, read, save);
}

TEST(Interop, TransformersComputesTheSameLogitsOfEveryFamily) {
  const TemporaryFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(fixture("families"))) {
    const std::string to = folder / entry.path().filename().string();
    std::filesystem::create_directory(to);
    divide_and_save(entry.path().string(), to);
  }
  EXPECT_EQ(folder.entries(), 22u);
  const int exit = load_families(folder.path());
  if (exit == kSkipped) GTEST_SKIP() << "no Python with transformers";
  EXPECT_EQ(exit, 0);
}

/// The same in several files with an index, as models are saved that are larger than one file should be.
TEST(Interop, TransformersLoadsAModelInSeveralFiles) {
  const TemporaryFolder whole, folder;
  for (const char* family : {"bert", "gpt_neox", "llama"}) {
    const std::string from = whole / family, to = folder / family;
    std::filesystem::create_directory(from);
    std::filesystem::create_directory(to);
    divide_and_save(fixture(std::string("families/") + family), from);
    std::filesystem::copy(from + "/config.json", to + "/config.json");
    divide_into_files(from, to, 16 << 10);
  }
  const int exit = load_families(folder.path());
  if (exit == kSkipped) GTEST_SKIP() << "no Python with transformers";
  EXPECT_EQ(exit, 0);
}

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
