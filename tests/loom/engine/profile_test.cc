// Profiles: every kind of unit is measured, in time and in what it leaves for backward.
#include "engine/profile.h"

#include "engine/ranks.h"
#include "program/generate.h"

namespace loom::testing {
namespace {

TEST(Profile, HasATimeForEveryUnit) {
  program::Job job = small_job(1, 1, 1, 2);
  for (const program::Precision precision :
       {program::Precision::fp32, program::Precision::bf16, program::Precision::fp16}) {
    job.precision = precision;
    const Result<std::vector<engine::UnitProfile>> units = engine::profile_units(job, 1, 2);
    LOOM_ASSERT_OK(units);
    ASSERT_EQ(units->size(), 5u);
    for (const double time : engine::times_of(*units)) EXPECT_GT(time, 0);
    EXPECT_EQ((*units)[1].time_us, (*units)[3].time_us);  // blocks are alike
    EXPECT_EQ((*units)[4].saved_bytes, 0) << "the head goes back at once";
  }
  EXPECT_TRUE(fails_with(engine::profile_units(job, 0), Code::invalid_argument, "threads is 0"));
}

/// What the plan sets aside is what is written, but for the gaps between arrays.
TEST(Profile, WhatABlockSavesIsThePlanned) {
  for (const int64_t tokens : {8, 32}) {
    program::Job job = small_job(1, 1, 1, 2);
    job.spec.context = job.tokens = tokens;
    const Result<std::vector<engine::UnitProfile>> units = engine::profile_units(job, 1, 1);
    LOOM_ASSERT_OK(units);
    const model::BufferSizes sizes = program::sizes_of(job);
    const engine::UnitProfile& block = (*units)[1];
    EXPECT_EQ(block.planned_bytes, static_cast<double>(sizes.activation + sizes.saved));
    EXPECT_LE(block.saved_bytes, block.planned_bytes);
    EXPECT_GT(block.saved_bytes, 0.9 * block.planned_bytes) << tokens;
    EXPECT_EQ((*units)[0].saved_bytes, static_cast<double>(sizes.activation));
  }
}

TEST(Profile, LocalAndGlobalBlocksAreMeasuredApart) {
  program::Job job = small_job(1, 1, 1, 2);
  job.spec.family = model::Family::gpt_neo;
  job.spec.layers = 4;
  job.spec.window = 4;
  job.spec.local = {false, true, false, true};
  job.tokens = 8;
  Result<std::vector<engine::UnitProfile>> units = engine::profile_units(job, 1, 2);
  LOOM_ASSERT_OK(units);
  ASSERT_EQ(units->size(), 6u);
  EXPECT_EQ((*units)[1].time_us, (*units)[3].time_us);
  EXPECT_EQ((*units)[2].time_us, (*units)[4].time_us);
  EXPECT_NE((*units)[1].kind, (*units)[2].kind);
  const std::string text = engine::to_string(job, *units);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7) << text;

  job.spec.window = 8;  // all tokens of a sequence: no block differs
  units = engine::profile_units(job, 1, 2);
  LOOM_ASSERT_OK(units);
  EXPECT_EQ((*units)[1].kind, (*units)[2].kind);
  EXPECT_NE(engine::to_string(job, *units).find("block 0 to block 3"), std::string::npos)
      << engine::to_string(job, *units);
}

}  // namespace
}  // namespace loom::testing
