// Files that are wrong: each kind of damage by its sentence, and thousands of random ones without a crash.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <string>

#include "format/safetensors_header.h"
#include "support.h"

namespace loom::format {
namespace {

using testing::fails_with;

std::string file_of(std::string_view json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + std::string(json) + std::string(data_bytes, 'x');
}

Result<SafetensorsHeader> parse(std::string_view file) {
  return parse_safetensors_header(std::as_bytes(std::span(file.data(), file.size())));
}

struct Wrong {
  const char* name;
  std::string json;
  size_t data_bytes;
  const char* words;
};

class WrongHeader : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongHeader, IsRefusedWithASentence) {
  EXPECT_TRUE(fails_with(parse(file_of(GetParam().json, GetParam().data_bytes)), Code::invalid_data,
                         GetParam().words));
}

std::string tensor(std::string_view fields) { return R"({"a":{)" + std::string(fields) + "}}"; }

const Wrong kWrong[] = {
    {"NoObject", R"([1])", 0, "does not begin with {"},
    {"Empty", "", 0, "does not begin with {"},
    {"SpaceFirst", R"( {})", 0, "does not begin with {"},
    {"Broken", R"({"a":)", 0, "JSON is broken at byte"},
    {"TextAfter", R"({} x)", 0, "JSON is broken at byte"},
    {"BadUtf8", "{\"\xff\":{}}", 0, "JSON is broken"},
    {"TensorIsList", R"({"a":[]})", 0, "\"a\" is a list, must be an object"},
    {"TensorIsNull", R"({"a":null})", 0, "\"a\" is null, must be an object"},
    {"NoDtype", tensor(R"("shape":[1],"data_offsets":[0,4])"), 4, "tensor \"a\" has no dtype"},
    {"NoShape", tensor(R"("dtype":"F32","data_offsets":[0,4])"), 4, "tensor \"a\" has no shape"},
    {"NoOffsets", tensor(R"("dtype":"F32","shape":[1])"), 4, "tensor \"a\" has no data_offsets"},
    {"UnknownDtype", tensor(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), 4, "unknown dtype \"F31\""},
    {"DtypeIsNumber", tensor(R"("dtype":7,"shape":[1],"data_offsets":[0,4])"), 4,
     "dtype of tensor \"a\" is a number"},
    {"ShapeIsNumber", tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4,
     "shape of tensor \"a\" is a number"},
    {"NestedShape", tensor(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4,
     "shape of tensor \"a\" has a list"},
    {"NegativeShape", tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4, "a negative number"},
    {"FractionalShape", tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4, "not whole"},
    {"HugeShape", tensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4])"), 4,
     "more than 64 bits"},
    {"OverflowingShape", tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0,
     "has no size in whole bytes"},
    {"OverflowingBytes", tensor(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), 0,
     "has no size in whole bytes"},
    {"HalfAByte", tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2,
     "has no size in whole bytes"},
    {"OneOffset", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4,
     "has 1 data_offsets, must be 2"},
    {"ThreeOffsets", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4,
     "must be two whole numbers"},
    {"ReversedOffsets", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4, "before its begin"},
    {"WrongSize", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4,
     "needs 8 bytes, but its data_offsets span 4"},
    {"BeyondTheFile", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4, "has only 4 of them"},
    {"OffsetsThatWrap",
     tensor(R"("dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615])"), 4,
     "has only 4 of them"},
    {"DataLeftOver", tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 5,
     "end at byte 4 of the data, but the file has 5"},
    {"NoTensorsButData", "{}", 5, "end at byte 0 of the data"},
    {"HoleAtTheStart", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2,
     "must be 0: there is a hole"},
    {"Hole",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
     3, "must be 1: there is a hole"},
    {"Overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
     3, "must be 2: there is an overlap"},
    {"NameTwice",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
     2, "\"a\" is there twice"},
    {"KeyTwice", tensor(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])"), 1,
     "the key \"dtype\" twice"},
    {"UnknownKey", tensor(R"("dtype":"U8","strides":[1],"shape":[1],"data_offsets":[0,1])"), 1,
     "besides dtype"},
    {"MetadataIsText", R"({"__metadata__":"x"})", 0, "is a text, must be an object"},
    {"MetadataOfNumbers", R"({"__metadata__":{"k":1}})", 0, "\"k\" of __metadata__ is a number"},
    {"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, "there twice"},
    {"MetadataKeyTwice", R"({"__metadata__":{"k":"1","k":"2"}})", 0,
     "the key \"k\" of __metadata__ is there twice"},
    {"DeepNesting", R"({"a":)" + std::string(100'000, '['), 0, "must be an object"},
};

INSTANTIATE_TEST_SUITE_P(Each, WrongHeader, ::testing::ValuesIn(kWrong),
                         [](const auto& info) { return info.param.name; });

TEST(HostileSafetensors, LengthsThatCannotBe) {
  EXPECT_TRUE(fails_with(parse("1234567"), Code::invalid_data, "7 bytes are no safetensors file"));
  EXPECT_TRUE(fails_with(parse(std::string(8, '\xff')), Code::invalid_data, "must be at most 100000000"));
  std::string file = file_of("{}", 0);
  file[0] = 3;
  EXPECT_TRUE(fails_with(parse(file), Code::invalid_data, "length is 3, but only 2 bytes follow: cut short"));
}

TEST(HostileSafetensors, EmptyTensorsMayLieAnywhereOnTheBorder) {
  const Result<SafetensorsHeader> header = parse(file_of(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},)"
      R"("c":{"dtype":"F32","shape":[18446744073709551615,0,9],"data_offsets":[0,0]}}   )",
      2));
  LOOM_ASSERT_OK(header);
  EXPECT_EQ(header->tensors.size(), 3u);
}

const char kValid[] = R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})";

/// What a reader relies on: every tensor lies inside the file, is as large as its shape says, and meets no
/// other.
void expect_sound(const SafetensorsHeader& header, size_t file_bytes) {
  uint64_t covered = 0;
  for (const TensorEntry& tensor : header.tensors) {
    ASSERT_LE(tensor.begin, tensor.end);
    ASSERT_LE(tensor.end, file_bytes);
    ASSERT_EQ(dtype_bytes(tensor.dtype, *element_count(tensor.shape)), tensor.end - tensor.begin);
    covered += tensor.end - tensor.begin;
  }
  ASSERT_LT(covered, file_bytes);
}

TEST(HostileSafetensors, EveryCutIsRefused) {
  const std::string file = file_of(kValid, 24);
  LOOM_ASSERT_OK(parse(file));
  for (size_t length = 0; length < file.size(); ++length) {
    const Result<SafetensorsHeader> header = parse(file.substr(0, length));
    ASSERT_FALSE(header.ok()) << length;
    ASSERT_FALSE(header.status().message().empty());
  }
}

TEST(HostileSafetensors, RandomDamageIsRefusedOrHarmless) {
  const std::string valid = file_of(kValid, 24);
  std::mt19937 random(7);
  size_t refused = 0;
  constexpr size_t kTries = 50'000;
  for (size_t i = 0; i < kTries; ++i) {
    std::string file = valid;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % file.size();
      switch (random() % 5) {
        case 0: file[at] = static_cast<char>(random()); break;
        case 1: file[at] = "0123456789{}[]\",:"[random() % 17]; break;
        case 2: file.erase(at, 1 + random() % 8); break;
        case 3: file.insert(at, file.substr(random() % file.size(), random() % 16)); break;
        default: file[at] = static_cast<char>(file[at] ^ (1 << random() % 8));
      }
      if (file.empty()) break;
      // Keep the length right half of the time, so that the damage is found further in.
      if (file.size() > 40 && random() % 2 == 0) {
        const uint64_t length = file.size() - 8 - 24;
        std::memcpy(file.data(), &length, 8);
      }
    }
    const Result<SafetensorsHeader> header = parse(file);
    if (header.ok()) expect_sound(*header, file.size());
    else ++refused;
  }
  EXPECT_GT(refused, kTries / 4);
  EXPECT_LT(refused, kTries);  // damage to data or to a name stays unseen, so some must pass
}

}  // namespace
}  // namespace loom::format
