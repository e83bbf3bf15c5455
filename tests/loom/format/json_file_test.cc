// JSON read strictly, and values taken out of it with errors that name the key.
#include "format/json_file.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/mapped_file.h"
#include "support.h"

namespace loom::format {
namespace {

using testing::fails_with;
using testing::get_file;
using testing::put_file;
using testing::TemporaryFolder;

TEST(JsonFile, BadJsonIsToldWithItsPlace) {
  EXPECT_TRUE(fails_with(parse_json("{\n  \"a\": }"), Code::invalid_data, "line 2, column 8"));
  EXPECT_TRUE(fails_with(parse_json(""), Code::invalid_data, "bad JSON: it is empty"));
  EXPECT_TRUE(
      fails_with(parse_json(std::string("{}\0", 3)), Code::invalid_data, "bad JSON: byte 2 is a NUL"));
  EXPECT_TRUE(fails_with(parse_json("{} {}"), Code::invalid_data, "bad JSON"));
  EXPECT_TRUE(fails_with(parse_json("\"\xff\""), Code::invalid_data, "bad JSON"));
  EXPECT_TRUE(fails_with(parse_json("[1e999]"), Code::invalid_data, "bad JSON"));
  EXPECT_TRUE(fails_with(parse_json(R"({"a": {"b": 1, "c": 2, "b": 3}})"), Code::invalid_data,
                         "the key \"b\" twice"));
  const TemporaryFolder folder;
  put_file(folder / "twice.json", R"({"a": 1, "a": 2})");
  EXPECT_TRUE(fails_with(read_sorted_json(folder / "twice.json"), Code::invalid_data, "the key \"a\" twice"));
  LOOM_ASSERT_OK(parse_json(R"([{"a": 1}, {"a": 2}])"));
}

TEST(JsonFile, DeepNestingIsRefusedNotACrash) {
  EXPECT_TRUE(fails_with(parse_json(std::string(1'000'000, '[') + std::string(1'000'000, ']')),
                         Code::invalid_data, "deeper than 100"));
  LOOM_ASSERT_OK(parse_json(std::string(90, '[') + std::string(90, ']')));
  std::string objects;
  for (int level = 0; level < 200'000; ++level) objects += R"({"a": )";
  EXPECT_TRUE(fails_with(parse_json(objects), Code::invalid_data, "deeper than 100"));
}

// The tree of the whole text was made first, of some 80 bytes for each bracket.
TEST(JsonFile, DeepNestingIsRefusedBeforeTheRestIsRead) {
  const std::string deep(102, '[');
  EXPECT_TRUE(fails_with(parse_json(deep), Code::invalid_data, "deeper than 100"));
  EXPECT_TRUE(fails_with(parse_json(R"({"a": 1, "a": no JSON)"), Code::invalid_data, "the key \"a\" twice"));
}

TEST(JsonFile, AConfigStaysAsItWas) {
  const TemporaryFolder folder;
  const std::string text =
      "{\n  \"model_type\": \"gpt2\",\n  \"n_layer\": 2,\n  \"activation\": null,\n  \"eps\": 1e-05\n}\n";
  put_file(folder / "config.json", text);
  const Result<Json> config = read_config(folder.path());
  LOOM_ASSERT_OK(config);
  LOOM_ASSERT_OK(write_config(folder.path(), *config));
  EXPECT_EQ(get_file(folder / "config.json"), text);
}

TEST(JsonFile, AConfigMustBeOne) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_with(read_config(folder.path()), Code::not_found, "config.json"));
  put_file(folder / "config.json", R"({"modeltype": "gpt2"})");
  EXPECT_TRUE(fails_with(read_config(folder.path()), Code::invalid_data,
                         "\"model_type\" is missing, must be a text (there is \"modeltype\")"));
  put_file(folder / "config.json", "[]");
  EXPECT_TRUE(fails_with(read_config(folder.path()), Code::invalid_data, "[], must be an object"));
}

TEST(JsonFile, ValuesOfTheRightTypeOnly) {
  const Json json =
      *parse_json(R"({"i": 3, "big": 3000000000, "neg": -1, "f": 0.5, "huge": 1e300, "s": "x", "b": true,
                                    "n": null, "list": ["a", "b"], "mixed": ["a", 1]})");
  EXPECT_EQ(*required<int>(json, "i"), 3);
  EXPECT_EQ(*required<double>(json, "i"), 3.0);
  EXPECT_EQ(*required<int64_t>(json, "big"), 3'000'000'000);
  EXPECT_EQ(*required<std::vector<std::string>>(json, "list"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(*required<bool>(json, "b"));
  EXPECT_TRUE(fails_with(required<int>(json, "big"), Code::invalid_data,
                         "\"big\" is 3000000000, must be a whole number"));
  EXPECT_TRUE(fails_with(required<uint64_t>(json, "neg"), Code::invalid_data, "not negative"));
  EXPECT_TRUE(fails_with(required<int>(json, "f"), Code::invalid_data, "\"f\" is 0.5"));
  EXPECT_TRUE(fails_with(required<float>(json, "huge"), Code::invalid_data, "must be a number"));
  EXPECT_TRUE(fails_with(required<std::string>(json, "i"), Code::invalid_data, "must be a text"));
  EXPECT_TRUE(fails_with(required<bool>(json, "i"), Code::invalid_data, "true or false"));
  EXPECT_TRUE(fails_with(required<int>(json, "b"), Code::invalid_data, "must be a whole number"));
  EXPECT_TRUE(
      fails_with(required<std::vector<std::string>>(json, "mixed"), Code::invalid_data, "a list of texts"));
  EXPECT_TRUE(fails_with(required<int>(json, "n"), Code::invalid_data, "\"n\" is missing"));
  EXPECT_EQ(*value_or<int>(json, "n", 7), 7);
  EXPECT_EQ(*value_or<int>(json, "absent", 7), 7);
  EXPECT_EQ(*value_or<int>(json, "i", 7), 3);
  EXPECT_TRUE(fails_with(value_or<int>(json, "s", 7), Code::invalid_data, "\"s\" is \"x\""));
}

TEST(JsonFile, NearestNames) {
  const std::vector<std::string> known = {"learning_rate", "weight_decay", "seed"};
  EXPECT_EQ(nearest_name("learnin_rate", known), "learning_rate");
  EXPECT_EQ(nearest_name("weigth_decay", known), "weight_decay");
  EXPECT_EQ(nearest_name("sed", known), "seed");
  EXPECT_EQ(nearest_name("dropout", known), "");
  EXPECT_EQ(nearest_name("", known), "");
}

TEST(JsonFile, TextThatIsNotUtf8IsNotWritten) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_with(write_json(folder / "a.json", Json("\xff")), Code::invalid_argument, "not UTF-8"));
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(File, ReadsUpToALimit) {
  const TemporaryFolder folder;
  put_file(folder / "a", std::string(3'000'000, 'x'));
  EXPECT_EQ(read_file(folder / "a")->size(), 3'000'000u);
  EXPECT_TRUE(
      fails_with(read_file(folder / "a", 2'999'999), Code::invalid_data, "longer than 2999999 bytes"));
  EXPECT_TRUE(fails_with(read_file(folder / "b"), Code::not_found, "cannot open"));
  EXPECT_TRUE(fails_with(make_folders(folder / "a"), Code::invalid_argument, "must be a folder"));
}

TEST(File, FilesGetTheModeThatUmaskLeaves) {
  const TemporaryFolder folder;
  LOOM_ASSERT_OK(write_file(folder / "a", "x"));
  put_file(folder / "b", "x");
  EXPECT_EQ(std::filesystem::status(folder / "a").permissions(),
            std::filesystem::status(folder / "b").permissions());
}

TEST(MappedFile, OnlyPlainFilesAreMapped) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_with(MappedFile::open(folder.path()), Code::invalid_argument, "is a folder"));
  EXPECT_TRUE(fails_with(MappedFile::open("/dev/null"), Code::invalid_argument, "no plain file"));
  EXPECT_TRUE(fails_with(MappedFile::open(folder / "a"), Code::not_found, "cannot open"));
  put_file(folder / "a", "");
  LOOM_ASSERT_OK(MappedFile::open(folder / "a"));
  put_file(folder / "a", "abc");
  Result<MappedFile> opened = MappedFile::open(folder / "a");
  LOOM_ASSERT_OK(opened);
  const MappedFile moved = opened.take();
  EXPECT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(moved.bytes()[2], std::byte{'c'});
}

}  // namespace
}  // namespace loom::format
