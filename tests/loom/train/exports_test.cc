// Every family's checkpoint of `transformers` goes through a run of stages and tensor ranks, and comes out of
// it, and out of the run's checkpoint, as it was: with the logits that PyTorch computes.
#include <filesystem>

#include "model/fixtures.h"
#include "train/runs.h"
#include "train/stored_state.h"

namespace loom::testing {
namespace {

/// A run of one step with a learning rate of 0: each rank loads its share, computes, and gives it back.
class Exports : public Runs {
 protected:
  Exports() {
    put_file(folder_ / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\n0\n1\n2\n3\nis\nthe\nnumber\n");
    for (const bool examples : {false, true}) make_data(examples);
    config_.model = {};
    config_.data.sequence_length = 9;  // with two sequences, rows that two and three tensor ranks divide
    config_.data.microbatch = 2;
    config_.parallel.strict = false;
    config_.optimizer.learning_rate = config_.optimizer.final_rate = 0;
    config_.run.steps = config_.run.evaluation_steps = 1;
  }

  /// Of fewer tokens than the smallest fixture has, with its padding and its three classes.
  void make_data(bool examples) {
    std::string lines;
    for (int i = 0; i < 200; ++i)
      lines += fmt::format("{}the number is {}\n", examples ? std::string(1, 'a' + i % 3) + "\t" : "", i % 4);
    put_file(folder_ / "lines.txt", lines);
    std::filesystem::create_directories(folder_ / "words");
    std::filesystem::copy(folder_ / "vocab.txt", folder_ / "words/vocab.txt",
                          std::filesystem::copy_options::overwrite_existing);
    const auto words = text::open_tokenizer(folder_ / "words");
    LOOM_ASSERT_OK(words);
    if (examples)
      LOOM_ASSERT_OK(text::tokenize_examples({folder_ / "lines.txt"}, folder_ / "examples", **words, 0.1));
    else LOOM_ASSERT_OK(text::tokenize_files({folder_ / "lines.txt"}, folder_ / "tokens", **words));
  }

  /// The same tensors, so the same model; read by what knows nothing of engines, it has PyTorch's logits.
  static void expect_as_it_was(const std::string& folder, const Fixture& given) {
    const auto before = format::SafetensorsReader::open(given.folder),
               after = format::SafetensorsReader::open(folder);
    LOOM_ASSERT_OK(before);
    LOOM_ASSERT_OK(after);
    EXPECT_FALSE(after->names().empty());
    for (const std::string& name : after->names()) {
      ASSERT_TRUE(before->contains(name)) << name;
      const auto then = before->tensor(name)->bytes, now = after->tensor(name)->bytes;
      EXPECT_TRUE(std::equal(then.begin(), then.end(), now.begin(), now.end())) << name;
    }
    WholeModel<float> whole = load_whole(folder);
    whole.step(given.integers("tokens"), given.integers("targets"), 2);
    EXPECT_LT(logits_error(whole, given), 1e-5);
  }
};

/// Its head was refused for its shape, or trained on for other classes without a word.
TEST_F(Exports, AClassifierThatBeginsFromOneWithOtherClassesSaysSo) {
  const auto notes = [&](const std::string& from) {
    train::Config config = config_;
    config.model.from = from;
    config.data.folder = folder_ / "examples";
    config.run.out = folder_ / "tuned";
    const auto trainer = train::Trainer::create(config, nullptr);
    EXPECT_TRUE(trainer.ok()) << trainer.status().message();
    std::string all;
    if (trainer.ok())
      for (const std::string& note : (*trainer)->notes()) all += note + "\n";
    return all;
  };
  const std::string given = fixture("families/bert-classification");
  EXPECT_EQ(notes(given).find("classifies other"), std::string::npos)
      << "three classes without names, as many labels";
  const std::string named = folder_ / "named";
  std::filesystem::copy(given, named);
  format::Json config = format::read_config(named).take();
  model::set_label_names({"x", "y", "z"}, config);
  LOOM_ASSERT_OK(format::write_config(named, config));
  EXPECT_NE(
      notes(named).find("classifies other texts than the dataset has: \"x\", \"y\", \"z\", where the labels "
                        "here are \"a\", \"b\", \"c\"; its head begins with the weights of those"),
      std::string::npos)
      << notes(named);
  put_file(folder_ / "two.tsv", "a\tthe number is 1\nb\tthe number is 2\na\tis 1\nb\tis 2\n");
  const auto words = text::open_tokenizer(folder_ / "words");
  LOOM_ASSERT_OK(text::tokenize_examples({folder_ / "two.tsv"}, folder_ / "examples", **words, 0.4));
  for (const std::string& from : {given, named}) {
    EXPECT_NE(notes(from).find("the last layer of its head begins at random"), std::string::npos)
        << notes(from);
    EXPECT_EQ(notes(from).find("since the file has none that fit"), std::string::npos) << "told once";
  }
  train::Config begun = config_;
  begun.model.from = named;
  begun.data.folder = folder_ / "examples";
  begun.run.out = folder_ / "tuned";
  run_on(1, begun);
  EXPECT_EQ(notes(named).find("begins at random"), std::string::npos) << "it goes on with a checkpoint";
}

TEST_F(Exports, EveryFamilysModelComesBackFromStagesAndTensorRanks) {
  std::vector<std::string> names = {"gpt2-tied", "gpt2-untied"};
  for (const auto& entry : std::filesystem::directory_iterator(fixture("families")))
    names.push_back("families/" + entry.path().filename().string());
  EXPECT_EQ(names.size(), 24u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Fixture given(name);
    const model::ModelSpec spec = given.spec();
    train::Config config = config_;
    config.model.from = given.folder;
    config.data.folder = folder_ / (spec.task == model::Task::classification ? "examples" : "tokens");
    config.run.out = folder_ / fmt::format("out-{}", std::filesystem::path(name).filename().string());
    const model::AttentionGeometry attention = spec.attention();
    config.parallel.tensor_degree = attention.divides(2) ? 2 : attention.key_value_heads;
    config.parallel.prescaled_batch = true;
    config.parallel.pipeline_degree = 2;
    run_on(static_cast<int>(2 * config.parallel.tensor_degree), config,
           [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
    expect_as_it_was(config.run.out + "/model", given);
    LOOM_ASSERT_OK(
        train::export_model(config.run.out + "/checkpoints/step-00000001", config.run.out + "/exported"));
    expect_as_it_was(config.run.out + "/exported", given);
  }
}

}  // namespace
}  // namespace loom::testing
