// Operations in flight from inside: what is known of them, what they wait for, and what they leave behind.
#include <stdlib.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/settings.h"
#include "engine/failure/verdict.h"
#include "engine/ranks.h"
#include "engine/run/stream.h"
#include "transport/ofi.h"

namespace weft::engine {
namespace {

using plan::Collective;

/// The first of `comm` that meets a condition, as soon as there is one.
Operation* wait_for(Communicator& comm, Lock& lock, const std::function<bool(const Operation&)>& met) {
  while (true) {
    for (Operation* op : comm.operations().unfinished())
      if (met(*op)) return op;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
}

// A Send is done when its message is queued: rank 1 has all of them before rank 0 calls again.
TEST(InFlight, WhatDoneSendsHaveQueuedGoesOutWithoutAnotherCall) {
  std::atomic<int> sent{0};
  std::latch all_sent(2), all_received(2);
  run_ranks({"a", "b"}, [&](Communicator& comm) {
    std::vector<int32_t> data(8000);
    if (comm.rank() == 0) {
      for (int in_a_row = 0; in_a_row < 16;) {  // the kernel takes no more, and half a MiB waits
        EXPECT_TRUE(comm.run(in_place(Collective::send, data.data(), data.size(), 1)).ok());
        ++sent;
        const Lock lock = comm.context().lock();
        in_a_row = comm.context().fabric().unsent() ? in_a_row + 1 : 0;
      }
      all_sent.arrive_and_wait();
      return all_received.arrive_and_wait();
    }
    all_sent.arrive_and_wait();
    Status received;
    for (int i = 0; i < sent && received.ok(); ++i)
      received = comm.run(in_place(Collective::recv, data.data(), data.size(), 0));
    EXPECT_TRUE(received.ok()) << received.message();
    all_received.arrive_and_wait();
  });
}

/// Rank 0, root of back-to-back Broadcasts, calls until a message of its waits for others to share a write;
/// returns how many it took, as its value at the others.
int32_t broadcast_until_one_waits(Communicator& comm) {
  const auto waits = [&comm] { return comm.context().fabric().due_ns() != 0; };
  for (int32_t calls = 1; calls < 1'000'000; ++calls) {
    int32_t value = calls;
    if (!comm.run(in_place(Collective::broadcast, &value, 1)).ok()) break;
    if (waits()) return calls;
  }
  return -1;
}

/// Another rank takes part in as many calls as rank 0 has made, once it says how many.
void take_part_in(Communicator& comm, const std::atomic<int32_t>& calls) {
  while (calls == 0) std::this_thread::yield();
  Status received;
  int32_t value = 0;
  for (int32_t call = 0; call < calls && received.ok(); ++call)
    received = comm.run(in_place(Collective::broadcast, &value, 1));
  EXPECT_TRUE(received.ok()) << received.message();
  EXPECT_EQ(value, calls);
}

// A caller that stops calling polls no more, and nothing else tells that its burst has ended.
TEST(InFlight, TheEndOfABurstGoesOutWithoutAnotherCall) {
  std::atomic<int32_t> calls{0};
  std::latch all_received(3);
  run_ranks({"a", "b", "c"}, [&](Communicator& comm) {
    EXPECT_EQ(sum_of_ones(comm), 3);
    if (comm.rank() == 0) calls = broadcast_until_one_waits(comm);
    else take_part_in(comm, calls);
    all_received.arrive_and_wait();
  });
}

// While somebody waits the progress thread has nothing to do here, and may sleep; then nobody woke it again.
TEST(InFlight, BurstsBehindCallsThatWaitGoOutWithoutAnotherCall) {
  constexpr int kBursts = 50;
  std::vector<std::atomic<int32_t>> calls(kBursts);
  std::barrier<> burst_over(2);
  run_ranks({"a", "b"}, [&](Communicator& comm) {
    for (int burst = 0; burst < kBursts; ++burst) {
      EXPECT_EQ(sum_of_ones(comm), 2);  // a burst ends here, and its poll does
      if (comm.rank() == 0) calls[burst] = broadcast_until_one_waits(comm);
      else take_part_in(comm, calls[burst]);
      burst_over.arrive_and_wait();
      // Rank 0 waits for as long as the progress thread may take to find that it need not look.
      if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(burst % 4));
    }
  });
}

// Who sleeps in a context looks at nothing, and nobody wakes it for what others have left to wait.
TEST(InFlight, NothingOfABurstWaitsWhileAnotherThreadSleeps) {
  std::latch burst_over(2);
  run_ranks({"a", "b"}, [&](Communicator& comm) {
    int32_t word = 0;
    EXPECT_EQ(sum_of_ones(comm), 2);
    if (comm.rank() == 1) {
      burst_over.arrive_and_wait();
      for (int i = 0; i < 1000; ++i) EXPECT_TRUE(comm.run(in_place(Collective::recv, &word, 1, 0)).ok());
      EXPECT_TRUE(comm.run(in_place(Collective::send, &word, 1, 0)).ok());
      return;
    }
    std::thread sleeper([&] {
      int32_t other = 0;
      EXPECT_TRUE(comm.run(in_place(Collective::recv, &other, 1, 1)).ok());
    });
    for (bool asleep = false; !asleep;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const Lock lock = comm.context().lock();
      asleep = comm.context().sleepers().waits_for_operation();
    }
    for (int i = 0; i < 1000; ++i) {
      EXPECT_TRUE(comm.run(in_place(Collective::send, &word, 1, 1)).ok());
      EXPECT_EQ(comm.context().fabric().due_ns(), 0) << i;
    }
    burst_over.arrive_and_wait();
    sleeper.join();
  });
}

// The progress thread does not disturb a burst, but has what is called on a stream to do.
TEST(InFlight, ACallOnAStreamMovesBehindABurst) {
  std::atomic<int32_t> calls{0};
  std::latch all_done(2);
  run_ranks({"a", "b"}, [&](Communicator& comm) {
    EXPECT_EQ(sum_of_ones(comm), 2);
    if (comm.rank() == 0) calls = broadcast_until_one_waits(comm);
    else take_part_in(comm, calls);
    int32_t ones = 1;
    Stream stream;
    Call sum = in_place(Collective::all_reduce, &ones, 1);
    sum.stream = &stream;
    EXPECT_TRUE(comm.run(sum).ok());
    // Asking does not drive it.
    for (const Deadline deadline = Deadline::in_seconds(20);
         stream.query().code() == Code::in_progress && !deadline.passed();)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(stream.query().ok());
    EXPECT_EQ(ones, 2);
    all_done.arrive_and_wait();
  });
}

// Over libfabric, where every message needs another look at the network to get out.
TEST(InFlight, WhatASplitHasLeftWithTheNetworkGoesOutWithoutAnotherCall) {
  setenv("WEFT_NET", "ofi", 1);  // where this test is alone in its process, nobody has read it yet
  constexpr int kSplits = 20, kTurns = 500;
  std::barrier<> meet(2);
  run_ranks({"a", "b"}, [&](Communicator& comm) {
    Context& context = comm.context();
    if (dynamic_cast<transport::OfiTransport*>(context.fabric().between_nodes()) == nullptr)
      GTEST_SKIP() << "an earlier test has chosen another network";
    EXPECT_EQ(sum_of_ones(comm), 2);
    for (int i = 0; i < kSplits; ++i) {
      if (comm.rank() == 1) {
        auto making = job::begin_split(comm, 0, 1, {});
        meet.arrive_and_wait();
        meet.arrive_and_wait();
        EXPECT_TRUE(making.ok() && (*making)().ok());
        continue;
      }
      meet.arrive_and_wait();
      for (int turn = 0; turn < kTurns; ++turn) {  // then the other's choice is here
        const Lock lock = context.lock();
        context.turn();
      }
      EXPECT_TRUE(split(comm, 0, 0, {}).ok());
      bool left = true;
      for (const Deadline deadline = Deadline::in_seconds(20); left && !deadline.passed();) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const Lock lock = context.lock();
        left = context.fabric().unsent();
      }
      EXPECT_FALSE(left) << "split " << i;
      meet.arrive_and_wait();
    }
  });
}

// A peer of another process may write to it until it has heard of the failure.
TEST(InFlight, ScratchThatWasExposedIsNotLentAgainAfterAFailure) {
  std::latch failed(2);
  run_ranks({"a", "a"}, [&](Communicator& comm) {
    if (comm.rank() == 1) return failed.arrive_and_wait();
    std::vector<int32_t> data(2 * 10000);
    std::thread caller(
        [&] { EXPECT_FALSE(comm.run(in_place(Collective::all_to_all, data.data(), 10000)).ok()); });
    wait_for_operations(comm);
    {
      const Lock lock = comm.context().lock();
      const Operation& op = *comm.operations().unfinished().front();
      EXPECT_TRUE(op.tables->exposes_inside[static_cast<int>(plan::Space::scratch)]);
      const ScratchPool::Block lent = op.memory.scratch;
      EXPECT_NE(lent.data, nullptr);
      comm.fail(fail(Code::aborted, "enough"), true);
      ScratchPool& pool = comm.context().workspace().scratch();
      const auto next = pool.take(size_t{1} << lent.size_class);
      EXPECT_TRUE(next.ok() && next->data != lent.data);
      if (next) pool.give(*next);
    }
    caller.join();
    failed.arrive_and_wait();
  });
}

// So many calls are queued behind rank 0's AllReduce that its record has gone to one of them.
TEST(InFlight, AnOperationIsToldByItsOwnCallWhenTheRecorderHasComeRound) {
  std::latch called(3), judged(3);
  run_ranks({"a", "a", "a"}, [&](Communicator& comm) {
    int32_t ones[1] = {1}, others[1] = {};
    const Call sum = in_place(Collective::all_reduce, ones, 1);
    const Call next = in_place(Collective::broadcast, others, 1);
    Stream stream;
    const auto queue = [&](Call call) {
      call.stream = &stream;
      EXPECT_TRUE(comm.run(call).ok());
    };
    const auto queue_all_others = [&] {
      for (int i = 0; i < settings().recorder_ops; ++i) queue(next);
    };
    if (comm.rank() < 2) queue(sum);
    if (comm.rank() == 0) queue_all_others();
    called.arrive_and_wait();
    if (comm.rank() == 0) {
      Lock lock = comm.context().lock();
      Operation* const first = wait_for(comm, lock, [](const Operation& op) { return op.number == 1; });
      first->retain();
      EXPECT_EQ(describe(*first), "operation 1 (AllReduce of 1 int32 (sum)) of communicator world");
      first->end.deadline_ns = now_ns() + 10'000'000'000;  // not overdue
      Verdict::on_stall(comm.context(), *first, 0);
      EXPECT_TRUE(first->health.verdict_pending);
      while (first->health.verdict_pending && !first->end.finished) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        lock.lock();
      }
      comm.context().operations().release(first);
    }
    judged.arrive_and_wait();
    if (comm.rank() == 2) queue(sum);
    if (comm.rank() > 0) queue_all_others();
    const Status done = stream.synchronize();
    EXPECT_TRUE(done.ok()) << done.message();
    EXPECT_EQ(ones[0], 3);
  });
}

// What a peer said before it called is no answer to what it has called since.
TEST(InFlight, AMessageOfAnotherCallThatComesDuringAnInquiryIsAskedAboutItself) {
  std::latch asked(2), judged(2);
  run_ranks({"a", "a"}, [&](Communicator& comm) {
    int32_t data[20] = {};
    if (comm.rank() == 1) {
      asked.arrive_and_wait();
      EXPECT_TRUE(comm.run(in_place(Collective::send, data, 10, 0)).ok());
      return judged.arrive_and_wait();
    }
    Status received;
    std::thread receiver([&] { received = comm.run(in_place(Collective::recv, data, 20, 1)); });
    {
      Lock lock = comm.context().lock();
      Operation* const op =
          wait_for(comm, lock, [](const Operation& candidate) { return candidate.started; });
      op->end.deadline_ns = now_ns() + 10'000'000'000;  // not overdue
      Verdict::on_stall(comm.context(), *op, 0);
      EXPECT_TRUE(op->health.verdict_pending);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 1 says that it has called nothing
      asked.arrive_and_wait();
      const Deadline deadline = Deadline::in_seconds(10);
      while (op->health.mismatched < 0 && !deadline.passed()) comm.context().turn();
      EXPECT_EQ(op->health.mismatched, 1);
    }
    receiver.join();
    EXPECT_EQ(received.code(), Code::mismatch);
    EXPECT_NE(received.message().find("rank 1 called Send of 10 int32"), std::string::npos)
        << received.message();
    judged.arrive_and_wait();
  });
}

// Nothing tells of such a message again.
TEST(InFlight, ALateMessageOfAnotherCallIsAskedAboutAfterTheInquiryThatRuns) {
  std::latch summed(2), over(2);
  run_ranks({"a", "a"}, [&](Communicator& comm) {
    EXPECT_EQ(sum_of_ones(comm), 2);
    summed.arrive_and_wait();  // a rank that has not seen its sum yet would lose it to the news
    if (comm.rank() == 0) {
      Context& context = comm.context();
      std::latch asked(1);
      {
        const Lock lock = context.lock();
        EXPECT_TRUE(context.failures().inquiries().ask([&] { asked.wait(); }));
        Verdict::on_late_message(context, comm, 1, 1);
        Verdict::on_late_message(context, comm, 1, 1);
        EXPECT_TRUE(comm.failure().ok());
      }
      asked.count_down();
      Status failure;
      for (const Deadline deadline = Deadline::in_seconds(20); failure.ok() && !deadline.passed();) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const Lock lock = context.lock();
        failure = comm.failure();
      }
      EXPECT_EQ(failure.code(), Code::mismatch) << failure.message();
    }
    over.arrive_and_wait();
  });
}

// Rank 1 reads nothing while this thread of it has the lock.
TEST(InFlight, APeerThatHasNotTakenAWholePutIsAwaited) {
  std::latch offered(2), seen(2);
  run_ranks({"a", "b"}, [&](Communicator& comm) {
    std::vector<int32_t> data(8 << 20);
    if (comm.rank() == 1) {
      Stream stream;
      Call recv = in_place(Collective::recv, data.data(), data.size(), 0);
      recv.stream = &stream;
      EXPECT_TRUE(comm.run(recv).ok());
      Lock lock = comm.context().lock();
      wait_for(comm, lock, [](const Operation& candidate) { return candidate.started; });
      offered.arrive_and_wait();
      seen.arrive_and_wait();
      lock.unlock();
      EXPECT_FALSE(stream.synchronize().ok());
      return;
    }
    offered.arrive_and_wait();
    std::thread sender(
        [&] { EXPECT_FALSE(comm.run(in_place(Collective::send, data.data(), data.size(), 1)).ok()); });
    {
      Lock lock = comm.context().lock();
      const Operation* const op = wait_for(comm, lock, [](const Operation& candidate) {
        return candidate.started && candidate.progress.lanes_left == 0 && candidate.progress.puts_open > 0;
      });
      EXPECT_EQ(op->progress.awaited_peers(*op->tables), std::vector<int>{1});
      comm.context().inbox().lost(1, fail(Code::remote_error, "its connection has ended"));
      comm.context().check_deadlines(now_ns() + 2'000'000'000);  // after the time of grace
      EXPECT_EQ(comm.failure().code(), Code::remote_error);
      if (comm.failure().ok()) comm.fail(fail(Code::aborted, "nobody noticed"), true);
    }
    seen.arrive_and_wait();
    sender.join();
  });
}

// The step that could not reach it is not tried again: what is at that address by then may be anything.
TEST(InFlight, APeerThatCouldNotBeReachedStaysSoUntilTheReasonIsHeard) {
  std::latch marked(2);
  run_ranks({"a", "a"}, [&](Communicator& comm) {
    std::vector<int32_t> data(1 << 20);
    if (comm.rank() == 1) {
      marked.arrive_and_wait();
      (void)comm.run(in_place(Collective::send, data.data(), data.size(), 0));
      return;
    }
    Stream stream;
    Call recv = in_place(Collective::recv, data.data(), data.size(), 1);
    recv.stream = &stream;
    EXPECT_TRUE(comm.run(recv).ok());
    const int64_t begin = now_ns();
    {
      Lock lock = comm.context().lock();
      Operation* const op =
          wait_for(comm, lock, [](const Operation& candidate) { return candidate.started; });
      op->health.set_unreachable(fail(Code::remote_error, "its memory is gone"));
      comm.context().failures().on_unreachable(*op);
    }
    marked.arrive_and_wait();
    const Status received = stream.synchronize();
    EXPECT_EQ(received.code(), Code::remote_error);
    EXPECT_NE(received.message().find("its memory is gone"), std::string::npos) << received.message();
    EXPECT_GE(now_ns() - begin, 100'000'000);
  });
}

}  // namespace
}  // namespace weft::engine
