// The fast path over shared memory of the test's own thread: what a peer sends is there, or it is not, before
// the call looks.
#include "engine/context/fast_path.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "engine/scripted_job.h"

namespace weft::engine {
namespace {

using plan::Collective;

class FastPath : public testing::Test {
 protected:
  // The first call of each rank makes its bound operation.
  void SetUp() override {
    Operation* const first = sum(1);
    int32_t value = 1;
    ASSERT_TRUE(job_.comm(0).run(in_place(Collective::all_reduce, &value, 1)).ok());
    EXPECT_EQ(value, 3);
    (void)job_.turn(1);
    ASSERT_TRUE(first->end.finished);
    events_ = job_.context(0).events();
  }

  /// Rank 1 gives 2 to a sum; the operation sends at once.
  Operation* sum(int rank) {
    theirs_.push_back(std::make_unique<int32_t>(2));
    return job_.begin(rank, in_place(Collective::all_reduce, theirs_.back().get(), 1));
  }
  /// Rank 0 gives 1 to a sum and waits for it.
  Status call(int32_t& value) {
    value = 1;
    return job_.comm(0).run(in_place(Collective::all_reduce, &value, 1));
  }
  uint64_t sent() {
    const Lock lock = job_.context(0).lock();
    return job_.context(0).fabric().local()->counters().messages_sent;
  }
  /// Whether rank 0 has done everything since SetUp() by itself: no turn has seen anything.
  bool stayed_on_it() const { return job_.context(0).events() == events_; }

  mutable ScriptedJob job_{{.nodes = {0, 0}, .algorithm = "allreduce=one_hop", .shared_memory = true}};
  uint64_t events_ = 0;

 private:
  std::vector<std::unique_ptr<int32_t>> theirs_;
};

TEST_F(FastPath, ACallWhoseMessagesAreThereNeedsNoTurn) {
  for (int i = 0; i < 100; ++i) {
    Operation* const other = sum(1);
    int32_t value;
    ASSERT_TRUE(call(value).ok());
    EXPECT_EQ(value, 3);
    EXPECT_TRUE(job_.comm(0).operations().unfinished().empty());
    (void)job_.turn(1);
    EXPECT_TRUE(other->end.finished);
  }
  EXPECT_TRUE(stayed_on_it());
}

TEST_F(FastPath, ACallWhoseMessageIsLateBecomesActiveAndRepeatsNothing) {
  const uint64_t before = sent();
  int32_t value;
  Status done;
  std::thread caller([&] { done = call(value); });
  wait_for_operations(job_.comm(0));
  {
    const Lock lock = job_.context(0).lock();
    const Operation& op = *job_.comm(0).operations().unfinished().front();
    EXPECT_EQ(op.progress.awaited_peers(*op.tables), std::vector<int>{1});
    EXPECT_EQ(op.progress.puts_started, 1u);
    EXPECT_EQ(op.progress.puts_open, 0u);
  }
  sum(1);
  caller.join();
  EXPECT_TRUE(done.ok()) << done.message();
  EXPECT_EQ(value, 3);
  EXPECT_EQ(sent(), before + 1);
  EXPECT_FALSE(stayed_on_it());
  // And it is bound again.
  events_ = job_.context(0).events();
  sum(1);
  EXPECT_TRUE(call(value).ok());
  EXPECT_EQ(value, 3);
  EXPECT_TRUE(stayed_on_it());
}

// Rank 1 is calls ahead: what is there first belongs to this call, and the rest waits its turn.
TEST_F(FastPath, MessagesOfLaterCallsAreKeptForThem) {
  constexpr int kAhead = 3;
  // Rank 1 needs rank 0's message before it may reuse nothing: each call is an operation of its own.
  for (int i = 0; i < kAhead; ++i) sum(1);
  for (int i = 0; i < kAhead; ++i) {
    int32_t value;
    ASSERT_TRUE(call(value).ok());
    EXPECT_EQ(value, 3) << i;
  }
  EXPECT_TRUE(job_.context(0).inbox().empty());
}

TEST_F(FastPath, WhatHasComeEarlyIsFound) {
  sum(1);
  (void)job_.turn(0);
  EXPECT_FALSE(job_.context(0).inbox().empty());
  events_ = job_.context(0).events();
  int32_t value;
  ASSERT_TRUE(call(value).ok());
  EXPECT_EQ(value, 3);
  EXPECT_TRUE(stayed_on_it());
  EXPECT_TRUE(job_.context(0).inbox().empty());
}

TEST_F(FastPath, OtherOperationsInFlightGoOnMeanwhile) {
  int32_t word = 0, theirs = 42;
  Operation* const receives = job_.begin(0, in_place(Collective::recv, &word, 1, 1));
  EXPECT_FALSE(receives->end.finished);
  job_.begin(1, in_place(Collective::send, &theirs, 1, 0));
  sum(1);
  int32_t value;
  ASSERT_TRUE(call(value).ok());
  EXPECT_EQ(value, 3);
  EXPECT_TRUE(receives->end.finished);
  EXPECT_EQ(word, 42);
  EXPECT_FALSE(stayed_on_it());
}

TEST_F(FastPath, AFullQueueOfThePeerMakesTheCallActive) {
  const Call broadcast = [] {
    static int32_t value = 5;
    return in_place(Collective::broadcast, &value, 1);
  }();
  std::thread caller([&] {
    for (int i = 0; i < 10'000; ++i)
      if (!job_.comm(0).run(broadcast).ok()) return;
  });
  job_.await([&] {
    const Lock lock = job_.context(0).lock();
    return !job_.comm(0).operations().unfinished().empty();
  });
  {
    const Lock lock = job_.context(0).lock();
    const Operation& op = *job_.comm(0).operations().unfinished().front();
    EXPECT_EQ(op.progress.awaited_peers(*op.tables), std::vector<int>{1}) << "it waits for room";
    job_.comm(0).fail(fail(Code::aborted, "enough"), false);
  }
  caller.join();
}

TEST_F(FastPath, AMessageOfAnotherCallIsFoundAndNotUsed) {
  int32_t theirs = 2;
  Call other = in_place(Collective::all_reduce, &theirs, 1);
  other.op = device::ReduceOp::max;  // the message is as long as that of a sum
  job_.begin(1, other);
  int32_t value;
  const Status done = call(value);
  EXPECT_EQ(done.code(), Code::mismatch) << done.message();
  EXPECT_NE(done.message().find("rank 1 called AllReduce of 1 int32 (max)"), std::string::npos)
      << done.message();
}

TEST_F(FastPath, ACallOnAFailedCommunicatorFails) {
  {
    const Lock lock = job_.context(0).lock();
    job_.comm(0).fail(fail(Code::aborted, "enough"), false);
  }
  const uint64_t before = sent();
  int32_t value;
  EXPECT_EQ(call(value).message(), "enough");
  EXPECT_EQ(value, 1);
  EXPECT_EQ(sent(), before);
}

}  // namespace
}  // namespace weft::engine
