// The classes of a model by its config.json, and the labels of a dataset that is made beside it.
#include "train/classes.h"

#include <gtest/gtest.h>

#include "loom/dataset.h"
#include "support.h"
#include "text/examples.h"
#include "text/tokenizer.h"

namespace loom::train {
namespace {

using format::Json;
using testing::fails_with;
using testing::fixture;
using testing::put_file;
using testing::TemporaryFolder;
using Names = std::vector<std::string>;

Json classifier(const Json& more = Json::object()) {
  Json config = {{"architectures", {"BertForSequenceClassification"}}, {"model_type", "bert"}};
  config.update(more);
  return config;
}

Names names(const Json& config) {
  const auto classes = classes_of(config, "m");
  EXPECT_TRUE(classes.ok()) << classes.status().message();
  return classes.ok() ? classes->names : Names();
}

TEST(Classes, AreThoseThatTheConfigNames) {
  EXPECT_EQ(names(classifier({{"id2label", {{"1", "a"}, {"0", "b"}}}})), (Names{"b", "a"}));
  EXPECT_EQ(names(classifier({{"label2id", {{"a", 1}, {"b", 0}}}})), (Names{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(names(classifier(
                {{"id2label", {{"0", "LABEL_0"}, {"1", "LABEL_1"}}}, {"label2id", {{"a", 1}, {"b", 0}}}})),
            (Names{"LABEL_0", "LABEL_1"}))
      << "transformers does not look at label2id";
  EXPECT_EQ(names(classifier({{"id2label", {{"0", "b"}, {"1", "a"}}}, {"label2id", {{"a", 0}, {"b", 1}}}})),
            (Names{"b", "a"}));
  EXPECT_EQ(names(classifier()), (Names{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(names(classifier({{"num_labels", 3}})), (Names{"LABEL_0", "LABEL_1", "LABEL_2"}));
  Json masked = classifier({{"id2label", {{"0", "b"}, {"1", "a"}}}});
  masked["architectures"] = {"BertForMaskedLM"};
  EXPECT_EQ(names(masked), Names());
  EXPECT_TRUE(fails_with(classes_of(classifier({{"id2label", {{"0", "a"}, {"1", "a"}}}}), "m"),
                         Code::invalid_data, "the classes 0 and 1 of config.json are both \"a\""));
}

/// 2,000,000,000 names of classes were made, and an "id2label" that is none was taken for two classes.
TEST(Classes, WhatIsNoCountOfThemIsRefused) {
  EXPECT_TRUE(fails_with(classes_of(classifier({{"num_labels", 2'000'000'000}}), "m"), Code::invalid_argument,
                         "num_labels"));
  EXPECT_TRUE(
      fails_with(classes_of(classifier({{"num_labels", 0}}), "m"), Code::invalid_argument, "num_labels"));
  EXPECT_TRUE(
      fails_with(classes_of(classifier({{"id2label", 3}}), "m"), Code::invalid_data, "id2label is 3"));
}

/// It was sent to a command that numbers labels by names, which the model does not have.
TEST(Classes, WithoutNamesAreAskedForByTheirNumbers) {
  EXPECT_TRUE(fails_with(check_classes({"neg", "pos"}, "d", {{"LABEL_0", "LABEL_1"}, "m"}),
                         Code::invalid_argument, "label the texts 0 to 1, in the model's order"));
  EXPECT_TRUE(fails_with(check_classes({"neg", "pos"}, "d", {{"pos", "neg"}, "m"}), Code::invalid_argument,
                         "`loom tokenize --labels --tokenizer m` numbers"));
}

/// Labels were in alphabetical order, whatever the model's was.
TEST(Classes, OfAModelNumberTheLabelsOfADatasetThatIsMadeWithIt) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "m");
  std::filesystem::copy(fixture("wordpiece.json"), folder / "m/tokenizer.json");
  put_file(folder / "m/config.json",
           classifier({{"id2label", {{"0", "weft"}, {"1", "warp"}, {"2", "edge"}}}}).dump());
  DatasetOptions options;
  options.labels = true;
  options.tokenizer = folder / "m";
  options.validation_fraction = 0.5;
  const auto made = [&](const char* lines) {
    put_file(folder / "t.tsv", lines);
    return make_dataset({folder / "t.tsv"}, folder / "d", options);
  };
  for (const char* lines : {"warp\tx\nweft\ty\nwarp\tx\nwarp\tx\n", "1\tx\n0\ty\n1\tx\n1\tx\n"}) {
    LOOM_ASSERT_OK(made(lines));
    const auto train = text::ExampleDataset::open(folder / "d", text::Split::train),
               held_out = text::ExampleDataset::open(folder / "d", text::Split::validation);
    LOOM_ASSERT_OK(train);
    LOOM_ASSERT_OK(held_out);
    EXPECT_EQ((*train)->label_names(), (Names{"weft", "warp", "edge"}));
    int sum = 0;
    for (const auto& split : {*train, *held_out})
      for (const uint64_t text : {0, 1}) sum += split->label(text);
    EXPECT_EQ(sum, 3);
  }
  EXPECT_TRUE(fails_with(made("warp\tx\nwoof\ty\n"), Code::invalid_argument,
                         "t.tsv, line 2: the label \"woof\" is no class of the model"));
  const auto others = made("b\tx\na\ty\nb\tx\na\ty\n");
  LOOM_ASSERT_OK(others);
  EXPECT_EQ(others->labels, (Names{"a", "b"}));
  EXPECT_NE(others->note.find("none of the labels is a class of the model"), std::string::npos);
  options.labels = false;
  options.format = "csv";
  EXPECT_TRUE(
      fails_with(made("a\tb\n"), Code::invalid_argument, "only files with labels or completions have one"));
}

}  // namespace
}  // namespace loom::train
