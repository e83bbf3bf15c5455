// Who is told what of a run.
#include "loom/observer.h"

#include <atomic>
#include <vector>

#include "base/file.h"
#include "loom/training.h"
#include "train/report.h"
#include "train/runs.h"

namespace loom::testing {
namespace {

/// Keeps what it is told, in words.
class Keeper : public Observer {
 public:
  explicit Keeper(Status at_begin = {}, Status at_end = {})
      : at_begin_(std::move(at_begin)), at_end_(std::move(at_end)) {}
  Status begin(const Training& run) override {
    told.push_back(fmt::format("begin at {} of {}", run.next_step(), run.steps()));
    return at_begin_;
  }
  void note(const Training&, const std::string& sentence) override { notes.push_back(sentence); }
  void step(const Training& run, const StepRecord& record) override {
    told.push_back(fmt::format("step {}, next {}", record.step, run.next_step()));
  }
  Status end(const Training& run, const Status& ended) override {
    told.push_back(fmt::format("end {}{}", ended.ok(), run.stopped() ? ", stopped" : ""));
    return at_end_;
  }

  std::vector<std::string> told, notes;

 private:
  const Status at_begin_, at_end_;
};

class Observers : public Runs {
 protected:
  void SetUp() override {
    make_tokens(config_.data.folder);
    config_.run.steps = 3;
  }
  Config config() const { return Config(config_); }
  using Told = std::vector<std::string>;
};

TEST_F(Observers, AreToldFromTheBeginningToTheEnd) {
  Keeper keeper, other;
  Result<Training> run = Training::create(config());
  LOOM_ASSERT_OK(run);
  EXPECT_EQ(run->device(), "CPUs");
  EXPECT_EQ(run->config().values().parallel.device, "cpu");
  LOOM_ASSERT_OK(run->observe(keeper));
  LOOM_ASSERT_OK(run->observe(other));
  LOOM_ASSERT_OK(run->complete());
  EXPECT_EQ(keeper.told,
            (Told{"begin at 0 of 3", "step 0, next 1", "step 1, next 2", "step 2, next 3", "end true"}));
  EXPECT_EQ(other.told, keeper.told);
  EXPECT_TRUE(is_file(config_.run.out + "/model/model.safetensors"));
  EXPECT_FALSE(is_file(config_.run.out + "/log.jsonl")) << "nobody was to write it";
}

TEST_F(Observers, EachNoteIsToldOnce) {
  {
    Result<Training> run = Training::create(config());
    LOOM_ASSERT_OK(run);
    LOOM_ASSERT_OK(run->run());
  }
  Keeper first, second;
  Result<Training> run = Training::create(config());
  LOOM_ASSERT_OK(run);
  LOOM_ASSERT_OK(run->observe(first));
  LOOM_ASSERT_OK(run->observe(second));
  LOOM_ASSERT_OK(run->complete());
  ASSERT_EQ(first.notes.size(), 1u);
  EXPECT_NE(first.notes[0].find("nothing to do"), std::string::npos) << first.notes[0];
  EXPECT_EQ(second.notes, first.notes);
  EXPECT_EQ(first.told, (Told{"begin at 3 of 3", "end true"}));
}

TEST_F(Observers, ARunThatIsStoppedOrFailsEndsForThemToo) {
  Keeper stopped;
  {
    Result<Training> run = Training::create(config());
    LOOM_ASSERT_OK(run);
    LOOM_ASSERT_OK(run->observe(stopped));
    LOOM_ASSERT_OK(run->complete([] { return true; }));
  }
  EXPECT_EQ(stopped.told, (Told{"begin at 0 of 3", "step 0, next 1", "end true, stopped"}));
  ASSERT_EQ(stopped.notes.size(), 1u);
  EXPECT_NE(stopped.notes[0].find("stopped after step 1 of 3"), std::string::npos);
  EXPECT_FALSE(is_file(config_.run.out + "/model/model.safetensors"));

  config_.optimizer.learning_rate = 1e6;
  config_.optimizer.warmup_steps = 0;
  config_.run.steps = 1000;
  config_.run.out = folder_ / "diverges";
  Keeper failed;
  const std::unique_ptr<Observer> files = run_files();
  Result<Training> run = Training::create(config());
  LOOM_ASSERT_OK(run);
  LOOM_ASSERT_OK(run->observe(failed));
  LOOM_ASSERT_OK(run->observe(*files));
  EXPECT_TRUE(fails_with(run->complete(), Code::not_finite, ""));
  EXPECT_EQ(failed.told.back(), "end false");
  EXPECT_NE(get_file(config_.run.out + "/report.html").find("The run failed after "), std::string::npos);
}

TEST_F(Observers, FilesAreWrittenByRank0AndAFailureIsEveryRanks) {
  std::atomic<int> refused = 0;
  on_ranks(2, 1, [&](weftComm_t world) {
    const std::unique_ptr<Observer> files = run_files();
    Result<Training> run = Training::create(config(), world);
    LOOM_ASSERT_OK(run);
    Keeper refuses(run->rank() == 1 ? Status(Code::disk_full, "no place for it") : Status());
    refused += run->observe(refuses).code() == Code::disk_full;
    Keeper at_end({}, run->rank() == 0 ? Status(Code::disk_full, "the disk is full") : Status());
    LOOM_ASSERT_OK(run->observe(*files));
    LOOM_ASSERT_OK(run->observe(at_end));
    EXPECT_TRUE(fails_with(run->complete(), Code::disk_full, "the disk is full"));
    EXPECT_EQ(refuses.told.size(), 1u) << "it was refused, so it is told nothing else";
  });
  EXPECT_EQ(refused, 2);
  const Result<train::LoggedRun> log = train::read_log(config_.run.out);
  LOOM_ASSERT_OK(log);
  EXPECT_EQ(log->records.size(), 3u);
  EXPECT_TRUE(is_file(config_.run.out + "/report.html"));
  EXPECT_TRUE(is_file(config_.run.out + "/config.json"));
}

}  // namespace
}  // namespace loom::testing
