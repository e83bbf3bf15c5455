// Every value of the 16-bit formats goes to fp32 and back unchanged, and fp32 rounds to the nearest, ties to
// even.
#include "format/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/fp16.h"
#include "support.h"

namespace loom::format {
namespace {

using testing::fails_with;

uint16_t bf16_from_f32(float value) { return to_bf16(value).bits; }
float f32_from_bf16(uint16_t bits) { return to_float(bf16{bits}); }
uint16_t f16_from_f32(float value) { return to_fp16(value).bits; }
float f32_from_f16(uint16_t bits) { return to_float(fp16{bits}); }

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Float16, EveryHalfComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f32_from_f16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(value)))) << bits;
    } else {
      EXPECT_EQ(f16_from_f32(value), bits);
    }
  }
}

TEST(Float16, EveryBfloatComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f32_from_bf16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(value)))) << bits;
    } else {
      EXPECT_EQ(bf16_from_f32(value), bits);
    }
  }
}

// The decoder is checked by its known values; then rounding is checked against the two neighbours that it
// decodes.
TEST(Float16, KnownHalves) {
  EXPECT_EQ(f32_from_f16(0x3c00), 1.0f);
  EXPECT_EQ(f32_from_f16(0xc000), -2.0f);
  EXPECT_EQ(f32_from_f16(0x7bff), 65504.0f);
  EXPECT_EQ(f32_from_f16(0x0001), 0x1p-24f);
  EXPECT_EQ(f32_from_f16(0x0400), 0x1p-14f);
  EXPECT_EQ(f32_from_f16(0x7c00), kInfinity);
  EXPECT_TRUE(std::signbit(f32_from_f16(0x8000)));
  EXPECT_EQ(f16_from_f32(65519.9f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_f32(-1e9f), 0xfc00);
  EXPECT_EQ(f16_from_f32(0x1p-25f), 0);    // a tie: to the even 0
  EXPECT_EQ(f16_from_f32(0x1.8p-24f), 2);  // a tie: to the even 2
  EXPECT_EQ(f16_from_f32(0x1.000002p-25f), 1);
}

template <typename Encode, typename Decode>
void check_rounding(uint16_t last_finite, Encode encode, Decode decode) {
  for (uint16_t bits = 0; bits < last_finite; ++bits) {
    const double low = decode(bits), high = decode(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((low + high) / 2);
    const uint16_t even = static_cast<uint16_t>(bits + bits % 2);
    ASSERT_EQ(encode(middle), even) << bits;
    ASSERT_EQ(encode(std::nextafter(middle, kInfinity)), bits + 1) << bits;
    ASSERT_EQ(encode(std::nextafter(middle, -kInfinity)), bits) << bits;
    ASSERT_EQ(encode(-middle), even | 0x8000) << bits;
  }
}

TEST(Float16, HalvesRoundToNearestEven) { check_rounding(0x7bff, f16_from_f32, f32_from_f16); }
TEST(Float16, BfloatsRoundToNearestEven) { check_rounding(0x7f7f, bf16_from_f32, f32_from_bf16); }

TEST(Float16, BfloatOverflowIsInfinity) {
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bf16_from_f32(-kInfinity), 0xff80);
}

TEST(Float16, TensorsAtAnyAlignment) {
  const std::vector<float> values = {1.0f, -0.5f, 65504.0f, 0.0f, 3.0f};
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const size_t bytes = *dtype_bytes(dtype, values.size());
    std::vector<std::byte> stored(bytes + 1);
    const std::span<std::byte> odd = std::span(stored).subspan(1);
    LOOM_ASSERT_OK(from_f32(dtype, values, odd));
    std::vector<float> back(values.size());
    LOOM_ASSERT_OK(to_f32(dtype, odd, back));
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = dtype == DType::bf16 ? f32_from_bf16(bf16_from_f32(values[i])) : values[i];
      EXPECT_EQ(back[i], expected) << dtype_name(dtype);
    }
  }
}

TEST(Float16, WrongLengthOrTypeIsRefused) {
  std::vector<std::byte> bytes(7);
  std::vector<float> values(2);
  EXPECT_TRUE(fails_with(to_f32(DType::f32, bytes, values), Code::invalid_argument, "7 bytes, must be 8"));
  EXPECT_TRUE(fails_with(to_f32(DType::i32, bytes, values), Code::unsupported, "elements are I32"));
  EXPECT_TRUE(fails_with(from_f32(DType::f8_e4m3, values, bytes), Code::unsupported, "F8_E4M3"));
}

TEST(DType, NamesAndSizes) {
  for (int type = 0; type <= static_cast<int>(DType::c64); ++type)
    EXPECT_EQ(dtype_named(dtype_name(static_cast<DType>(type))), static_cast<DType>(type));
  // All that the Rust library writes, whose names its version 0.8 lists.
  for (const char* name :
       {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
        "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
        "U32",     "F32",         "C64",         "F64",     "I64", "U64"})
    EXPECT_TRUE(dtype_named(name)) << name;
  EXPECT_FALSE(dtype_named("F31"));
  EXPECT_EQ(dtype_bytes(DType::bf16, 3), 6u);
  EXPECT_EQ(dtype_bytes(DType::f4, 4), 2u);
  EXPECT_FALSE(dtype_bytes(DType::f4, 3));
  EXPECT_EQ(dtype_bytes(DType::f6_e2m3, 4), 3u);
  EXPECT_FALSE(dtype_bytes(DType::f64, uint64_t{1} << 60));
}

}  // namespace
}  // namespace loom::format
