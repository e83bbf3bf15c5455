// The configs of examples/: each is planned, and trains for two steps on the ranks that it asks for. Texts
// are made here, since those of the examples are fetched or need Python.
#include <filesystem>

#include "command/processes.h"

namespace loom::testing {
namespace {

/// Of one layout; a config without degrees has data ranks only, and is tried with two.
int ranks_of(const format::Json& config) {
  const format::Json parallel = config.value("parallel", format::Json::object());
  int ranks = 1;
  for (const char* degree : {"pipeline_degree", "tensor_degree", "sharded_data_parallel_degree"})
    ranks *= parallel.value(degree, 1);
  return std::max(2, ranks);
}

class Examples : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    std::string lines;
    for (int i = 0; i < 400; ++i)
      lines += fmt::format("even\tthe number {} is it\nodd\tit is {} of them\n", i, i * 3);
    put_file(folder_ / "texts.tsv", lines);
    tokenize("texts.tsv", "bytes", "--labels");
    tokenize("texts.tsv", "pieces", "--labels --tokenizer " + fixture("wordpiece.json"));
  }

  void tokenize(const std::string& file, const std::string& name, const std::string& options) {
    const Outcome made = loom("tokenize " + (folder_ / file) + " --out " + (folder_ / name) + " " + options);
    ASSERT_EQ(made.code, 0) << made.text;
  }

  /// A dataset of the kind that the example has.
  std::string data_of(const format::Json& config) const {
    if (config["model"].value("task", "") != "classification") return folder_ / "data";
    return folder_ / (config["model"]["family"] == "bert" ? "pieces" : "bytes");
  }
};

/// docs/results/training.md measures with them; they are too large to be trained here.
TEST_F(Examples, ThoseOfMeasurementsArePlanned) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOOM_MEASURED)) {
    SCOPED_TRACE(entry.path());
    ++found;
    const auto config = format::read_json(entry.path());
    LOOM_ASSERT_OK(config);
    const int ranks = config->value("parallel", format::Json::object()).value("pipeline_degree", 1);
    const bool asks = !(*config)["model"].contains("vocabulary");
    const Outcome planned = loom(fmt::format("plan {} -n {} --gflops 100{}", entry.path().string(), ranks,
                                             asks ? " --vocabulary 257" : ""));
    EXPECT_EQ(planned.code, 0) << planned.text;
    EXPECT_NE(planned.text.find("predicted step"), std::string::npos) << planned.text;
  }
  EXPECT_EQ(found, 4);
}

TEST_F(Examples, ArePlannedAndTrain) {
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOOM_EXAMPLES)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path());
    ++found;
    const auto config = format::read_json(entry.path());
    LOOM_ASSERT_OK(config);
    const int ranks = ranks_of(*config);
    const std::string out = folder_ / fmt::format("out-{}", found);
    const std::string arguments = fmt::format(
        "{} --data.folder={} --run.out={} --run.steps=2 --run.evaluation_steps=1 "
        "--parallel.threads=1",
        entry.path().string(), data_of(*config), out);
    const Outcome planned = loom("plan " + arguments + fmt::format(" -n {} --gflops 10", ranks));
    EXPECT_EQ(planned.code, 0) << planned.text;
    EXPECT_NE(planned.text.find("predicted step"), std::string::npos) << planned.text;
    const Outcome trained = on_processes(ranks, LOOM_PROGRAM " train " + arguments);
    EXPECT_EQ(trained.code, 0) << trained.text;
    EXPECT_NE(trained.text.find("step 2/2  loss "), std::string::npos) << trained.text;
    EXPECT_TRUE(std::filesystem::exists(out + "/model/config.json"));
  }
  EXPECT_GE(found, 6);
}

}  // namespace
}  // namespace loom::testing
