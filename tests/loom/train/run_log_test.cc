// log.jsonl: what was written is read back by the run that goes on, whatever a crash has left; and a log that
// cannot be written says so, once.
#include "train/run_log.h"

#include <cmath>
#include <filesystem>

#include "support.h"
#include "train/report.h"

namespace loom::testing {
namespace {

class RunLogs : public ::testing::Test {
 protected:
  static train::StepRecord record(int64_t step, double loss) {
    train::StepRecord record;
    record.step = step;
    record.loss = loss;
    record.gradient_norm = 0.5;
    record.learning_rate = 1e-3;
    record.seconds = 0.25;
    record.tokens_per_second = 512;
    return record;
  }
  static std::string line(int64_t step, double loss) { return train::json_line(record(step, loss)); }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "log.jsonl";
};

TEST_F(RunLogs, ARecordIsReadAsItWasWritten) {
  train::StepRecord wanted = record(7, 2.125);
  wanted.flops = 1e9;
  wanted.data_seconds = 0.0625;
  wanted.memory_bytes = 1000;
  wanted.exposed = 0.125;
  wanted.bubble = 0.25;
  wanted.loss_scale = 1024;
  wanted.skipped = true;
  wanted.skipped_steps = 3;
  wanted.validation_loss = 2.5;
  const std::optional<train::StepRecord> got = train::record_of_line(train::json_line(wanted));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(train::json_line(*got), train::json_line(wanted));
  EXPECT_EQ(got->step, 7);
  EXPECT_EQ(got->data_seconds, 0.0625);
  EXPECT_EQ(got->memory_bytes, 1000);
  EXPECT_EQ(got->validation_loss, 2.5);
  EXPECT_FALSE(train::record_of_line(train::json_line(record(0, 1)))->validation_loss.has_value());
  for (const char* other : {"", "{", "[]", "3", R"({"step": 0, "loss": 1})", R"({"step": 3, "loss": null})",
                            R"({"predicted": {}, "measured": {}})", R"({"trace": {"step": 4}})"})
    EXPECT_FALSE(train::record_of_line(other).has_value()) << other;
}

/// JSON has no infinity: of a step that was skipped loss and norm are null.
TEST_F(RunLogs, AStepThatWasSkippedIsReadBack) {
  train::StepRecord skipped = record(4, INFINITY);
  skipped.gradient_norm = NAN;
  skipped.loss_scale = 1024;
  skipped.skipped = true;
  skipped.skipped_steps = 1;
  const std::optional<train::StepRecord> got = train::record_of_line(train::json_line(skipped));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->step, 4);
  EXPECT_TRUE(std::isnan(got->loss));
  EXPECT_TRUE(std::isnan(got->gradient_norm));
  EXPECT_TRUE(got->skipped);
  EXPECT_EQ(train::json_line(*got), train::json_line(skipped));
  EXPECT_FALSE(train::record_of_line(R"({"step": null, "loss": 1})").has_value());
}

TEST_F(RunLogs, ARunThatGoesOnHasTheStepsBeforeAndNoOthers) {
  {
    Result<train::RunLog> log = train::RunLog::open(path_, 0);
    LOOM_ASSERT_OK(log);
    EXPECT_TRUE(log->earlier().empty());
    for (int64_t step = 0; step < 6; ++step) LOOM_ASSERT_OK(log->line(line(step, 10.0 + step)));
    LOOM_ASSERT_OK(log->line(R"({"predicted": {}, "measured": {}})"));
  }
  {  // resumed after step 3, so that the fourth was done twice
    Result<train::RunLog> log = train::RunLog::open(path_, 3);
    LOOM_ASSERT_OK(log);
    ASSERT_EQ(log->earlier().size(), 3u);
    EXPECT_EQ(log->earlier().back().loss, 12);
    LOOM_ASSERT_OK(log->line(line(3, 99)));
  }
  const Result<train::RunLog> again = train::RunLog::open(path_, 5);
  LOOM_ASSERT_OK(again);
  ASSERT_EQ(again->earlier().size(), 5u);
  for (int64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(again->earlier()[static_cast<size_t>(step)].step, step);
    EXPECT_EQ(again->earlier()[static_cast<size_t>(step)].loss, step == 3 ? 99 : 10 + step);
  }
  LOOM_ASSERT_OK(train::RunLog::open(path_, 0));
  EXPECT_EQ(get_file(path_), "") << "a run that begins anew";
}

TEST_F(RunLogs, ALineThatWasCutShortSpoilsNoOther) {
  put_file(path_, line(0, 1) + "\n" + line(1, 2).substr(0, 30));
  {
    Result<train::RunLog> log = train::RunLog::open(path_, 1);
    LOOM_ASSERT_OK(log);
    EXPECT_EQ(log->earlier().size(), 1u);
    LOOM_ASSERT_OK(log->line(line(1, 3)));
    LOOM_ASSERT_OK(log->line(line(2, 4)));
  }
  const Result<train::RunLog> again = train::RunLog::open(path_, 100);
  LOOM_ASSERT_OK(again);
  ASSERT_EQ(again->earlier().size(), 3u);
  EXPECT_EQ(again->earlier()[1].loss, 3);
}

TEST_F(RunLogs, AFileThatCannotBeOpenedIsAnError) {
  std::filesystem::create_directory(path_);
  EXPECT_TRUE(fails_with(train::RunLog::open(path_, 0), Code::system_error, path_));
}

TEST_F(RunLogs, AFullDiskIsToldOnceUntilThereIsRoomAgain) {
  EXPECT_TRUE(with_file_limit(1000, [&] {
    Result<train::RunLog> log = train::RunLog::open(path_, 0);
    if (!log.ok()) return false;
    int told = 0, written = 0;
    for (int64_t step = 0; step < 20; ++step) {
      const Status status = log->line(line(step, 1));
      told += status.code() == Code::disk_full;
      written += status.ok() && told == 0;
    }
    return told == 1 && written > 1;
  }));
  EXPECT_EQ(get_file(path_).size(), 1000u) << "of the last line what there was room for";
  Result<train::RunLog> log = train::RunLog::open(path_, 50);
  LOOM_ASSERT_OK(log);
  const size_t whole = log->earlier().size();
  LOOM_ASSERT_OK(log->line(line(30, 1)));
  EXPECT_EQ(train::RunLog::open(path_, 50)->earlier().size(), whole + 1);
}

}  // namespace
}  // namespace loom::testing
