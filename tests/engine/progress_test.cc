// Progress: who drives operations, and how sleepers are woken, over scripted transports.
#include "engine/context/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "engine/run/stream.h"
#include "engine/scripted_job.h"

namespace weft::engine {
namespace {

using plan::Collective;

/// Rank 0's messages move only with its lock, which its progress thread takes, too.
class Progress : public testing::Test {
 protected:
  bool asleep() {
    const Lock lock = job_.context(0).lock();
    return job_.context(0).sleepers().taken();
  }
  bool waits() {
    const Lock lock = job_.context(0).lock();
    return job_.context(0).sleepers().waits_for_operation();
  }
  /// Rank 1 calls, and all that is in flight arrives.
  Operation* answer() {
    const Lock lock = job_.context(0).lock();
    Operation* const op = job_.begin(1, in_place(Collective::all_reduce, theirs_.data(), theirs_.size()));
    job_.network.deliver_all();
    (void)job_.turn(1);
    job_.network.deliver_all();
    return op;
  }
  Call call(std::vector<int32_t>& data) { return in_place(Collective::all_reduce, data.data(), data.size()); }

  ScriptedJob job_{{.nodes = {0, 1}, .algorithm = "allreduce=one_hop"}};
  std::vector<int32_t> ours_ = {1, 1, 1}, theirs_ = {2, 2, 2};
};

TEST_F(Progress, OperationsOnStreamsGoOnWithoutAnybodyWaiting) {
  job_.start_progress(0);
  Stream stream;
  Call on_stream = call(ours_);
  on_stream.stream = &stream;
  EXPECT_TRUE(job_.comm(0).run(on_stream).ok());
  job_.await([&] { return asleep(); });
  EXPECT_EQ(stream.query().code(), Code::in_progress);
  answer();
  job_.await([&] { return stream.query().code() != Code::in_progress; });
  EXPECT_TRUE(stream.query().ok());
  EXPECT_EQ(ours_, (std::vector<int32_t>{3, 3, 3}));
}

TEST_F(Progress, NothingIsDrivenThatNobodyHasCalled) {
  job_.start_progress(0);
  job_.begin(1, call(theirs_));
  {
    const Lock lock = job_.context(0).lock();
    job_.network.deliver_all();
    EXPECT_FALSE(job_.context(0).busy());
  }
  EXPECT_FALSE(asleep());
}

TEST_F(Progress, ACallerThatWaitsSleepsUntilItsMessageComes) {
  job_.start_progress(0);
  Status done;
  std::thread caller([&] { done = job_.comm(0).run(call(ours_)); });
  job_.await([&] { return waits(); });
  answer();
  caller.join();
  EXPECT_TRUE(done.ok()) << done.message();
  EXPECT_EQ(ours_, (std::vector<int32_t>{3, 3, 3}));
}

TEST_F(Progress, TwoCallersThatWaitBothEnd) {
  job_.start_progress(0);
  std::vector<int32_t> ours = {1, 1, 1}, more = {1, 1, 1};
  Status done[2];
  std::thread first([&] { done[0] = job_.comm(0).run(call(ours)); });
  job_.await([&] { return waits(); });
  std::thread second([&] { done[1] = job_.comm(0).run(call(more)); });
  job_.await([&] {
    const Lock lock = job_.context(0).lock();
    return job_.comm(0).operations().unfinished().size() == 2;
  });
  answer();
  theirs_ = {2, 2, 2};
  answer();
  first.join();
  second.join();
  EXPECT_TRUE(done[0].ok() && done[1].ok());
  EXPECT_EQ(ours, (std::vector<int32_t>{3, 3, 3}));
  EXPECT_EQ(more, (std::vector<int32_t>{3, 3, 3}));
}

// A sleeper looks again before it sleeps: what has come meanwhile keeps it awake.
TEST_F(Progress, NobodySleepsWhenSomethingIsThere) {
  Context& context = job_.context(0);
  job_.begin(0, call(ours_));
  {
    const Lock lock = context.lock();
    EXPECT_TRUE(context.waiting().begin_sleep());
    EXPECT_TRUE(context.sleepers().taken());
    EXPECT_FALSE(context.waiting().begin_sleep()) << "one at a time";
    context.waiting().end_sleep();
  }
  answer();
  const Lock lock = context.lock();
  EXPECT_FALSE(context.waiting().begin_sleep());
  EXPECT_FALSE(context.sleepers().taken());
  EXPECT_GT(context.turn(), 0);
}

TEST_F(Progress, ASubmissionKeepsASleeperAwakeAndIsStartedByATurn) {
  Stream stream;
  Call on_stream = call(ours_);
  on_stream.stream = &stream;
  Operation* op = nullptr;
  {
    const Lock lock = job_.context(0).lock();
    const auto tables = job_.comm(0).tables_for(on_stream, job_.comm(0).operations().streak());
    ASSERT_TRUE(tables.ok());
    op = job_.comm(0).enroll(on_stream, **tables);
    stream.push(op, Stream::new_batch());
    EXPECT_TRUE(job_.context(0).submissions().any());
    EXPECT_FALSE(op->started);
    EXPECT_FALSE(job_.context(0).waiting().begin_sleep());
    EXPECT_GT(job_.context(0).turn(), 0);
    EXPECT_TRUE(op->started);
    EXPECT_FALSE(job_.context(0).submissions().any());
  }
  answer();
  (void)job_.turn(0);
  EXPECT_TRUE(op->end.finished);
  const Lock lock = job_.context(0).lock();
  job_.context(0).operations().release(op);
}

// Each read lasts until another thread wants the lock, and sleeps for it.
TEST_F(Progress, ALongReceiveLeavesTheLockToOthersThoughEachTurnHasEvents) {
  ScriptedJob job{{.nodes = {0, 0}}};
  constexpr uint64_t kCount = 16 << 20;  // 128 reads
  std::vector<int32_t> ours(kCount), theirs(kCount, 7);
  std::atomic<int> reads{0};
  job.local.on_read = [&](int, const void*) {
    ++reads;
    const Deadline late = Deadline::in_seconds(0.02);
    while (!job.context(0).lock_is_wanted() && !late.passed()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  (void)job.begin(1, in_place(Collective::send, theirs.data(), kCount, 0));
  (void)job.turn(1);
  job.local.deliver_all();
  Status done;
  std::thread caller([&] { done = job.comm(0).run(in_place(Collective::recv, ours.data(), kCount, 1)); });
  job.await([&] { return reads > 0; });
  {
    const Lock lock = job.context(0).lock();
    EXPECT_LT(reads, 64);
    job.local.on_read = [](int, const void*) {};
  }
  caller.join();
  EXPECT_TRUE(done.ok()) << done.message();
  EXPECT_EQ(ours, theirs);
}

}  // namespace
}  // namespace weft::engine
