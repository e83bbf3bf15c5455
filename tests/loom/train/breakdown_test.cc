// Where a step's time goes, of a forecast.
#include "train/breakdown.h"

#include <gtest/gtest.h>

namespace loom::testing {
namespace {

using namespace program;

/// The first gather is waited for, the second one hidden; of both the rank issues itself.
TEST(Breakdown, OfAForecastChargesCallsToWhatTheyIssue) {
  Program program;
  program.instructions.push_back({Op::gather, 1, -1, 1, {}, {}});
  program.instructions.push_back({Op::gather, 2, -1, 1, {}, {}});
  program.instructions.push_back({Op::forward, 1, 0, 0, {}, {0}});
  program.instructions.push_back({Op::forward, 2, 0, 0, {}, {1}});
  const Forecast forecast{
      .step_us = 310, .intervals = {{5, 100}, {100, 200}, {100, 300}, {300, 310}}, .call_us = 5};
  const train::Breakdown breakdown = train::breakdown_of(program, forecast);
  EXPECT_DOUBLE_EQ(breakdown.us[static_cast<size_t>(Op::gather)], 100) << "two calls, and waiting";
  EXPECT_DOUBLE_EQ(breakdown.us[static_cast<size_t>(Op::forward)], 210);
  EXPECT_DOUBLE_EQ(breakdown.waiting_us, 90);
}

}  // namespace
}  // namespace loom::testing
