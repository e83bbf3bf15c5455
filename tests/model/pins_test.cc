// The setting WEFT_ALGO: what it may say, and what is said when it is wrong.
#include "model/pins.h"

#include <gtest/gtest.h>

namespace weft::model {
namespace {

std::string error_of(std::string_view text) {
  const Result<Pins> pins = parse_pins(text);
  if (pins.ok()) return "ok";
  EXPECT_EQ(pins.status().code(), Code::invalid_setting);
  return pins.status().message();
}

bool mentions(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Pins, ReadsPinsRangesAndBans) {
  const Result<Pins> pins =
      parse_pins(" allreduce=ring ; all_gather@4K-1M = one_hop;broadcast=!binomial;*=!ring;");
  ASSERT_TRUE(pins.ok()) << pins.status().message();
  ASSERT_EQ(pins->rules.size(), 4u);
  const Pin& range = pins->rules[1];
  EXPECT_TRUE(range.applies(plan::Collective::all_gather, 4 << 10));
  EXPECT_TRUE(range.applies(plan::Collective::all_gather, 1 << 20));
  EXPECT_FALSE(range.applies(plan::Collective::all_gather, (1 << 20) + 1));
  EXPECT_FALSE(range.applies(plan::Collective::all_reduce, 4 << 10));
  EXPECT_FALSE(range.ban);
  EXPECT_TRUE(pins->rules[2].ban);
  EXPECT_EQ(pins->rules[2].algorithm, "binomial");
  EXPECT_TRUE(pins->rules[3].applies(plan::Collective::reduce_scatter, 0));
}

TEST(Pins, RangesMayBeOpenOrASingleSize) {
  const Result<Pins> pins = parse_pins("allreduce@64K-=ring;allreduce@-1K=one_hop;allreduce@2K=direct");
  ASSERT_TRUE(pins.ok()) << pins.status().message();
  EXPECT_TRUE(pins->rules[0].applies(plan::Collective::all_reduce, 1ull << 40));
  EXPECT_FALSE(pins->rules[0].applies(plan::Collective::all_reduce, (64 << 10) - 1));
  EXPECT_TRUE(pins->rules[1].applies(plan::Collective::all_reduce, 0));
  EXPECT_TRUE(pins->rules[2].applies(plan::Collective::all_reduce, 2048));
  EXPECT_FALSE(pins->rules[2].applies(plan::Collective::all_reduce, 2047));
}

TEST(Pins, AnEmptySettingPinsNothing) {
  EXPECT_TRUE(parse_pins("")->rules.empty());
  EXPECT_TRUE(parse_pins(" ; ")->rules.empty());
}

TEST(Pins, ErrorsNameTheRuleWhatIsWrongAndWhatThereIs) {
  EXPECT_TRUE(mentions(error_of("allreduce=rign"),
                       "WEFT_ALGO: \"allreduce=rign\": AllReduce has no algorithm \"rign\"; it has: "));
  EXPECT_TRUE(mentions(error_of("allreduce=rign"), "ring"));
  EXPECT_TRUE(mentions(error_of("allreduse=ring"),
                       "there is no collective \"allreduse\"; there are: allreduce, allgather"));
  EXPECT_TRUE(mentions(error_of("ring"), "has no \"=\""));
  EXPECT_TRUE(mentions(error_of("allreduce@4Q=ring"), "\"4Q\" is no size"));
  EXPECT_TRUE(mentions(error_of("allreduce@1M-4K=ring"), "ends before it begins"));
  EXPECT_TRUE(mentions(error_of("allreduce@-=ring"), "is empty"));
  EXPECT_TRUE(mentions(error_of("*=nothing"), "there is no algorithm \"nothing\"; there are: "));
  EXPECT_TRUE(mentions(error_of("allreduce="), "no algorithm \"\""));
}

TEST(ParseBytes, TakesPowersOf1024) {
  EXPECT_EQ(*parse_bytes("8"), 8u);
  EXPECT_EQ(*parse_bytes("4K"), 4096u);
  EXPECT_EQ(*parse_bytes("4KiB"), 4096u);
  EXPECT_EQ(*parse_bytes("1mb"), 1u << 20);
  EXPECT_EQ(*parse_bytes("2G"), 2ull << 30);
  for (const char* wrong : {"", "K", "-1", "4X", "1.5M", "99999999999G", "4 4"})
    EXPECT_FALSE(parse_bytes(wrong).ok()) << wrong;
}

TEST(ParseCollective, TakesAllSpellings) {
  for (const char* name : {"allreduce", "AllReduce", "all_reduce", "ALL-REDUCE"}) {
    ASSERT_TRUE(parse_collective(name).ok()) << name;
    EXPECT_EQ(*parse_collective(name), plan::Collective::all_reduce);
  }
  EXPECT_EQ(*parse_collective("reduce_scatter"), plan::Collective::reduce_scatter);
  EXPECT_EQ(parse_collective("barrier").status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace weft::model
