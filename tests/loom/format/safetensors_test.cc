// Files that are right: written, read, replaced; one or several.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "base/file.h"
#include "format/json_file.h"
#include "format/safetensors_reader.h"
#include "format/safetensors_writer.h"
#include "support.h"

namespace loom::format {
namespace {

using testing::fails_with;
using testing::get_file;
using testing::put_file;
using testing::TemporaryFolder;

std::vector<DType> every_type() {
  std::vector<DType> all;
  for (int type = 0; type <= static_cast<int>(DType::c64); ++type) all.push_back(static_cast<DType>(type));
  return all;
}

std::vector<std::byte> pattern(uint64_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::byte>(seed * 31 + static_cast<int>(i) * 7);
  return data;
}

/// They became infinite, and the model useless, without a word.
TEST(Safetensors, NumbersThatFp16CannotHoldAreRefused) {
  const TemporaryFolder folder;
  const std::vector<TensorSpec> specs = {{"half", DType::f16, {2}}, {"brain", DType::bf16, {2}}};
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(folder / "a.safetensors", specs);
  LOOM_ASSERT_OK(writer);
  const std::vector<float> large = {1, -65520}, largest = {-65519, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(fails_with(writer->write_f32("half", large), Code::invalid_argument,
                         "tensor \"half\" has -65520, but fp16 ends at 65504"));
  LOOM_ASSERT_OK(writer->write_f32("half", largest));
  LOOM_ASSERT_OK(writer->write_f32("brain", large));
}

TEST(Safetensors, EveryTypeComesBack) {
  const TemporaryFolder folder;
  std::vector<TensorSpec> specs;
  for (const DType dtype : every_type()) specs.push_back({std::string(dtype_name(dtype)), dtype, {4, 6}});
  specs.push_back({"scalar", DType::f32, {}});
  specs.push_back({"nothing", DType::f64, {3, 0, 5}});
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::create(folder / "a.safetensors", specs, {{"who", "a test\n"}});
  LOOM_ASSERT_OK(writer);
  // In another order than declared, in two pieces.
  for (size_t i = specs.size(); i-- > 0;) {
    const std::vector<std::byte> data =
        pattern(*dtype_bytes(specs[i].dtype, *element_count(specs[i].shape)), static_cast<int>(i));
    const std::span<const std::byte> all = data;
    LOOM_ASSERT_OK(writer->write(specs[i].name, all.first(all.size() / 3)));
    LOOM_ASSERT_OK(writer->write(specs[i].name, all.subspan(all.size() / 3)));
  }
  LOOM_ASSERT_OK(writer->finish());
  EXPECT_EQ(folder.entries(), 1u);

  const Result<SafetensorsReader> reader = SafetensorsReader::open(folder / "a.safetensors");
  LOOM_ASSERT_OK(reader);
  EXPECT_EQ(reader->metadata(), (Metadata{{"who", "a test\n"}}));
  EXPECT_EQ(reader->names().size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const Result<TensorView> tensor = reader->tensor(specs[i].name);
    LOOM_ASSERT_OK(tensor);
    EXPECT_EQ(tensor->dtype, specs[i].dtype);
    EXPECT_EQ(tensor->shape, specs[i].shape);
    const std::vector<std::byte> data =
        pattern(*dtype_bytes(specs[i].dtype, *element_count(specs[i].shape)), static_cast<int>(i));
    EXPECT_TRUE(std::ranges::equal(tensor->bytes, data)) << specs[i].name;
  }
}

TEST(Safetensors, TheHeaderIsPaddedAndOffsetsAreAsSpecified) {
  const TensorSpec spec{"t", DType::i8, {3}};
  const Result<SafetensorsLayout> layout = lay_out_safetensors(std::span(&spec, 1), {});
  LOOM_ASSERT_OK(layout);
  EXPECT_EQ(layout->head.size() % 8, 0u);
  EXPECT_EQ(layout->head.substr(8), R"({"t":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}}   )");
  EXPECT_EQ(layout->file_bytes, layout->head.size() + 3);
}

TEST(Safetensors, ReadsWhatTheReferenceWrites) {
  const Result<SafetensorsReader> reader = SafetensorsReader::open(testing::fixture("reference.safetensors"));
  LOOM_ASSERT_OK(reader);
  EXPECT_EQ(reader->metadata().at("made by"), "safetensors");
  const std::vector<uint64_t> shape = {2, 3};
  std::vector<float> values(6);
  for (const char* name : {"f32", "f16", "bf16", "f64"}) {
    LOOM_ASSERT_OK(reader->read_f32(name, shape, values));
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(values[i], static_cast<float>(i) - 2.5f) << name;
  }
  const Result<TensorView> bytes = reader->tensor("i64");
  LOOM_ASSERT_OK(bytes);
  int64_t last = 0;
  std::memcpy(&last, bytes->bytes.data() + 8, 8);
  EXPECT_EQ(last, -7);
  EXPECT_EQ(reader->tensor("empty")->elements(), 0u);
}

TEST(Safetensors, MistakesOfReadersAreToldByName) {
  const Result<SafetensorsReader> reader = SafetensorsReader::open(testing::fixture("reference.safetensors"));
  LOOM_ASSERT_OK(reader);
  EXPECT_TRUE(fails_with(reader->tensor("bf_16"), Code::not_found, "no tensor \"bf_16\"; there is \"bf16\""));
  std::vector<float> values(6);
  const std::vector<uint64_t> other = {3, 2};
  EXPECT_TRUE(fails_with(reader->read_f32("f32", other, values), Code::invalid_data,
                         "the shape [2, 3], must be [3, 2]"));
  const std::vector<uint64_t> two = {2};
  EXPECT_TRUE(fails_with(reader->read_f32("i64", two, values), Code::unsupported,
                         "tensor \"i64\": elements are I64"));
  EXPECT_TRUE(fails_with(SafetensorsReader::open("/nowhere/x.safetensors"), Code::not_found,
                         "/nowhere/x.safetensors"));
}

TEST(Safetensors, WriterRefusesWhatIsNotDeclared) {
  const TemporaryFolder folder;
  const std::vector<TensorSpec> specs = {{"a", DType::f32, {2}}, {"b", DType::f32, {1}}};
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(folder / "a.safetensors", specs);
  LOOM_ASSERT_OK(writer);
  const std::vector<float> three(3);
  EXPECT_TRUE(fails_with(writer->write_f32("c", three), Code::not_found, "\"c\" was not declared"));
  EXPECT_TRUE(
      fails_with(writer->write_f32("a", three), Code::invalid_argument, "12 more bytes for tensor \"a\""));
  LOOM_ASSERT_OK(writer->write_f32("a", std::span(three).first(2)));
  EXPECT_TRUE(fails_with(writer->finish(), Code::invalid_argument, "\"b\""));
  EXPECT_FALSE(std::filesystem::exists(folder / "a.safetensors"));

  const std::vector<TensorSpec> twice = {{"a", DType::f32, {2}}, {"a", DType::f32, {1}}};
  EXPECT_TRUE(
      fails_with(SafetensorsWriter::create(folder / "b", twice), Code::invalid_argument, "another one has"));
  const std::vector<TensorSpec> odd = {{"a", DType::f4, {3}}};
  EXPECT_TRUE(
      fails_with(SafetensorsWriter::create(folder / "b", odd), Code::invalid_argument, "no whole number"));
  const std::vector<TensorSpec> latin = {{"\xe4", DType::f32, {3}}};
  EXPECT_TRUE(
      fails_with(SafetensorsWriter::create(folder / "b", latin), Code::invalid_argument, "not UTF-8"));
  const std::vector<TensorSpec> reserved = {{"__metadata__", DType::f32, {3}}};
  EXPECT_TRUE(
      fails_with(SafetensorsWriter::create(folder / "b", reserved), Code::invalid_argument, "format uses"));
}

TEST(Safetensors, WithoutFinishTheOldFileStays) {
  const TemporaryFolder folder;
  put_file(folder / "a.safetensors", "old");
  const std::vector<TensorSpec> specs = {{"a", DType::f32, {2}}};
  {
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(folder / "a.safetensors", specs);
    LOOM_ASSERT_OK(writer);
    LOOM_ASSERT_OK(writer->write_f32("a", std::vector<float>(2)));
  }
  EXPECT_EQ(get_file(folder / "a.safetensors"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Safetensors, AFullDiskIsToldAndLeavesTheOldFile) {
  const TemporaryFolder folder;
  put_file(folder / "a.safetensors", "old");
  const std::vector<TensorSpec> specs = {{"a", DType::f32, {100'000}}};
  EXPECT_TRUE(testing::with_file_limit(64 * 1024, [&] {
    const Result<SafetensorsWriter> writer = SafetensorsWriter::create(folder / "a.safetensors", specs);
    return !writer.ok() && writer.status().code() == Code::disk_full;
  }));
  EXPECT_EQ(get_file(folder / "a.safetensors"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

// Where space cannot be reserved, the write itself fails, and whatever is tried after it.
TEST(Safetensors, AFileThatCouldNotBeWrittenIsNeverCommitted) {
  const TemporaryFolder folder;
  EXPECT_TRUE(testing::with_file_limit(64 * 1024, [&] {
    Result<AtomicFile> file = AtomicFile::create(folder / "a");
    const Status written = file->append(std::vector<std::byte>(100'000));
    return written.code() == Code::disk_full && !file->commit().ok();
  }));
  EXPECT_EQ(folder.entries(), 0u);
}

class Models : public ::testing::Test {
 protected:
  Status write(uint64_t most_bytes, float value) {
    Result<ModelWriter> writer = ModelWriter::create(folder_.path(), specs_, {{"format", "pt"}}, most_bytes);
    if (!writer.ok()) return writer.status();
    for (const TensorSpec& spec : specs_) {
      LOOM_TRY(writer->write_f32(spec.name, std::vector<float>(*element_count(spec.shape), value)));
    }
    return writer->finish();
  }
  void expect(float value, size_t files) {
    const Result<SafetensorsReader> reader = SafetensorsReader::open(folder_.path());
    LOOM_ASSERT_OK(reader);
    EXPECT_EQ(reader->files().size(), files);
    EXPECT_EQ(reader->names().size(), specs_.size());
    for (const TensorSpec& spec : specs_) {
      std::vector<float> values(*element_count(spec.shape));
      LOOM_ASSERT_OK(reader->read_f32(spec.name, spec.shape, values));
      for (const float got : values) EXPECT_EQ(got, value);
    }
  }
  const TemporaryFolder folder_;
  const std::vector<TensorSpec> specs_ = {
      {"a", DType::f32, {10}}, {"b", DType::bf16, {2, 10}}, {"c", DType::f32, {40}}, {"d", DType::f16, {1}}};
};

TEST_F(Models, OneFileOrSeveralReplaceEachOther) {
  LOOM_ASSERT_OK(write(ModelWriter::kMostBytesAFile, 1));
  expect(1, 1);
  EXPECT_EQ(folder_.entries(), 1u);
  LOOM_ASSERT_OK(write(80, 2));  // a and b fill one; c is larger than a file; d
  expect(2, 3);
  EXPECT_EQ(folder_.entries(), 4u);
  const Result<Json> index = read_json(folder_ / "model.safetensors.index.json");
  LOOM_ASSERT_OK(index);
  EXPECT_EQ(index->at("metadata").at("total_size"), 40 + 40 + 160 + 2);
  EXPECT_EQ(index->at("weight_map").at("c"), "model-00002-of-00003.safetensors");
  LOOM_ASSERT_OK(write(200, 3));
  expect(3, 2);
  EXPECT_EQ(folder_.entries(), 3u);
  LOOM_ASSERT_OK(write(ModelWriter::kMostBytesAFile, 4));
  expect(4, 1);
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(Models, WhatAKilledWriterHasLeftGoes) {
  testing::put_file(folder_ / "model.safetensors.4711-2.tmp", "x");
  testing::put_file(folder_ / "model-00001-of-00002.safetensors.4711-3.tmp", "x");
  LOOM_ASSERT_OK(write(ModelWriter::kMostBytesAFile, 1));
  expect(1, 1);
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(Models, AnIndexIsNotTrusted) {
  LOOM_ASSERT_OK(write(80, 2));
  const std::string index = folder_ / "model.safetensors.index.json";
  const auto open_with = [&](std::string_view text) {
    put_file(index, text);
    return SafetensorsReader::open(folder_.path());
  };
  EXPECT_TRUE(fails_with(open_with("{"), Code::invalid_data, "bad JSON"));
  EXPECT_TRUE(fails_with(open_with("[]"), Code::invalid_data, "weight_map"));
  EXPECT_TRUE(
      fails_with(open_with(R"({"weight_map": {"a": "../x.safetensors"}})"), Code::invalid_data, "beside it"));
  EXPECT_TRUE(fails_with(open_with(R"({"weight_map": {"a": 3}})"), Code::invalid_data, "beside it"));
  EXPECT_TRUE(fails_with(open_with(R"({"weight_map": {"a": "gone.safetensors"}})"), Code::not_found, "gone"));
  EXPECT_TRUE(fails_with(open_with(R"({"weight_map": {"c": "model-00001-of-00003.safetensors"}})"),
                         Code::invalid_data, "has no tensor \"c\", which the index says"));
  const Result<SafetensorsReader> part =
      open_with(R"({"weight_map": {"b": "model-00001-of-00003.safetensors"}})");
  LOOM_ASSERT_OK(part);
  EXPECT_EQ(part->names(), (std::vector<std::string>{"a", "b"}));  // all of a file that the index names
}

/// Which of the two a reader takes would be an accident of the order of files.
TEST_F(Models, ATensorInTwoFilesOfAnIndexIsRefused) {
  LOOM_ASSERT_OK(write(80, 2));
  const TensorSpec spec{"a", DType::f32, {10}};
  for (const char* where : {"model-00001-of-00003.safetensors", "other.safetensors"}) {
    auto writer = SafetensorsWriter::create(folder_ / "other.safetensors", std::span(&spec, 1));
    LOOM_ASSERT_OK(writer);
    LOOM_ASSERT_OK(writer->write_f32("a", std::vector<float>(10, 3)));
    LOOM_ASSERT_OK(writer->finish());
    put_file(folder_ / "model.safetensors.index.json",
             fmt::format(R"({{"weight_map": {{"a": "{}", "b": "{}"}}}})", where,
                         where[0] == 'o' ? "model-00001-of-00003.safetensors" : "other.safetensors"));
    EXPECT_TRUE(fails_with(SafetensorsReader::open(folder_.path()), Code::invalid_data, "tensor \""))
        << where;
  }
}

TEST_F(Models, AFolderThatPyTorchAloneReadsSaysHowToConvert) {
  put_file(folder_ / "pytorch_model.bin", "PK");
  EXPECT_TRUE(
      fails_with(SafetensorsReader::open(folder_.path()), Code::not_found,
                 fmt::format("save_pretrained(f, safe_serialization=True)' {}` makes one", folder_.path())));
  std::filesystem::remove(folder_ / "pytorch_model.bin");
  put_file(folder_ / "adapter_model.safetensors", "");
  EXPECT_TRUE(fails_with(SafetensorsReader::open(folder_.path()), Code::not_found, "merge_and_unload"));
}

/// The index used to win, so Loom and `transformers` took the same folder for two models.
TEST_F(Models, OfOneFileAndAnIndexTheFileCountsAsForTransformers) {
  LOOM_ASSERT_OK(write(ModelWriter::kMostBytesAFile, 1));
  const std::string one = get_file(folder_ / "model.safetensors");
  LOOM_ASSERT_OK(write(80, 2));
  expect(2, 3);
  put_file(folder_ / "model.safetensors", one);
  expect(1, 1);
}

TEST(Folders, OfAFileAtTheTopIsTheTop) {  // where an index finds its files
  EXPECT_EQ(folder_of("/x.index.json"), "/");
  EXPECT_EQ(folder_of("x.index.json"), ".");
  EXPECT_EQ(folder_of("a/x.index.json"), "a");
}

TEST_F(Models, AFolderWithoutTensorsSaysWhatIsMissing) {
  EXPECT_TRUE(fails_with(SafetensorsReader::open(folder_.path()), Code::not_found,
                         "neither model.safetensors nor model.safetensors.index.json"));
  put_file(folder_ / "other.safetensors", "");
  EXPECT_TRUE(fails_with(SafetensorsReader::open(folder_.path()), Code::invalid_data,
                         "0 bytes are no safetensors file"));
}

}  // namespace
}  // namespace loom::format
