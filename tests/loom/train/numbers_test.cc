// What a run says of itself: memory at its highest, the time of slow data, what is left, and a report that
// stays small.
#include <atomic>
#include <chrono>
#include <sstream>
#include <thread>

#include "train/machine.h"
#include "train/report.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

using Numbers = SteadyRuns;

// Sanitizers have memory of their own beside what a program asks for.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// What this process has, but for pages of files: quick to read, so that whatever lasts a millisecond is
/// seen.
int64_t own_bytes() {
  int64_t bytes = 0;
  std::istringstream status(get_file("/proc/self/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:"))
      bytes += std::stoll(line.substr(line.find(':') + 1)) << 10;
  return bytes;
}

/// Also of what lasts for a moment only: what the machine is measured with used to be beside the arena, 40 of
/// 252 MiB, and nobody looked while it was there.
TEST_F(Numbers, TheMostThatAWholeRunHasAtAnyTimeIsThePlanned) {
  config_.model.width = 512;
  config_.model.heads = 8;
  config_.model.layers = 4;
  config_.data.global_batch = config_.data.microbatch = 64;
  config_.parallel.strict = false;
  config_.run.steps = 2;
  config_.run.checkpoint_every = 1;
  {
    const Result<std::unique_ptr<train::Trainer>> first = train::Trainer::create(config_, nullptr);
    LOOM_ASSERT_OK(first);  // and libraries have what they keep
  }
  const int64_t before = own_bytes();
  ASSERT_GT(before, 0);
  std::atomic<bool> over = false;
  int64_t most = 0;
  std::thread looker([&] {
    while (!over) most = std::max(most, own_bytes());
  });
  double planned = 0;
  [&] {
    Result<std::unique_ptr<train::Trainer>> trainer =
        train::Trainer::create(config_, nullptr, train::Measuring::machine);
    LOOM_ASSERT_OK(trainer);
    EXPECT_GT((*trainer)->machine()->flops, 1e8);
    planned = static_cast<double>((*trainer)->engine().memory().bytes);
    LOOM_ASSERT_OK((*trainer)->run([](const train::StepRecord&) {}));
    LOOM_ASSERT_OK((*trainer)->save_model());
  }();
  over = true;
  looker.join();
  EXPECT_GT(planned, 200e6);
  EXPECT_NEAR(static_cast<double>(most - before), planned, 0.05 * planned);
}

/// Not what there was at the last look: here something is there at the first checkpoint and gone at the next.
TEST_F(Numbers, MemoryIsTheMostThatWasSeenAtAnyLook) {
  constexpr size_t kBytes = size_t{64} << 20;
  config_.run.steps = 3;
  config_.run.checkpoint_every = 1;
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
  LOOM_ASSERT_OK(trainer);
  std::unique_ptr<char[]> beside;
  LOOM_ASSERT_OK((*trainer)->run([&](const train::StepRecord& record) {
    if (record.step == 0) {
      beside.reset(new char[kBytes]);
      std::fill_n(beside.get(), kBytes, char{1});
    } else {
      EXPECT_GE(record.memory_bytes, static_cast<int64_t>(kBytes));
      beside.reset();
    }
  }));
  EXPECT_GE((*trainer)->measured_bytes(), static_cast<int64_t>(kBytes));
}
#endif

/// A gather of 256 ranks was measured with 256 MiB on each.
TEST_F(Numbers, WhatAMachineIsMeasuredWithDoesNotGrowWithTheRanks) {
  EXPECT_EQ(train::gathered_to_measure(2) * 4, 1 << 20);
  for (const int ranks : {1, 2, 3, 32, 33, 256, 4096}) {
    EXPECT_GT(train::gathered_to_measure(ranks), 1000) << ranks;
    EXPECT_LE(train::gathered_to_measure(ranks) * 4 * ranks, 32 << 20) << ranks;
  }
}

/// Has its batches after a while.
class SlowBatches final : public text::BatchSource {
 public:
  SlowBatches(std::unique_ptr<text::BatchSource> source, std::chrono::milliseconds each)
      : source_(std::move(source)), each_(each) {}
  uint64_t windows() const override { return source_->windows(); }
  uint64_t dataset_key() const override { return source_->dataset_key(); }
  int64_t targets(uint64_t step, int64_t rows) const override { return source_->targets(step, rows); }
  Status read(uint64_t step, text::Rows rows, std::span<text::Token> inputs,
              std::span<text::Token> targets) const override {
    std::this_thread::sleep_for(each_);
    return source_->read(step, rows, inputs, targets);
  }
  void go_on(uint64_t step, uint64_t sequence) override { source_->go_on(step, sequence); }

 private:
  std::unique_ptr<text::BatchSource> source_;
  std::chrono::milliseconds each_;
};

/// The time in which a batch is read used to be in no number of a step.
TEST_F(Numbers, SlowDataAreAPartOfTheStepAndOfItsTable) {
  config_.data.microbatch = 4;  // two of them
  config_.run.steps = 4;
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
  LOOM_ASSERT_OK(trainer);
  (*trainer)->wrap_batches([](std::unique_ptr<text::BatchSource> source) {
    return std::make_unique<SlowBatches>(std::move(source), std::chrono::milliseconds(20));
  });
  std::vector<train::StepRecord> records;
  LOOM_ASSERT_OK((*trainer)->run([&](const train::StepRecord& record) { records.push_back(record); }));
  ASSERT_EQ(records.size(), 4u);
  for (const train::StepRecord& record : records) {
    EXPECT_GE(record.data_seconds, 0.04);
    EXPECT_GE(record.seconds, record.data_seconds);
    EXPECT_NEAR(record.tokens_per_second * record.seconds, 8 * 16, 1e-6);
    EXPECT_EQ((*format::parse_json(train::json_line(record)))["data_seconds"], record.data_seconds);
  }
  const train::Comparison comparison = train::compare(**trainer, program::Machine());
  EXPECT_GE(comparison.measured.data_us, 40e3);
  EXPECT_GE(comparison.measured.step_us, comparison.measured.data_us);
  const format::Json sides = *format::parse_json(train::json_line(comparison));
  EXPECT_GE(sides["measured"]["data_us"], 40e3);
  EXPECT_NE(train::to_text(comparison).find("\ndata  "), std::string::npos) << train::to_text(comparison);
  EXPECT_NE(train::to_html(comparison).find("<td>data</td>"), std::string::npos);
}

/// It used to be the last step's time for each that is left, as if there were no evaluations and checkpoints.
TEST_F(Numbers, WhatIsLeftOfARunIsByItsOwnClock) {
  config_.run.steps = 5;
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
  LOOM_ASSERT_OK(trainer);
  std::vector<train::StepRecord> records;
  LOOM_ASSERT_OK((*trainer)->run([&](const train::StepRecord& record) {
    records.push_back(record);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // what is between steps
  }));
  ASSERT_EQ(records.size(), 5u);
  EXPECT_DOUBLE_EQ(records[0].seconds_left, 4 * records[0].seconds) << "nothing else is known yet";
  double seconds = 0;  // of steps after the first
  for (size_t i = 1; i < records.size(); ++i) {
    seconds += records[i].seconds;
    const auto done = static_cast<double>(i), left = 4 - done;
    EXPECT_GE(records[i].seconds_left, left * (0.2 + seconds / done) * 0.999);
  }
  EXPECT_EQ(records[4].seconds_left, 0);
}

/// Charts had a point for every step: of a hundred thousand, megabytes.
TEST_F(Numbers, AReportOfALongRunIsSmallAndHasItsExtremes) {
  config_.run.steps = 1;
  Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config_, nullptr);
  LOOM_ASSERT_OK(trainer);
  LOOM_ASSERT_OK((*trainer)->run([](const train::StepRecord&) {}));
  const train::Comparison comparison = train::compare(**trainer, program::Machine());
  std::vector<train::StepRecord> records(100'000);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].step = static_cast<int64_t>(i);
    records[i].loss = 3 + 0.001 * static_cast<double>(i % 7);
    records[i].tokens_per_second = 1000;
  }
  const auto page = [&](size_t steps) {
    return train::html_report({records.begin(), records.begin() + static_cast<std::ptrdiff_t>(steps)},
                              **trainer, comparison);
  };
  records[54'321].loss = 9;  // at the top of the chart
  records[54'322].loss = 1;
  const std::string long_run = page(records.size()), short_run = page(1000);
  EXPECT_LT(long_run.size(), short_run.size() + 100'000);
  EXPECT_NE(long_run.find("[54322.0,9.0]"), std::string::npos);
  EXPECT_NE(long_run.find("[54323.0,1.0]"), std::string::npos);
}

}  // namespace
}  // namespace loom::testing
