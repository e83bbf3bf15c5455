// Which number a text's label has, with and without a model's classes.
#include "text/labels.h"

#include <gtest/gtest.h>

#include "support.h"

namespace loom::text {
namespace {

using testing::fails_with;
using Names = std::vector<std::string>;

Result<Labels> numbered(const Names& labels, const ModelClasses& classes = {}) {
  std::map<std::string, std::string> places;
  for (size_t i = 0; i < labels.size(); ++i)
    places.try_emplace(labels[i], fmt::format("t.tsv, line {}", i + 1));
  return Labels::make(places, classes);
}

/// The sentence said that "positive" is no class of a model that has it.
TEST(Labels, NamesAndNumbersTogetherAreRefusedAsSuch) {
  EXPECT_TRUE(fails_with(numbered({"0", "positive"}, {{"negative", "positive"}, "m"}), Code::invalid_argument,
                         "t.tsv, line 2: the label \"positive\", beside \"0\", is one of the classes of the "
                         "model m, but the labels are partly names and partly numbers: must be one of both"));
}

/// "10" came before "2", and a model of twelve classes was asked for others.
TEST(Labels, WholeNumbersAreInOrderOfTheirValues) {
  EXPECT_EQ(numbered({"10", "9", "2", "-1"})->names(), (Names{"-1", "2", "9", "10"}));
  EXPECT_EQ(numbered({"10", "9", "2", "-1"})->number("10"), 3);
  EXPECT_EQ(numbered({"10", "9", "x"})->names(), (Names{"10", "9", "x"})) << "not all of them are";
  EXPECT_EQ(numbered({"01", "1", "10"})->names(), (Names{"01", "1", "10"})) << "01 is a name";
  EXPECT_TRUE(fails_with(numbered({"1"}), Code::invalid_argument, "have 1 label, must have at least two"));
}

TEST(Labels, AModelsClassesAreTheNumbersInItsOrder) {
  const ModelClasses classes{{"weft", "warp", "selvedge"}, "m"};
  const auto labels = numbered({"warp", "weft"}, classes);
  LOOM_ASSERT_OK(labels);
  EXPECT_EQ(labels->names(), classes.names);
  EXPECT_EQ(labels->number("warp"), 1);
  EXPECT_EQ(labels->number("weft"), 0);
  EXPECT_EQ(labels->note(), "");
  const auto ids = numbered({"2", "0"}, classes);
  LOOM_ASSERT_OK(ids);
  EXPECT_EQ(ids->names(), classes.names);
  EXPECT_EQ(ids->number("2"), 2);
}

TEST(Labels, ClassesWithoutNamesAreTakenByTheirNumbers) {
  const ModelClasses classes{unnamed_classes(12), "m"};
  const auto labels = numbered({"10", "9", "2"}, classes);
  LOOM_ASSERT_OK(labels);
  EXPECT_EQ(labels->names().size(), 12u);
  EXPECT_EQ(labels->number("10"), 10);
  EXPECT_EQ(numbered({"LABEL_10", "LABEL_2"}, classes)->number("LABEL_10"), 10);
}

TEST(Labels, WhatIsNoClassOfTheModelIsNamedWithItsPlace) {
  const ModelClasses classes{{"negative", "positive"}, "m"};
  EXPECT_TRUE(
      fails_with(numbered({"negative", "postive"}, classes), Code::invalid_argument,
                 "t.tsv, line 2: the label \"postive\" is no class of the model m, which has \"negative\", "
                 "\"positive\": must be one of these or a number of 0 to 1"));
  EXPECT_TRUE(fails_with(numbered({"Positive", "Negative"}, classes), Code::invalid_argument, "is no class"))
      << "they differ by their case alone";
  EXPECT_TRUE(fails_with(numbered({"1", "2"}, classes), Code::invalid_argument,
                         "line 2: the label \"2\" is no class"))
      << "the first is 0";
}

TEST(Labels, NumbersThatAreNamesOfOtherClassesAreRefused) {
  const ModelClasses classes{{"1", "2", "3"}, "m"};
  EXPECT_TRUE(fails_with(numbered({"1", "2"}, classes), Code::invalid_argument,
                         "the label \"1\" is class 0 of the model m by its name and class 1 by its number"));
  EXPECT_EQ(numbered({"1", "2", "3"}, classes)->number("3"), 2) << "3 is no number of a class";
}

TEST(Labels, OtherClassesThanTheModelsAreNumberedByThemselvesAndSaySo) {
  const auto labels = numbered({"b", "a"}, {{"negative", "positive"}, "m"});
  LOOM_ASSERT_OK(labels);
  EXPECT_EQ(labels->names(), (Names{"a", "b"}));
  EXPECT_NE(labels->note().find("none of the labels is a class of the model m"), std::string::npos);
}

TEST(Labels, AreClassesByNameOrByNumber) {
  const Names classes = {"no", "yes"};
  EXPECT_TRUE(are_classes({"no", "yes"}, classes));
  EXPECT_TRUE(are_classes({"0", "1"}, classes));
  EXPECT_FALSE(are_classes({"yes", "no"}, classes));
  EXPECT_FALSE(are_classes({"1", "0"}, classes));
  EXPECT_FALSE(are_classes({"0", "1", "2"}, classes));
  EXPECT_FALSE(are_classes({"0", "1"}, {"1", "0"})) << "they are names of other classes";
  EXPECT_FALSE(are_classes({"0", "1"}, {"1", "2", "3"}));
  EXPECT_TRUE(are_classes({"0", "1"}, {"no", "yes", "2"}));
}

}  // namespace
}  // namespace loom::text
