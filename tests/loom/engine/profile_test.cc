// Profiles: every kind of unit is measured, in time and in the memory that it really uses.
#include "engine/profile.h"

#include "base/process_memory.h"
#include "engine/painted.h"
#include "engine/ranks.h"
#include "program/generate.h"

namespace loom::testing {
namespace {

TEST(Painted, CountsLinesThatWereWritten) {
  engine::Painted buffer(1000);
  EXPECT_EQ(buffer.bytes(), 1000);
  EXPECT_EQ(buffer.written_bytes(), 0);
  buffer.as()[70] = std::byte{1};
  buffer.as()[100] = std::byte{0};
  EXPECT_EQ(buffer.written_bytes(), 64) << "both in one line";
  buffer.as()[999] = std::byte{0};
  EXPECT_EQ(buffer.written_bytes(), 64 + 1000 % 64);
  buffer.as()[999] = engine::kPaint;
  EXPECT_EQ(buffer.written_bytes(), 64);
  EXPECT_EQ(engine::Painted().written_bytes(), 0);
}

TEST(Profile, HasATimeForEveryUnit) {
  program::Job job = small_job(1, 1, 1, 2);
  for (const program::Precision precision :
       {program::Precision::fp32, program::Precision::bf16, program::Precision::fp16}) {
    job.precision = precision;
    const Result<std::vector<engine::UnitProfile>> units = engine::profile_units(job, 1, {.repeats = 2});
    LOOM_ASSERT_OK(units);
    ASSERT_EQ(units->size(), 5u);
    for (const double time : engine::times_of(*units)) EXPECT_GT(time, 0);
    EXPECT_EQ((*units)[1].time_us, (*units)[3].time_us);  // blocks are alike
    EXPECT_EQ((*units)[4].saved.planned, 0) << "the head goes back at once";
    EXPECT_EQ(engine::left_out(*units), "");
  }
  EXPECT_TRUE(fails_with(engine::profile_units(job, 0), Code::invalid_argument, "threads is 0"));
}

/// Of what the plan sets aside, most is written: there are gaps between arrays and behind the last one.
void expect_used(const engine::Amount& amount, double planned, const std::string& what) {
  EXPECT_EQ(amount.planned, planned) << what;
  EXPECT_LE(amount.measured, amount.planned) << what;
  EXPECT_GT(amount.measured, 0.9 * amount.planned) << what;
}

TEST(Profile, MemoryOfEveryUnitIsWhatItWrites) {
  for (const program::Precision precision : {program::Precision::fp32, program::Precision::bf16})
    for (const bool tied : {true, false})
      for (const int64_t tokens : {8, 32}) {
        program::Job job = small_job(1, 1, 1, 2);
        job.precision = precision;
        job.spec.vocabulary = 480;
        job.spec.context = job.tokens = tokens;
        job.spec.tied = tied;
        job.spec.residual_dropout = 0.1f;  // with arrays of their own
        const Result<std::vector<engine::UnitProfile>> profiles =
            engine::profile_units(job, 1, {.repeats = 1});
        LOOM_ASSERT_OK(profiles);
        const model::BufferSizes sizes = program::sizes_of(job);
        const auto output = static_cast<double>(sizes.activation), saved = static_cast<double>(sizes.saved);
        const double of_element = precision == program::Precision::fp32 ? 16 : 18;
        const std::vector<model::Unit> units = model::units_of(job.spec);
        for (const size_t unit : {0, 1, 4}) {
          const std::string name = fmt::format("{}, {} tokens, {}", units[unit].name(), tokens,
                                               program::precision_name(precision));
          const engine::UnitProfile& profile = (*profiles)[unit];
          expect_used(profile.state, of_element * static_cast<double>(job.padded(units[unit])),
                      "state of " + name);
          if (unit < 4) expect_used(profile.saved, unit == 0 ? output : output + saved, "saved by " + name);
          if (unit > 0)
            expect_used(profile.workspace, static_cast<double>(sizes.workspace_of(units[unit].kind)),
                        "workspace of " + name);
        }
      }
}

TEST(Profile, AnEmbeddingThatNormalizesHasAWorkspace) {
  program::Job job = small_job(1, 1, 1, 2);
  job.spec.embedding_norm = true;
  const Result<std::vector<engine::UnitProfile>> units = engine::profile_units(job, 1, {.repeats = 1});
  LOOM_ASSERT_OK(units);
  expect_used((*units)[0].workspace, static_cast<double>(program::sizes_of(job).embedding_workspace), "");
  EXPECT_GT((*units)[0].workspace.planned, 0);
}

TEST(Profile, LocalAndGlobalBlocksAreMeasuredApart) {
  program::Job job = small_job(1, 1, 1, 2);
  job.spec.family = model::Family::gpt_neo;
  job.spec.layers = 4;
  job.spec.window = 4;
  job.spec.local = {false, true, false, true};
  job.tokens = 8;
  Result<std::vector<engine::UnitProfile>> units = engine::profile_units(job, 1, {.repeats = 2});
  LOOM_ASSERT_OK(units);
  ASSERT_EQ(units->size(), 6u);
  EXPECT_EQ((*units)[1].time_us, (*units)[3].time_us);
  EXPECT_EQ((*units)[2].time_us, (*units)[4].time_us);
  EXPECT_NE((*units)[1].kind, (*units)[2].kind);
  const std::string text = engine::to_string(job, *units);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7) << text;

  job.spec.window = 8;  // all tokens of a sequence: no block differs
  units = engine::profile_units(job, 1, {.repeats = 2});
  LOOM_ASSERT_OK(units);
  EXPECT_EQ((*units)[1].kind, (*units)[2].kind);
  EXPECT_NE(engine::to_string(job, *units).find("block 0 to block 3"), std::string::npos)
      << engine::to_string(job, *units);
}

/// A clock that ticks a second whenever it is looked at: what a unit takes is then how often that was.
TEST(Profile, WhatThereIsNoTimeForIsModelled) {
  const program::Job job = small_job(1, 1, 1, 2);
  double now_us = 0;
  const auto measured_in = [&](double seconds) {
    return engine::profile_units(
        job, 1, {.repeats = 3, .seconds = seconds, .clock_us = [&] { return now_us += 1e6; }});
  };
  const auto plenty = measured_in(1000);
  LOOM_ASSERT_OK(plenty);
  EXPECT_EQ(engine::left_out(*plenty), "");

  const auto some = measured_in(3);  // blocks are begun, and nothing after them
  LOOM_ASSERT_OK(some);
  const std::vector<engine::UnitProfile>& units = *some;
  for (const size_t block : {1, 2, 3}) {
    EXPECT_EQ(units[block].measured, 1) << block;
    EXPECT_EQ(units[block].time_us, 2e6) << "forward and backward, a tick each, and no second pass";
  }
  const auto modelled = [&](int unit) { return program::modelled_us(job, program::Machine(), unit); };
  ASSERT_GT(modelled(1), 0);
  for (const int unit : {0, 4}) {
    const engine::UnitProfile& profile = units[static_cast<size_t>(unit)];
    EXPECT_EQ(profile.measured, 0) << unit;
    EXPECT_EQ(profile.saved.measured, profile.saved.planned) << unit;
    EXPECT_EQ(profile.state.measured, profile.state.planned) << unit;
    EXPECT_NEAR(profile.time_us, 2e6 * modelled(unit) / modelled(1), 1e-3) << unit;
  }
  EXPECT_NE(engine::left_out(units).find("the costs of 2 of 5 units are modelled"), std::string::npos)
      << engine::left_out(units);
  EXPECT_NE(engine::to_string(job, units).find("modelled: there was no time"), std::string::npos);

  const auto none = measured_in(0);
  LOOM_ASSERT_OK(none);
  EXPECT_EQ((*none)[4].time_us, program::modelled_us(job, program::Machine(), 4));
}

}  // namespace
}  // namespace loom::testing
