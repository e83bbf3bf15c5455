// Texts with labels in the forms that spreadsheets and other programs write.
#include <gtest/gtest.h>

#include "support.h"
#include "text/delimited.h"
#include "text/examples.h"

namespace loom::text {
namespace {

using testing::fails_with;
using testing::put_file;
using testing::TemporaryFolder;
using Pairs = std::vector<std::pair<std::string, std::string>>;

class ReadExamples : public ::testing::Test {
 protected:
  Result<std::vector<Example>> read(const char* name, std::string_view content) {
    put_file(folder_ / name, content);
    return read_examples(folder_ / name);
  }
  /// Labels and texts.
  Pairs pairs(const char* name, std::string_view content) {
    const auto examples = read(name, content);
    EXPECT_TRUE(examples.ok()) << examples.status().message();
    Pairs all;
    if (examples.ok())
      for (const Example& example : *examples) all.emplace_back(example.label, example.text);
    return all;
  }
  TemporaryFolder folder_;
};

/// The first label had the mark before it, and was a class of its own.
TEST_F(ReadExamples, AByteOrderMarkIsNoPartOfTheFirstLabel) {
  const Pairs wanted = {{"pos", "good"}, {"pos", "fine"}};
  EXPECT_EQ(pairs("a.tsv", "\xef\xbb\xbfpos\tgood\npos\tfine\n"), wanted);
  EXPECT_EQ(pairs("a.csv", "\xef\xbb\xbflabel,text\npos,good\npos,fine\n"), wanted);
  EXPECT_EQ(pairs("a.jsonl",
                  "\xef\xbb\xbf{\"text\": \"good\", \"label\": \"pos\"}\n"
                  "{\"text\": \"fine\", \"label\": \"pos\"}\n"),
            wanted);
  EXPECT_TRUE(fails_with(read("a.tsv", std::string_view("\xff\xfep\0o\0s\0", 8)), Code::invalid_data,
                         "byte order mark of UTF-16"));
}

TEST_F(ReadExamples, QuotedFieldsAreReadAsSpreadsheetsWriteThem) {
  const Pairs wanted = {{"a", "x \"y\", z"}, {"b", "two\r\nlines\tand a tab"}, {"c", "mid\"dle"}};
  EXPECT_EQ(
      pairs("a.tsv",
            "label\ttext\r\na\t\"x \"\"y\"\", z\"\r\nb\t\"two\r\nlines\tand a tab\"\r\n\"c\"\tmid\"dle"),
      wanted);
  EXPECT_EQ(pairs("a.csv",
                  "id,text,label\n1,\"x \"\"y\"\", z\",a\n2,\"two\r\nlines\tand a tab\",b\n\n3,mid\"dle,c\n"),
            wanted);
}

/// Two lines with a quotation mark each became one example, and one at the beginning of a text was refused.
TEST_F(ReadExamples, LinesWithoutNamesOfColumnsAreReadAsTheyStand) {
  EXPECT_EQ(pairs("a.tsv", "0\t\"A failure\n1\tit is not\"\r\n\n1\t\" simone \" is\ta \"\"look\"\"\n"),
            (Pairs{{"0", "\"A failure"}, {"1", "it is not\""}, {"1", "\" simone \" is\ta \"\"look\"\""}}));
  EXPECT_EQ(pairs("a.tsv", "\"a\"\tx"), (Pairs{{"\"a\"", "x"}}));
}

/// Every sentence was a class, and the first one was "sentence".
TEST_F(ReadExamples, ALineThatNamesOtherColumnsIsNoExample) {
  EXPECT_TRUE(fails_with(read("a.tsv", "sentence\tlabel\nit is good\t1\n"), Code::invalid_data,
                         "line 1: it names the columns \"sentence\" and \"label\", must name \"text\" and "
                         "\"label\""));
}

TEST_F(ReadExamples, TabsMayHaveColumnsWithNames) {
  EXPECT_EQ(pairs("a.tsv", "text\tlabel\tid\ngood\tpos\t7\n"), (Pairs{{"pos", "good"}}));
}

/// "pos " was a class beside "pos", and "" one beside both.
TEST_F(ReadExamples, WhatIsNoLabelIsRefusedByItsLine) {
  const auto refused = [&](const char* name, const char* content, const char* reason) {
    return fails_with(read(name, content), Code::invalid_data, reason);
  };
  EXPECT_TRUE(refused("a.tsv", "pos\tx\npos \ty\n", "line 2: the label \"pos \" has white space around it"));
  EXPECT_TRUE(refused("a.tsv", "pos\tx\n\ty\n", "line 2: the label is empty"));
  EXPECT_TRUE(refused("a.tsv", "pos\tx\n \ty\n", "line 2: the label is empty"));
  EXPECT_TRUE(refused("a.tsv", "pos\tx\npos\t\n", "line 2: the text is empty"));
  EXPECT_TRUE(
      refused("a.tsv", "a\tx\n   \n", "line 2: it must be a label, a tab and a text, but has no tab"));
  EXPECT_TRUE(refused("a.tsv", "label\ttext\na\tx\ty\n", "line 2: it must be 2 fields, but has 3"));
  EXPECT_TRUE(refused("a.jsonl", "{\"text\": \"x\", \"label\": \"\"}", "line 1: the label is empty"));
  EXPECT_TRUE(refused("a.jsonl", "{\"text\": \"x\", \"label\": \" a\"}", "white space around it"));
  EXPECT_TRUE(
      refused("a.jsonl", R"({"text": "a\u0000b", "label": "x"})", "the text has a NUL as its byte 1"));
  EXPECT_TRUE(
      refused("a.jsonl", R"({"text": "a", "label": "x\u0000"})", "the label has a NUL as its byte 1"));
  EXPECT_TRUE(
      refused("a.csv", "pos,x\n", "line 1: it must name the columns, of which \"text\" and \"label\""));
  EXPECT_TRUE(refused("a.csv", "label,text\npos,x,y\n", "line 2: it must be 2 fields, but has 3"));
}

TEST_F(ReadExamples, QuotationMarksThatDoNotFitAreRefusedByTheirLine) {
  EXPECT_TRUE(fails_with(read("a.tsv", "label\ttext\na\tx\nb\t\"open\nc\ty\n"), Code::invalid_data,
                         "line 3: a field begins with a quotation mark that nothing closes"));
  EXPECT_TRUE(fails_with(read("a.tsv", "label\ttext\na\t\"two\nlines\" more\n"), Code::invalid_data,
                         "line 3: a quotation mark closes a field that goes on"));
}

TEST_F(ReadExamples, TheFormatOfAFileMayBeGiven) {
  put_file(folder_ / "a", "{\"text\": \"x\", \"label\": 3}\n");
  const auto file = TextFile::open(folder_ / "a");
  LOOM_ASSERT_OK(file);
  const auto examples = read_examples(*file, "jsonl");
  LOOM_ASSERT_OK(examples);
  EXPECT_EQ((*examples)[0].label, "3");
  EXPECT_EQ((*examples)[0].line, 1);
  EXPECT_TRUE(fails_with(read_examples(*file, "xlsx"), Code::invalid_argument, "must be jsonl, csv or tsv"));
}

}  // namespace
}  // namespace loom::text
