// Conversions, exhaustively where the format is the source, and at every rounding boundary where fp32 is.
#include "device/convert.h"

#include <gtest/gtest.h>

#include <cfloat>

#include "device/reference.h"

namespace weft::device {
namespace {

struct Converter {
  const char* name;
  DataType type;
  float (*to_float)(uint32_t);
  uint32_t (*from_float)(float);
};

template <typename Format>
Converter converter(const char* name, DataType type) {
  return {name, type,
          [](uint32_t bits) { return to_float<Format>(static_cast<typename Format::Storage>(bits)); },
          [](float value) { return uint32_t{from_float<Format>(value)}; }};
}

class Convert : public testing::TestWithParam<Converter> {
 protected:
  const Converter& c = GetParam();
  const reference::Format format = reference::format_of(c.type);
  const uint32_t patterns = 1u << format.bits();

  void expect_encoded(float value) const {
    EXPECT_EQ(c.from_float(value), reference::encode(format, value)) << std::hexfloat << value;
  }
};

TEST_P(Convert, EveryPatternDecodesToItsValue) {
  for (uint32_t bits = 0; bits < patterns; ++bits) {
    const double right = reference::decode(format, bits);
    const float value = c.to_float(bits);
    if (std::isnan(right)) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << bits;
    } else {
      ASSERT_EQ(value, right) << std::hex << bits;
      ASSERT_EQ(std::signbit(value), std::signbit(right)) << std::hex << bits;
    }
  }
}

TEST_P(Convert, EveryPatternComesBack) {
  for (uint32_t bits = 0; bits < patterns; ++bits) {
    const float value = c.to_float(bits);
    ASSERT_EQ(c.from_float(value), std::isnan(value) ? format.nan() : bits) << std::hex << bits;
  }
}

TEST_P(Convert, TiesGoToEvenAndTheirNeighboursToTheNearest) {
  for (uint64_t bits = 0; bits < format.largest(); ++bits) {
    const double middle = (reference::decode(format, bits) + reference::decode(format, bits + 1)) / 2;
    const float tie = static_cast<float>(middle);
    ASSERT_EQ(tie, middle) << "not a float";
    for (const float sign : {1.0f, -1.0f}) {
      expect_encoded(sign * tie);
      expect_encoded(sign * std::nextafterf(tie, INFINITY));
      expect_encoded(sign * std::nextafterf(tie, 0));
    }
    if (HasFailure()) return;
  }
}

TEST_P(Convert, WhatIsTooLarge) {
  const double largest = reference::decode(format, format.largest());
  const double step = largest - reference::decode(format, format.largest() - 1);
  for (const double value : {largest, largest + step / 2, largest + step, 2 * largest, 1e38, 3.4e38}) {
    if (value > FLT_MAX) continue;
    const auto as_float = static_cast<float>(value);
    for (const float near : {as_float, std::nextafterf(as_float, 0), std::nextafterf(as_float, INFINITY)}) {
      expect_encoded(near);
      expect_encoded(-near);
    }
  }
  expect_encoded(INFINITY);
  expect_encoded(-INFINITY);
}

TEST_P(Convert, RandomFloats) {
  std::mt19937 random(7);
  for (int i = 0; i < 200'000 && !HasFailure(); ++i)
    expect_encoded(std::bit_cast<float>(static_cast<uint32_t>(random())));
}

INSTANTIATE_TEST_SUITE_P(Formats, Convert,
                         testing::Values(converter<Half>("half", DataType::float16),
                                         converter<Bfloat>("bfloat16", DataType::bfloat16),
                                         converter<E4m3>("f8e4m3", DataType::float8e4m3),
                                         converter<E5m2>("f8e5m2", DataType::float8e5m2)),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ConvertKnown, Values) {
  EXPECT_EQ(float_to_half(1.0f), 0x3c00);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);  // halfway to the next: infinity
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bfloat16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(NAN), 0x7fc0);
  EXPECT_EQ(float_to_e4m3(448.0f), 0x7e);
  EXPECT_EQ(float_to_e4m3(INFINITY), 0x7e);
  EXPECT_EQ(float_to_e4m3(-1e9f), 0xfe);
  EXPECT_EQ(float_to_e4m3(-NAN), 0x7f);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0xff)));
  EXPECT_EQ(e4m3_to_float(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(float_to_e5m2(57344.0f), 0x7b);
  EXPECT_EQ(float_to_e5m2(61440.0f), 0x7c);
  EXPECT_EQ(e5m2_to_float(0x01), std::ldexp(1.0f, -16));
}

}  // namespace
}  // namespace weft::device
