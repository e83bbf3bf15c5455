// Verdicts over scripted transports: who is told to hold an operation up, and who to have called something
// else.
#include "engine/failure/verdict.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/settings.h"
#include "engine/scripted_job.h"

namespace weft::engine {
namespace {

using plan::Collective;

class VerdictOf : public testing::Test {
 protected:
  explicit VerdictOf(std::vector<int> nodes = {0, 1})
      : job_({.nodes = std::move(nodes), .algorithm = "*=one_hop"}) {}

  Operation* call(int rank, Collective kind, uint64_t count, int root = 0) {
    return job_.begin(rank, in_place(kind, data_[rank].data(), count, root));
  }
  /// Rank 0 looks at its operations for the first time, and once more when it is due to ask.
  void stall() {
    const int64_t first = now_ns();
    job_.look(0, first);
    job_.look(0, first + static_cast<int64_t>((settings().stall_check_s + 1) * 1e9));
    job_.conclude(0);
  }
  /// The same when the operation's time is over.
  void run_out_of_time() {
    const int64_t first = now_ns();
    job_.look(0, first);
    job_.look(0, first + 601'000'000'000);
    job_.conclude(0);
  }
  std::string failure(int rank) { return job_.failure(rank).message(); }

  std::vector<std::vector<int32_t>> data_{3, std::vector<int32_t>(64)};
  ScriptedJob job_;
};

// ---- Other calls

TEST_F(VerdictOf, AMessageOfAnotherCallNamesBothCalls) {
  Operation* const op = call(0, Collective::all_reduce, 4);
  call(1, Collective::all_reduce, 5);
  job_.answers.shut();
  job_.settle();
  EXPECT_FALSE(op->end.finished) << "rank 1 has not answered yet";
  job_.answers.open();
  job_.conclude(0);
  EXPECT_EQ(job_.failure(0).code(), Code::mismatch);
  EXPECT_EQ(
      failure(0),
      "operation 1 (AllReduce of 4 int32 (sum)) of communicator world: rank 1 called AllReduce of 5 int32 "
      "(sum), rank 0 called AllReduce of 4 int32 (sum)");
  EXPECT_TRUE(op->end.finished);
  job_.conclude(1);
  EXPECT_EQ(job_.failure(1).code(), Code::mismatch);
  EXPECT_EQ(job_.told_by(0), 1);
}

TEST_F(VerdictOf, AMessageOfAnotherCallIsSaidWithoutAnAnswerToo) {
  call(0, Collective::all_reduce, 4);
  call(1, Collective::all_reduce, 5);
  job_.silent = {1};
  job_.network.deliver(job_.network.find(1, 0));
  (void)job_.turn(0);
  job_.conclude(0);
  EXPECT_NE(
      failure(0).find("rank 1 called it with another operation, count, type, operator or root; rank 0 called "
                      "AllReduce of 4 int32 (sum)"),
      std::string::npos)
      << failure(0);
}

// Rank 0 needs nothing from rank 1, and has ended before it comes.
TEST_F(VerdictOf, AMessageForACallThatHasEndedNamesBothCalls) {
  Operation* const root = call(0, Collective::broadcast, 4);
  job_.settle();
  ASSERT_TRUE(root->end.finished);
  call(1, Collective::all_reduce, 4);
  job_.settle();
  job_.conclude(0);
  EXPECT_EQ(job_.failure(0).code(), Code::mismatch);
  EXPECT_NE(failure(0).find("operation 1 of communicator world: rank 1 called AllReduce of 4 int32 (sum)"),
            std::string::npos)
      << failure(0);
  EXPECT_NE(failure(0).find("rank 0 called Broadcast of 4 int32 from root 0"), std::string::npos)
      << failure(0);
}

TEST_F(VerdictOf, ATransferOfAnotherLengthNamesBothEnds) {
  call(0, Collective::recv, 8, 1);
  call(1, Collective::send, 9, 0);
  job_.settle();
  job_.conclude(0);
  EXPECT_EQ(job_.failure(0).code(), Code::mismatch);
  EXPECT_NE(failure(0).find("rank 1 called Send of 9 int32 to rank 0"), std::string::npos) << failure(0);
  EXPECT_NE(failure(0).find("rank 0 called Recv of 8 int32 from rank 1"), std::string::npos) << failure(0);
}

// A rank that stalls asks, and hears of another call although no message of it has come.
TEST_F(VerdictOf, AStallFindsAnotherCall) {
  call(0, Collective::all_reduce, 4);
  call(1, Collective::broadcast, 4, 0);
  stall();
  EXPECT_EQ(job_.failure(0).code(), Code::mismatch);
  EXPECT_NE(failure(0).find("rank 1 called Broadcast of 4 int32 from root 0"), std::string::npos)
      << failure(0);
}

// ---- Calls that do not come

TEST_F(VerdictOf, ASlowRankIsNoFailureBeforeTheDeadline) {
  Operation* const op = call(0, Collective::all_reduce, 4);
  stall();
  EXPECT_TRUE(job_.failure(0).ok()) << failure(0);
  call(1, Collective::all_reduce, 4);
  job_.settle();
  EXPECT_TRUE(op->end.finished);
  EXPECT_TRUE(op->end.status.ok());
}

TEST_F(VerdictOf, ARankThatHasCalledNothingIsNamedAtTheDeadline) {
  call(0, Collective::all_reduce, 4);
  run_out_of_time();
  EXPECT_EQ(job_.failure(0).code(), Code::timeout);
  EXPECT_EQ(
      failure(0),
      "operation 1 (AllReduce of 4 int32 (sum)) of communicator world: not finished after 600 s: rank 1 has "
      "not started any operation");
}

TEST_F(VerdictOf, ARankThatIsBehindIsNamedWithItsLastOperation) {
  for (const int rank : {0, 1}) call(rank, Collective::all_reduce, 4);
  job_.settle();
  call(0, Collective::all_reduce, 4);
  run_out_of_time();
  EXPECT_NE(failure(0).find("rank 1 has not arrived, its last operation is 1"), std::string::npos)
      << failure(0);
}

TEST_F(VerdictOf, ARankThatDoesNotAnswerIsNamed) {
  call(0, Collective::all_reduce, 4);
  job_.silent = {1};
  run_out_of_time();
  EXPECT_NE(failure(0).find("not finished after 600 s: rank 1 does not answer"), std::string::npos)
      << failure(0);
}

// Inside a node nothing but the rank's goodbye tells. The others waited until the deadline.
TEST_F(VerdictOf, ARankThatHasLeftFailsWhoWaitsForItBeforeTheDeadline) {
  call(0, Collective::all_reduce, 4);
  job_.silent = job_.left = {1};
  stall();
  job_.look(0, now_ns() + 10'000'000'000);
  EXPECT_EQ(job_.failure(0).code(), Code::remote_error);
  EXPECT_NE(failure(0).find("rank 1 has gone: it has destroyed its communicator, or has ended"),
            std::string::npos)
      << failure(0);
}

TEST_F(VerdictOf, ARankThatHasLeftFailsNobodyWhoHasItsPart) {
  call(0, Collective::broadcast, 4);
  Operation* const op = call(1, Collective::broadcast, 4);
  job_.silent = job_.left = {0};
  job_.settle();
  EXPECT_TRUE(op->end.finished && op->end.status.ok());
  EXPECT_TRUE(job_.failure(1).ok()) << failure(1);
}

// It keeps another communicator of the job, so it answers. The others waited until the deadline.
TEST_F(VerdictOf, ARankThatHasEndedTheCommunicatorFailsWhoWaitsForItsCall) {
  for (const int rank : {0, 1}) call(rank, Collective::all_reduce, 4);
  job_.settle();
  job_.destroy_comm(1);
  call(0, Collective::all_reduce, 4);
  stall();
  EXPECT_EQ(job_.failure(0).code(), Code::remote_error);
  EXPECT_EQ(
      failure(0),
      "operation 2 (AllReduce of 4 int32 (sum)) of communicator world: rank 1 has gone: it has destroyed "
      "its communicator without this call");
}

TEST_F(VerdictOf, ARankThatHasEndedTheCommunicatorFailsWhoWaitsForItsTransfer) {
  call(0, Collective::recv, 4, 1);
  call(1, Collective::send, 4, 0);
  job_.settle();
  job_.destroy_comm(1);
  call(0, Collective::recv, 4, 1);
  stall();
  EXPECT_EQ(job_.failure(0).code(), Code::remote_error);
  EXPECT_NE(failure(0).find("rank 1 has gone: it has destroyed its communicator"), std::string::npos)
      << failure(0);
}

// Its part is on its way, however long that takes.
TEST_F(VerdictOf, ARankThatEndsTheCommunicatorAfterItsCallFailsNobody) {
  Operation* const results[] = {call(0, Collective::broadcast, 4, 1), call(0, Collective::recv, 4, 1)};
  Operation* const sources[] = {call(1, Collective::broadcast, 4, 1), call(1, Collective::send, 4, 0)};
  for (Operation* const op : sources) job_.await([&] { return job_.turn(1), op->end.finished.load(); });
  job_.destroy_comm(1);
  stall();
  EXPECT_TRUE(job_.failure(0).ok()) << failure(0);
  for (Operation* const op : results) EXPECT_FALSE(op->end.finished);
  job_.settle();
  for (Operation* const op : results) EXPECT_TRUE(op->end.finished && op->end.status.ok());
}

TEST_F(VerdictOf, ALostMessageIsNoRanksFault) {
  for (const int rank : {0, 1}) call(rank, Collective::all_reduce, 4);
  job_.network.flight().clear();
  run_out_of_time();
  EXPECT_EQ(job_.failure(0).code(), Code::timeout);
  EXPECT_NE(failure(0).find("every rank has started it, but it makes no progress"), std::string::npos)
      << failure(0);
}

TEST_F(VerdictOf, AMissingTransferIsNamed) {
  call(0, Collective::recv, 8, 1);
  run_out_of_time();
  EXPECT_NE(failure(0).find("rank 1 has not called the matching Send or Recv"), std::string::npos)
      << failure(0);
}

// ---- Answers that come late

TEST_F(VerdictOf, AnOperationThatEndsWhileItsPeersAreAskedIsNotJudged) {
  Operation* const op = call(0, Collective::all_reduce, 4);
  job_.answers.shut();
  const int64_t first = now_ns();
  job_.look(0, first);
  job_.look(0, first + 601'000'000'000);  // rank 1 says that it has called nothing
  job_.await([&] { return job_.answers.waiting(); });
  call(1, Collective::all_reduce, 4);
  job_.settle();
  EXPECT_TRUE(op->end.finished);
  job_.answers.open();
  job_.conclude(0);
  EXPECT_TRUE(job_.failure(0).ok()) << failure(0);
}

TEST_F(VerdictOf, OneOperationIsAskedAboutOnceAtATime) {
  call(0, Collective::all_reduce, 4);
  job_.answers.shut();
  const int64_t first = now_ns();
  job_.look(0, first);
  for (int i = 1; i < 10; ++i) job_.look(0, first + i * 100'000'000'000);
  job_.await([&] { return job_.answers.waiting(); });
  job_.answers.open();
  job_.conclude(0);
  EXPECT_EQ(job_.asked, 1);
}

}  // namespace
}  // namespace weft::engine
