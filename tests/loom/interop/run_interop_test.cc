// The folder that a run leaves in `model`: AutoTokenizer gives the run's tokens, and what generates knows
// where a text ends. Needs a Python with transformers; its name may be given in LOOM_PYTHON. Skipped without.
#include <cstdlib>

#include "loom/model.h"
#include "text/bpe_trainer.h"
#include "text/examples.h"
#include "train/runs.h"

namespace loom::testing::run_interop_test {
namespace {

constexpr int kSkipped = 77;

class RunInterop : public Runs {
 protected:
  /// Runs interop/NAME with these arguments; its exit code.
  static int python(const std::string& name, const std::string& arguments) {
    const char* const chosen = std::getenv("LOOM_PYTHON");
    const int status = std::system(
        fmt::format("{} '{}' {}", chosen ? chosen : "python3", fixture("../interop/" + name), arguments)
            .c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// A run of a step on tokens of that tokenizer, whose model is saved.
  void train_on(const std::string& name, const std::string& path) {
    config_.data.folder = folder_ / ("data-" + name);
    config_.run.out = folder_ / ("out-" + name);
    config_.run.steps = config_.run.evaluation_steps = 1;
    make_tokens(config_.data.folder, path);
    run_on(1, config_, [](train::Trainer& trainer) { EXPECT_TRUE(trainer.save_model().ok()); });
  }
  /// Trains on tokens of that tokenizer, and asks `transformers` for those of many texts; its exit code.
  int ask(const std::string& name, const std::string& path) {
    train_on(name, path);
    const auto tokenizer = text::open_tokenizer(config_.data.folder);
    EXPECT_TRUE(tokenizer.ok());
    if (!tokenizer.ok()) return -1;
    format::Json expected = format::Json::array();
    const format::Json cases = format::read_json(fixture("cases.json")).take();
    for (const format::Json& item : cases.at("cases")) {
      const std::string text = item[0].get<std::string>();
      expected.push_back({text, (*tokenizer)->encode(text), text::example_tokens(text, **tokenizer)});
    }
    const std::string model = config_.run.out + "/model";
    EXPECT_TRUE(format::write_json(model + "/expected.json", expected).ok());
    EXPECT_TRUE(format::write_json(model + "/expected_ids.json", {{"bos", *(*tokenizer)->begin_of_text()},
                                                                  {"eos", *(*tokenizer)->end_of_text()}})
                    .ok());
    return python("load_tokenizer.py", "'" + model + "'");
  }
};

TEST_F(RunInterop, AutoTokenizerGivesTheTokensOfARunsModel) {
  text::BpeTraining training;
  training.vocabulary_size = 400;
  Result<text::BpeTrainer> trainer = text::BpeTrainer::create(training);
  LOOM_ASSERT_OK(trainer);
  trainer->add(get_file(fixture("corpus.txt")));
  const auto trained = trainer->train();
  LOOM_ASSERT_OK(trained);
  std::filesystem::create_directory(folder_ / "bpe");
  LOOM_ASSERT_OK((*trained)->save(folder_ / "bpe"));
  for (const auto& [name, path] : {std::pair<const char*, std::string>("bytes", "bytes"),
                                   {"bpe", folder_ / "bpe"},
                                   {"options", fixture("options.json")}}) {
    SCOPED_TRACE(name);
    const int exit = ask(name, path);
    if (exit == kSkipped) GTEST_SKIP() << "no Python with tokenizers and transformers";
    EXPECT_EQ(exit, 0);
  }
}

/// Texts were given to a saved RoBERTa without what begins and ends them, and its head saw another token.
TEST_F(RunInterop, APipelineGivesTheProbabilitiesOfARunsClassifier) {
  text::BpeTraining training;
  training.vocabulary_size = 400;
  training.special_tokens = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  Result<text::BpeTrainer> trainer = text::BpeTrainer::create(training);
  LOOM_ASSERT_OK(trainer);
  trainer->add(get_file(fixture("corpus.txt")));
  const auto trained = trainer->train();
  LOOM_ASSERT_OK(trained);
  std::filesystem::create_directory(folder_ / "bpe");
  LOOM_ASSERT_OK((*trained)->save(folder_ / "bpe"));
  for (const auto& [family, path] : {std::pair<const char*, std::string>("roberta", folder_ / "bpe"),
                                     {"bert", fixture("wordpiece.json")},
                                     {"gptj", folder_ / "bpe"}}) {
    SCOPED_TRACE(family);
    config_.model.family = family;
    config_.run.steps = 20;
    config_.optimizer.learning_rate = 5e-3;
    config_.run.out = folder_ / fmt::format("out-{}", family);
    config_.data.folder = folder_ / fmt::format("data-{}", family);
    make_examples(config_.data.folder, path);
    run_on(1, config_, [](train::Trainer& trainer) { EXPECT_TRUE(trainer.save_model().ok()); });
    const std::string folder = config_.run.out + "/model";
    Result<Model> model = Model::open(folder, 1);
    LOOM_ASSERT_OK(model);
    format::Json expected = format::Json::array();
    std::string longer = "it is";
    for (int i = 0; i < 60; ++i) longer += " 12";
    for (const std::string& text : {std::string("it is 12 of them"), std::string(" the number"), longer}) {
      const auto classes = model->classify(text);
      LOOM_ASSERT_OK(classes);
      format::Json named;
      for (const ClassProbability& one : *classes) named[one.label] = one.probability;
      expected.push_back({text, named});
    }
    LOOM_ASSERT_OK(format::write_json(folder + "/expected.json", expected));
    LOOM_ASSERT_OK(format::write_json(folder + "/context.json", model->context()));
    const int exit = python("classify.py", "'" + folder + "'");
    if (exit == kSkipped) GTEST_SKIP() << "no Python with torch and transformers";
    EXPECT_EQ(exit, 0);
  }
}

/// It leaves the byte tokenizer's tokenizer.json, and not the file that says to Loom that it is one.
TEST_F(RunInterop, AModelThatTransformersSavesAgainHasItsTokenizer) {
  train_on("again", "bytes");
  const std::string model = config_.run.out + "/model", again = folder_ / "again";
  const int exit = python("save_again.py", fmt::format("'{}' '{}'", model, again));
  if (exit == kSkipped) GTEST_SKIP() << "no Python with transformers";
  ASSERT_EQ(exit, 0);
  EXPECT_FALSE(std::filesystem::exists(again + "/loom-tokenizer.json"));
  const auto tokenizer = text::open_tokenizer(again);
  LOOM_ASSERT_OK(tokenizer);
  EXPECT_EQ((*tokenizer)->hash(), (*text::open_tokenizer(model))->hash());
  config_.model.from = again;  // the data's tokens are those of the model
  config_.model.width = config_.model.layers = 0;
  config_.run.out = folder_ / "tuned";
  EXPECT_EQ(run_on(1, config_).size(), 1u);
}

}  // namespace
}  // namespace loom::testing::run_interop_test
