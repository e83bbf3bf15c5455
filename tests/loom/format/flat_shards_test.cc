// What p owners write, any number of readers read, whatever range they want.
#include "format/flat_shards.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support.h"

namespace loom::format {
namespace {

using testing::fails_with;
using testing::put_file;
using testing::TemporaryFolder;

float value_at(size_t buffer, uint64_t element) { return static_cast<float>(buffer * 100'000 + element); }

/// Buffers of odd lengths, in parts that are padded to a multiple of 4 as a training engine pads them.
FlatLayout layout_of(int owners) {
  std::vector<FlatBuffer> buffers;
  for (const uint64_t elements : {1, 7, 64, 1001}) {
    const uint64_t part = (FlatLayout::even_part(elements, owners) + 3) / 4 * 4;
    buffers.push_back({fmt::format("unit{}/master", buffers.size()), elements, part});
  }
  return FlatLayout::make("state", owners, buffers).take();
}

Status write_all(const std::string& folder, const FlatLayout& layout) {
  for (int owner = 0; owner < layout.owners(); ++owner) {
    Result<FlatWriter> writer = FlatWriter::create(folder, layout, owner);
    if (!writer.ok()) return writer.status();
    for (size_t b = 0; b < layout.buffers().size(); ++b) {
      const FlatBuffer& buffer = layout.buffers()[b];
      std::vector<float> part(buffer.part_elements, -1.0f);  // -1 is padding
      const FlatRange range = FlatLayout::range(buffer, owner);
      for (uint64_t i = 0; i < range.size(); ++i) part[i] = value_at(b, range.begin + i);
      LOOM_TRY(writer->write(buffer.name, part));
    }
    LOOM_TRY(writer->finish());
  }
  return {};
}

class FlatShards : public ::testing::TestWithParam<int> {};

TEST_P(FlatShards, AnyOtherNumberOfOwnersReadsThem) {
  const TemporaryFolder folder;
  const FlatLayout written = layout_of(GetParam());
  LOOM_ASSERT_OK(write_all(folder.path(), written));
  Result<FlatLayout> stored = FlatLayout::from_json("state", *parse_json(written.to_json().dump()));
  LOOM_ASSERT_OK(stored);
  const FlatReader reader(folder.path(), stored.take());
  for (const int owners : {1, 2, 3, 4, 5, 8, 16}) {
    const FlatLayout wanted = layout_of(owners);
    for (size_t b = 0; b < wanted.buffers().size(); ++b) {
      const FlatBuffer& buffer = wanted.buffers()[b];
      for (int owner = 0; owner < owners; ++owner) {
        std::vector<float> part(buffer.part_elements, -2.0f);
        const uint64_t begin = FlatLayout::range(buffer, owner).begin;
        LOOM_ASSERT_OK(reader.read(buffer.name, begin, part));
        for (uint64_t i = 0; i < part.size(); ++i) {
          ASSERT_EQ(part[i], begin + i < buffer.elements ? value_at(b, begin + i) : 0.0f)
              << buffer.name << " owner " << owner << " of " << owners;
        }
      }
    }
  }
}

TEST_P(FlatShards, RangesCoverEachElementOnce) {
  const FlatLayout layout = layout_of(GetParam());
  for (const FlatBuffer& buffer : layout.buffers()) {
    uint64_t end = 0;
    for (int owner = 0; owner < GetParam(); ++owner) {
      const FlatRange range = FlatLayout::range(buffer, owner);
      EXPECT_EQ(range.begin, end);
      end = range.end;
    }
    EXPECT_EQ(end, buffer.elements);
  }
}

INSTANTIATE_TEST_SUITE_P(Owners, FlatShards, ::testing::Values(1, 2, 3, 4, 7, 8, 64));

TEST(FlatLayouts, MistakesAreTold) {
  EXPECT_TRUE(fails_with(FlatLayout::make("s", 0, {}), Code::invalid_argument, "0 owners"));
  EXPECT_TRUE(fails_with(FlatLayout::make("a/b", 1, {}), Code::invalid_argument, "part of a file's name"));
  EXPECT_TRUE(fails_with(FlatLayout::make("s", 2, {{"a", 10, 4}}), Code::invalid_argument,
                         "parts of 4 elements, must be in [5,"));
  EXPECT_TRUE(fails_with(FlatLayout::make("s", 2, {{"a", 0, 4}}), Code::invalid_argument, "has 0 elements"));
  EXPECT_TRUE(fails_with(FlatLayout::make("s", 2, {{"a", 4, 2}, {"a", 4, 2}}), Code::invalid_argument,
                         "two buffers"));
  EXPECT_TRUE(
      fails_with(FlatLayout::from_json("s", Json::object()), Code::invalid_data, "\"owners\" is missing"));
  EXPECT_TRUE(
      fails_with(FlatLayout::from_json("s", *parse_json(R"({"owners": 2})")), Code::invalid_data, "buffers"));
  EXPECT_TRUE(fails_with(
      FlatLayout::from_json(
          "s",
          *parse_json(
              R"({"owners": 2, "buffers": [{"name": "a", "elements": 18446744073709551615, "part_elements": 1}]})")),
      Code::invalid_data, "must be in [1,"));
}

TEST(FlatReaders, MissingOrForeignFilesAreTold) {
  const TemporaryFolder folder;
  const FlatLayout layout = layout_of(2);
  LOOM_ASSERT_OK(write_all(folder.path(), layout));
  std::vector<float> values(7);
  const FlatReader reader(folder.path(), layout);
  EXPECT_TRUE(
      fails_with(reader.read("unit9/master", 0, values), Code::not_found, "there is \"unit0/master\""));
  EXPECT_TRUE(fails_with(reader.read("unit1/master", 8, values), Code::invalid_argument,
                         "from 8, must be at most 7"));

  std::filesystem::copy(folder / layout.file_name(0), folder / layout.file_name(1),
                        std::filesystem::copy_options::overwrite_existing);
  const FlatReader foreign(folder.path(), layout);
  EXPECT_TRUE(fails_with(foreign.read("unit1/master", 0, values), Code::invalid_data, "must be 3 of F32"));
  std::filesystem::remove(folder / layout.file_name(1));
  const FlatReader missing(folder.path(), layout);
  EXPECT_TRUE(fails_with(missing.read("unit1/master", 0, values), Code::not_found, "state-00001-of-00002"));
}

TEST(FlatWriters, MistakesAreTold) {
  const TemporaryFolder folder;
  const FlatLayout layout = layout_of(2);
  EXPECT_TRUE(
      fails_with(FlatWriter::create(folder.path(), layout, 2), Code::invalid_argument, "must be in [0, 2)"));
  Result<FlatWriter> writer = FlatWriter::create(folder.path(), layout, 0);
  LOOM_ASSERT_OK(writer);
  const std::vector<float> part(4);
  EXPECT_TRUE(
      fails_with(writer->write("unit3/master", part), Code::invalid_argument, "must be at least 504"));
  LOOM_ASSERT_OK(writer->write("unit1/master", part));
  EXPECT_TRUE(fails_with(writer->write("unit1/master", part), Code::invalid_argument, "must be at most 0"));
  EXPECT_TRUE(fails_with(writer->finish(), Code::invalid_argument, "tensor \"unit0/master\""));
  EXPECT_EQ(folder.entries(), 1u);  // still in the making
}

}  // namespace
}  // namespace loom::format
