// The rule of the loss scale, step by step.
#include "train/loss_scale.h"

#include "support.h"

namespace loom::testing {
namespace {

using train::LossScale;
using train::LossScaler;

constexpr double kLoss = 2.5;

/// Steps that are all skipped, or not; returns the scale of the next one.
double after(LossScaler& scaler, int steps, bool skipped) {
  for (int step = 0; step < steps; ++step) {
    const Status status = scaler.update(step, kLoss, skipped);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return scaler.scale();
}

TEST(LossScaler, BeginsWithSmpsParameters) {
  const LossScaler scaler({}, true);
  EXPECT_EQ(scaler.scale(), 4294967296.0);
  const LossScale settings;
  EXPECT_EQ(settings.factor, 2);
  EXPECT_EQ(settings.window, 1000);
  EXPECT_EQ(settings.minimum, 1);
  EXPECT_EQ(settings.delayed_shift, 1);
  LOOM_ASSERT_OK(settings.check());
}

TEST(LossScaler, GrowsAfterEachWindowWithoutAnOverflow) {
  LossScaler scaler({.initial = 8, .window = 3}, true);
  EXPECT_EQ(after(scaler, 2, false), 8);
  EXPECT_EQ(after(scaler, 1, false), 16);
  EXPECT_EQ(after(scaler, 3, false), 32);
  EXPECT_EQ(after(scaler, 2, false), 32);
  EXPECT_EQ(after(scaler, 1, true), 16);  // and the window begins again
  EXPECT_EQ(after(scaler, 2, false), 16);
  EXPECT_EQ(after(scaler, 1, false), 32);
  EXPECT_EQ(scaler.skipped(), 1);
}

TEST(LossScaler, FallsByTheFactorAfterEachOverflow) {
  LossScaler scaler({.initial = 1000, .factor = 10}, true);
  EXPECT_EQ(after(scaler, 1, true), 100);
  EXPECT_EQ(after(scaler, 1, true), 10);
  EXPECT_EQ(scaler.skipped(), 2);
}

TEST(LossScaler, WaitsForTheDelayedShiftUntilItGrows) {
  LossScaler scaler({.initial = 64, .window = 4, .delayed_shift = 3}, true);
  EXPECT_EQ(after(scaler, 1, true), 64);
  EXPECT_EQ(after(scaler, 2, false), 64);  // fewer than a window: overflows before still count
  EXPECT_EQ(after(scaler, 1, true), 64);
  EXPECT_EQ(after(scaler, 1, true), 32);
  EXPECT_EQ(after(scaler, 1, true), 16);  // every one from now on
  EXPECT_EQ(after(scaler, 4, false), 32);
  EXPECT_EQ(after(scaler, 2, true), 32);  // and now it waits again
  EXPECT_EQ(after(scaler, 1, true), 16);
}

TEST(LossScaler, EndsAtTheMinimumWithWhatWouldWork) {
  LossScaler scaler({.initial = 5, .minimum = 1}, true);
  EXPECT_EQ(after(scaler, 2, true), 1.25);
  EXPECT_EQ(after(scaler, 1, true), 1);  // not below it
  const Status ended = scaler.update(41, kLoss, true);
  EXPECT_TRUE(
      fails_with(ended, Code::not_finite,
                 "step 42: gradients overflow fp16 with a loss scale of 1 (loss_scale.minimum), in the "
                 "last 4 steps, all skipped"));
  EXPECT_TRUE(fails_with(ended, Code::not_finite, "\"bf16\", which has the range of fp32"));
  EXPECT_TRUE(fails_with(ended, Code::not_finite, "a smaller optimizer.learning_rate or loss_scale.minimum"));
}

TEST(LossScaler, SaysWhenTheLossItselfIsNotFinite) {
  LossScaler scaler({.initial = 1}, true);
  EXPECT_TRUE(fails_with(scaler.update(7, INFINITY, true), Code::not_finite,
                         "step 8: activations overflow fp16 (the loss is inf)"));
}

TEST(LossScaler, AStaticScaleStaysAndEndsAfterManyInARow) {
  LossScaler scaler({.window = 2, .constant = 128}, true);
  EXPECT_EQ(after(scaler, 5, false), 128);
  EXPECT_EQ(after(scaler, LossScaler::kMostInARow - 1, true), 128);
  EXPECT_EQ(after(scaler, 1, false), 128);
  EXPECT_EQ(after(scaler, LossScaler::kMostInARow - 1, true), 128);
  EXPECT_TRUE(fails_with(scaler.update(99, kLoss, true), Code::not_finite,
                         "with a loss scale of 128 (loss_scale.static), in the last 32 steps, all skipped"));
}

TEST(LossScaler, OtherPrecisionsHaveNone) {
  LossScaler scaler({.initial = 64, .window = 1, .constant = 32}, false);
  EXPECT_EQ(after(scaler, 3, false), 1);
  EXPECT_EQ(scaler.skipped(), 0);
}

TEST(LossScaler, GoesOnFromACheckpointAsIfItHadNotStopped) {
  const LossScale settings{.initial = 256, .window = 3, .delayed_shift = 2};
  // Step by step, skipped or not; the pattern of 13 meets every state of the window and of the delay.
  const auto overflows = [](int step) { return step % 13 == 2 || step % 13 == 3 || step % 13 == 9; };
  for (int stop = 0; stop < 40; ++stop) {
    LossScaler whole(settings, true), first(settings, true), second(settings, true);
    for (int step = 0; step < 40; ++step) {
      if (step == stop) {
        const Result<format::Json> written = format::parse_json(first.to_json().dump());
        LOOM_ASSERT_OK(written);
        LOOM_ASSERT_OK(second.restore(*written, step));
      }
      LOOM_ASSERT_OK(whole.update(step, kLoss, overflows(step)));
      LossScaler& other = step < stop ? first : second;
      LOOM_ASSERT_OK(other.update(step, kLoss, overflows(step)));
      ASSERT_EQ(other.scale(), whole.scale()) << "step " << step << " stopped before " << stop;
      ASSERT_EQ(other.skipped(), whole.skipped());
    }
  }
}

TEST(LossScaler, WhatIsSetAnewCountsAfterACheckpoint) {
  LossScaler before({.initial = 64}, true);
  after(before, 3, true);
  const auto resumed = [&](const LossScale& settings, bool scales) {
    LossScaler scaler(settings, scales);
    EXPECT_TRUE(scaler.restore(before.to_json(), 3).ok());
    EXPECT_EQ(scaler.skipped(), 3);
    return scaler.scale();
  };
  EXPECT_EQ(resumed({.initial = 1024}, true), 8);
  EXPECT_EQ(resumed({.initial = 1024, .minimum = 32}, true), 32);
  EXPECT_EQ(resumed({.constant = 512}, true), 512);
  EXPECT_EQ(resumed({}, false), 1);
}

TEST(LossScaler, RefusesWhatNoCheckpointSays) {
  LossScaler scaler({.initial = 64}, true);
  const format::Json right = scaler.to_json();
  for (const auto& [key, value] : right.items()) {
    for (const format::Json& wrong : {format::Json("7"), format::Json(-3), format::Json(nullptr)}) {
      format::Json json = right;
      json[key] = wrong;
      EXPECT_TRUE(fails_with(scaler.restore(json, 2), Code::invalid_data, "loss_scale." + key + " is "));
    }
    format::Json json = right;
    json.erase(key);
    EXPECT_TRUE(fails_with(scaler.restore(json, 2), Code::invalid_data, "loss_scale." + key + " is missing"));
  }
  format::Json late = right;
  late["skipped"] = 3;
  EXPECT_TRUE(fails_with(scaler.restore(late, 2), Code::invalid_data,
                         "loss_scale.skipped is 3, must be a number from 0 to 2"));
  EXPECT_TRUE(fails_with(scaler.restore(format::Json(5), 2), Code::invalid_data, "is missing"));
  EXPECT_EQ(scaler.to_json(), right);
}

}  // namespace
}  // namespace loom::testing
