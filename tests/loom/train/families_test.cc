// Runs of families and tasks other than GPT-2's, on one rank and on several.
#include <fmt/ranges.h>

#include <algorithm>

#include "loom/model.h"
#include "model/inference.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

class FamilyRuns : public Runs {
 protected:
  FamilyRuns() {
    config_.optimizer.learning_rate = 5e-3;
    config_.optimizer.schedule = "constant";
    config_.run.steps = 5;
  }

  std::vector<double> losses(int ranks, int degree) {
    train::Config config = config_;
    config.data.microbatch = 2;  // the same additions for every number of ranks
    config.parallel.sharded_data_parallel_degree = degree;
    config.run.out = folder_ / fmt::format("{}-{}-{}", config.model.family, ranks, degree);
    std::vector<double> losses;
    for (const auto& [step, record] :
         run_on(ranks, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); }))
      losses.push_back(record.loss);
    return losses;
  }

  const std::string pieces_ = fixture("wordpiece.json");
};

TEST_F(FamilyRuns, EveryCausalAndMaskedFamilyHasTheSameLossesOnFourRanks) {
  make_tokens(config_.data.folder, pieces_);
  for (const char* family :
       {"gptj", "gpt_neox", "gpt_neo", "bloom", "llama", "mistral", "qwen2", "qwen3", "bert", "roberta"}) {
    config_.model.family = family;
    const std::vector<double> one = losses(1, 1);
    ASSERT_EQ(one.size(), 5u) << family;
    EXPECT_LT(one.back(), one.front()) << family;
    EXPECT_EQ(losses(4, 2), one) << family;
  }
}

TEST_F(FamilyRuns, ClassificationsLearn) {
  for (const char* family : {"bert", "roberta", "gptj"}) {
    make_examples(config_.data.folder, std::string(family) == "gptj" ? "bytes" : pieces_);
    config_.model.family = family;
    config_.run.steps = 30;
    const std::vector<double> got = losses(2, 2);
    ASSERT_EQ(got.size(), 30u) << family;
    EXPECT_NEAR(got.front(), std::log(2.0), 0.2) << family;
    EXPECT_LT(got.back(), 0.2) << family;

    auto opened = model::Inference::open(folder_ / fmt::format("{}-2-2/model", family), 1);
    LOOM_ASSERT_OK(opened);
    const auto data = text::ExampleDataset::open(config_.data.folder, text::Split::validation);
    LOOM_ASSERT_OK(data);
    const auto batches = text::ExampleBatches::create(*data, {16, 10, 0, false});
    std::vector<text::Token> inputs(160), targets(160);
    LOOM_ASSERT_OK(batches->read(0, {0, 10}, inputs, targets));
    const auto logits = (*opened)->classify(inputs, 10, (*data)->texts().padding());
    LOOM_ASSERT_OK(logits);
    int right = 0;
    for (size_t i = 0; i < 10; ++i)
      right += ((*logits)[2 * i + 1] > (*logits)[2 * i]) == (targets[i * 16] == 1);
    EXPECT_GE(right, 9) << family;
  }
}

TEST_F(FamilyRuns, ValidationTellsHowManyTextsAreRight) {
  config_.run.evaluation_steps = 100;  // all of the 20 texts, once
  struct Layout {
    int ranks, shard, stages, tensor;
    int64_t batch;  // which divides them, or does not, or is larger
  };
  for (const char* family : {"bert", "gptj"}) {
    make_examples(config_.data.folder, std::string(family) == "gptj" ? "bytes" : pieces_);
    config_.model.family = family;
    for (const auto& [ranks, shard, stages, tensor, batch] :
         {Layout{1, 1, 1, 1, 8}, {2, 2, 1, 1, 32}, {2, 1, 2, 1, 4}, {2, 1, 1, 2, 24}, {4, 1, 2, 2, 8}}) {
      SCOPED_TRACE(fmt::format("{} on {} ranks, {} stages, {} tensor ranks", family, ranks, stages, tensor));
      train::Config config = config_;
      config.data.global_batch = batch;
      config.parallel.strict = false;
      config.parallel.sharded_data_parallel_degree = shard;
      config.parallel.pipeline_degree = stages;
      config.parallel.tensor_degree = tensor;
      config.run.steps = 4;
      config.run.out = folder_ / fmt::format("{}-{}-{}-{}", family, shard, stages, tensor);
      const Records records =
          run_on(ranks, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
      ASSERT_TRUE(records.at(3).validation_accuracy.has_value());
      EXPECT_FALSE(records.at(2).validation_accuracy.has_value());
      Result<Model> model = Model::open(config.run.out + "/model", 1);
      LOOM_ASSERT_OK(model);
      const Result<Evaluation> evaluation = model->evaluate(config.data.folder, {16, 4, 0});
      LOOM_ASSERT_OK(evaluation);
      ASSERT_EQ(evaluation->texts, 20);
      EXPECT_NEAR(*records.at(3).validation_accuracy * 20, static_cast<double>(evaluation->right), 1e-9);
      EXPECT_NEAR(*records.at(3).validation_loss, evaluation->loss, 1e-4);
    }
  }
}

TEST_F(FamilyRuns, NamesOfLabelsGoWithTheModel) {
  make_examples(config_.data.folder, pieces_);
  config_.model.family = "bert";
  config_.run.steps = 40;
  losses(1, 1);
  const std::string folder = folder_ / "bert-1-1/model";
  const format::Json config = *format::read_config(folder);
  EXPECT_EQ(config["id2label"], (format::Json{{"0", "even"}, {"1", "odd"}}));
  EXPECT_EQ(config["label2id"], (format::Json{{"even", 0}, {"odd", 1}}));

  Result<Model> model = Model::open(folder, 1);
  LOOM_ASSERT_OK(model);
  EXPECT_EQ(model->labels(), (std::vector<std::string>{"even", "odd"}));
  const auto classes = model->classify("it is 12 of them");
  LOOM_ASSERT_OK(classes);
  ASSERT_EQ(classes->size(), 2u);
  EXPECT_EQ((*classes)[0].label, "odd");
  EXPECT_NEAR((*classes)[0].probability + (*classes)[1].probability, 1, 1e-9);
  EXPECT_GE((*classes)[0].probability, (*classes)[1].probability);
  std::string longer = "it is";
  for (int i = 0; i < 50; ++i) longer += " 12";
  LOOM_ASSERT_OK(model->classify(longer + " of them"));  // is cut to the context
  // However many at a time, what is left is all that is computed.
  std::vector<Evaluation> evaluations;
  for (const int64_t batch : {int64_t{4}, int64_t{7}, int64_t{1} << 20, INT64_MAX}) {
    int64_t told = 0;
    const auto tell = [&](int64_t done, int64_t all) {
      EXPECT_EQ(done, ++told);
      EXPECT_EQ(all, (20 - 1) / batch + 1);
    };
    const Result<Evaluation> evaluation = model->evaluate(config_.data.folder, {0, batch, 0, tell});
    LOOM_ASSERT_OK(evaluation);
    EXPECT_EQ(evaluation->texts, 20);
    EXPECT_EQ(evaluation->sequences, 20);
    EXPECT_EQ(evaluation->batches, told);
    evaluations.push_back(*evaluation);
    EXPECT_EQ(evaluation->right, evaluations[0].right);
    EXPECT_NEAR(evaluation->loss, evaluations[0].loss, 1e-5);
  }
  EXPECT_EQ(model->evaluate(config_.data.folder, {0, 7, 2})->texts, 14);
  EXPECT_TRUE(fails_with(model->evaluate(config_.data.folder, {int64_t{1} << 50, 4, 0}),
                         Code::invalid_argument, "must be 1 to the model's context, 16"));

  // The same classes in another order would train the head for others.
  format::Json swapped = config;
  swapped["id2label"] = {{"0", "odd"}, {"1", "even"}};
  put_file(folder + "/config.json", swapped.dump());
  config_.model.from = folder;
  EXPECT_TRUE(
      fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument,
                 fmt::format("class 0 is \"odd\" in the model {} and \"even\" in the dataset", folder)));
  Result<Model> other = Model::open(folder, 1);
  LOOM_ASSERT_OK(other);
  EXPECT_TRUE(
      fails_with(other->evaluate(config_.data.folder), Code::invalid_argument,
                 fmt::format("class 0 is \"odd\" in the model {} and \"even\" in the dataset", folder)));
}

/// Its head was made for others, and nothing was said of it.
TEST_F(FamilyRuns, AClassifierThatBeginsFromOneWithOtherClassesSaysSo) {
  make_examples(config_.data.folder, pieces_);
  config_.model.family = "bert";
  config_.run.steps = 1;
  run_on(1, config_, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  config_.model.from = config_.run.out + "/model";
  config_.model.family.clear();
  config_.run.out = folder_ / "tuned";
  const auto notes = [&] {
    const auto trainer = train::Trainer::create(config_, nullptr);
    EXPECT_TRUE(trainer.ok()) << trainer.status().message();
    return trainer.ok() ? fmt::format("{}", fmt::join((*trainer)->notes(), "\n")) : std::string();
  };
  EXPECT_EQ(notes().find("classes"), std::string::npos);
  make_examples(config_.data.folder, pieces_, "prime", "square");
  EXPECT_NE(notes().find("has: \"even\", \"odd\", where the labels here are \"prime\", \"square\"; its head "
                         "begins with the weights of those"),
            std::string::npos)
      << notes();
  make_examples(config_.data.folder, pieces_, "odd", "square");
  EXPECT_TRUE(
      fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument, "class 0 is \"even\""));
  // The classes of a model without names are its numbers.
  format::Json unnamed = *format::read_config(config_.model.from);
  unnamed["id2label"] = {{"0", "LABEL_0"}, {"1", "LABEL_1"}};
  unnamed.erase("label2id");
  put_file(config_.model.from + "/config.json", unnamed.dump());
  make_examples(config_.data.folder, pieces_, "1", "0");
  EXPECT_EQ(notes().find("classes"), std::string::npos);
  LOOM_ASSERT_OK(Model::open(config_.model.from, 1)->evaluate(config_.data.folder));
  make_examples(config_.data.folder, pieces_, "odd", "even");
  EXPECT_TRUE(fails_with(Model::open(config_.model.from, 1)->evaluate(config_.data.folder),
                         Code::invalid_argument, "class 0 is \"LABEL_0\" in the model"));
  put_file(folder_ / "three.tsv", "a\tx\nb\ty\nc\tz\na\tx\nb\ty\nc\tz\n");
  LOOM_ASSERT_OK(text::tokenize_examples({folder_ / "three.tsv"}, config_.data.folder,
                                         **text::open_tokenizer(pieces_), 0.5));
  EXPECT_NE(notes().find("the last layer of its head begins at random"), std::string::npos) << notes();
}

/// The saved model's classes were called "0" and "1".
TEST_F(FamilyRuns, ADatasetOfNumbersTakesTheNamesOfTheModelThatItGoesOnWith) {
  make_examples(config_.data.folder, pieces_);
  config_.model.family = "bert";
  config_.run.steps = 1;
  const auto save = [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); };
  run_on(1, config_, save);
  const std::string checkpoint = config_.run.out + "/checkpoints/step-00000001";
  make_examples(config_.data.folder, pieces_, "0", "1");
  train::Config tuned = config_, again = config_;
  tuned.model.family.clear();
  tuned.model.from = config_.run.out + "/model";
  tuned.run.out = folder_ / "tuned";
  again.run.out = folder_ / "again";
  again.run.resume_from = checkpoint;
  again.run.steps = 2;
  for (const train::Config& config : {tuned, again}) {
    run_on(1, config, save);
    EXPECT_EQ((*format::read_config(config.run.out + "/model"))["id2label"],
              (format::Json{{"0", "even"}, {"1", "odd"}}));
    LOOM_ASSERT_OK(Model::open(config.run.out + "/model", 1)->evaluate(config_.data.folder));
  }
  tuned.run.steps = 2;
  EXPECT_EQ(run_on(1, tuned).size(), 1u) << "it goes on from its own checkpoint";
}

/// As many labels, of which the second has become the first: the run went on, and trained the head for
/// others.
TEST_F(FamilyRuns, ACheckpointOfClassesThatAreNumberedOtherwiseIsRefused) {
  make_examples(config_.data.folder, pieces_);
  config_.model.family = "bert";
  config_.run.steps = 1;
  run_on(1, config_);
  make_examples(config_.data.folder, pieces_, "prime", "odd");
  config_.run.steps = 2;
  constexpr char kReason[] = "class 0 is \"even\" in the checkpoint and \"odd\" in the dataset";
  EXPECT_TRUE(fails_with(train::Trainer::create(config_, nullptr), Code::invalid_argument, kReason));
  train::Config other = config_;
  other.run.out = folder_ / "other";
  other.run.resume_from = config_.run.out + "/checkpoints/step-00000001";
  EXPECT_TRUE(fails_with(train::Trainer::create(other, nullptr), Code::invalid_argument, kReason));
  // Other texts of the same classes, which begin anew.
  make_examples(config_.data.folder, pieces_, "odd", "even");
  EXPECT_EQ(run_on(1, other).begin()->first, 1);
}

TEST_F(FamilyRuns, ATrainedLanguageModelBeginsAClassification) {
  for (const char* family : {"bert", "roberta", "gptj"}) {
    SCOPED_TRACE(family);
    const std::string language = folder_ / fmt::format("{}-language", family);
    train::Config config = config_;
    make_tokens(config.data.folder, pieces_);
    config.model.family = family;
    config.run.out = language;
    run_on(1, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });

    make_examples(config.data.folder, pieces_);
    config.model = {};
    config.model.from = language + "/model";
    config.run.out = folder_ / fmt::format("{}-tuned", family);
    config.run.steps = 30;
    const Records got =
        run_on(2, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
    EXPECT_NEAR(got.at(0).loss, std::log(2.0), 0.3);
    EXPECT_LT(got.at(29).loss, 0.5 * got.at(0).loss);
    EXPECT_EQ((*format::read_config(config.run.out + "/model"))["id2label"]["1"], "odd");
  }
}

TEST_F(FamilyRuns, DataOfAnotherTaskIsRefused) {
  const auto created = [&] { return train::Trainer::create(config_, nullptr); };
  make_examples(config_.data.folder, pieces_);
  config_.model.family = "bert";
  config_.model.task = "masked";
  EXPECT_TRUE(fails_with(created(), Code::invalid_argument, "holds texts with labels"));
  config_.model.family = "gpt2";
  config_.model.task = "";
  EXPECT_TRUE(fails_with(created(), Code::unsupported, "gpt2 has no classification head"));
  make_tokens(config_.data.folder, pieces_);
  config_.model.family = "bert";
  config_.model.task = "classification";
  EXPECT_TRUE(fails_with(created(), Code::invalid_data, "loom tokenize --labels"));
  config_.model.task = "masked";
  config_.model.family = "mamba";
  EXPECT_TRUE(fails_with(created(), Code::unsupported, "\"mamba\" is unknown"));
}

/// Byte pairs in which token 1 ends a sequence, or fills it up.
class Pairs final : public text::Tokenizer {
 public:
  explicit Pairs(text::SpecialTokens specials) : specials_(specials) {}
  using text::Tokenizer::encode;
  void encode(std::string_view text, std::vector<text::Token>& tokens) const override {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  }
  Result<std::string> decode(std::span<const text::Token>) const override { return std::string(); }
  int64_t vocabulary_size() const override { return 256; }
  bool may_be_cut() const override { return true; }
  std::optional<text::Token> end_of_text() const override { return specials_.end; }
  text::SpecialTokens specials() const override { return specials_; }
  uint64_t hash() const override { return 0; }
  std::string description() const override { return "bytes"; }
  Status save(const std::string&) const override { return {}; }

 private:
  text::SpecialTokens specials_;
};

/// The last token of every sequence would be hidden from all others.
TEST_F(FamilyRuns, ASpecialTokenIsNotTakenForPadding) {
  const auto spec = [&](const char* family, text::SpecialTokens specials) {
    train::Data data;
    data.tokenizer = std::make_shared<Pairs>(specials);
    data.vocabulary = 256;
    data.padding = specials.padding.value_or(-1);
    config_.model.family = family;
    return train::spec_of(config_, data);
  };
  EXPECT_TRUE(fails_with(spec("roberta", {0, 1, 2, {}}), Code::invalid_argument,
                         "a roberta model takes token 1 for it, which ends a sequence here"));
  EXPECT_TRUE(fails_with(spec("bert", {0, 1, 2, {}}), Code::invalid_argument, "begins a sequence"));
  EXPECT_TRUE(fails_with(spec("roberta", {0, 2, 1, {}}), Code::invalid_argument, "hides a token"));
  EXPECT_EQ(spec("roberta", {0, 1, 2, 3})->padding, 3);
  EXPECT_EQ(spec("bert", {1, 2, 3, {}})->padding, 0);
  // No dataset could be filled up for it: positions are counted from a token that texts have.
  EXPECT_TRUE(fails_with(spec("roberta", {0, 2, 3, {}}), Code::invalid_argument,
                         "no padding token, from which a roberta model counts its positions"));
  LOOM_ASSERT_OK(spec("gpt2", {0, 1, 2, {}}));  // which has no padding
}

/// A bare body, and a classifier, begin a model of masked language.
TEST_F(FamilyRuns, AnotherTasksCheckpointBeginsAModelOfMaskedLanguage) {
  make_examples(config_.data.folder, pieces_);
  config_.model.family = "bert";
  losses(1, 1);
  const std::string classifier = folder_ / "bert-1-1/model";
  make_tokens(config_.data.folder, pieces_);
  config_.model = {};
  config_.model.from = classifier;
  config_.model.task = "masked";
  config_.run.out = folder_ / "masked";
  const Records got =
      run_on(1, config_, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  EXPECT_LT(got.at(4).loss, got.at(0).loss);
  Result<Model> model = Model::open(folder_ / "masked/model", 1);
  LOOM_ASSERT_OK(model);
  LOOM_ASSERT_OK(model->evaluate(config_.data.folder));
}

}  // namespace
}  // namespace loom::testing
