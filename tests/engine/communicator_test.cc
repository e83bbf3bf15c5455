// Communicators from inside: what the C functions cannot show or bring about.
#include "engine/run/communicator.h"

#include <fmt/format.h>
#include <poll.h>

#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bootstrap/reserved_port.h"
#include "engine/ranks.h"

namespace weft::engine {
namespace {

TEST(Communicator, ShrinkingWithAbortFailsNothingWhileAnotherThreadHasTheLock) {
  run_ranks({"a"}, [](Communicator& comm) {
    Lock lock = comm.context().lock();
    std::thread shrinker([&] { EXPECT_TRUE(shrink(comm, {}, true, CommOptions()).ok()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // long enough for one that does not wait
    EXPECT_TRUE(comm.failure().ok());
    lock.unlock();
    shrinker.join();
    EXPECT_EQ(comm.health().code(), Code::aborted);
  });
}

// The ranks of a launcher look up the root's name, each on its own host.
TEST(Communicator, IsTheSameWhateverAddressARankHasForTheRoot) {
  const bootstrap::ReservedPort port;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const auto id =
          bootstrap::unique_id_for(rank == 0 ? "127.0.0.1" : "127.0.0.2", port.number(), "secret");
      ASSERT_TRUE(id.ok()) << id.status().message();
      if (rank == 0) {
        ASSERT_TRUE(bootstrap::serve_unique_id(*id).ok());
      }
      CommOptions options;
      options.timeout_s = 5;
      const auto made = job::create(*id, rank, 2, options);
      ASSERT_TRUE(made.ok()) << made.status().message();
      EXPECT_EQ(sum_of_ones(**made), 2);
      EXPECT_TRUE((*made)->finalize().ok());
    });
  for (std::thread& thread : threads) thread.join();
}

// Rank 1's shrink ends its split after its part was sent, so that the split is done on rank 0 alone.
// The counts that an answer has are those of the rank that asks.
TEST(Communicator, DoesNotAnswerARankThatIsNoneOfItsOwn) {
  run_ranks({"a", "a", "a"}, [&](Communicator& comm) {
    const auto child = split(comm, comm.rank() == 2 ? 1 : 0, 0, {}).take();
    if (comm.rank() != 0) return;
    EXPECT_TRUE(comm.context().failures().on_question(1, child->id(), 1).known);
    EXPECT_FALSE(comm.context().failures().on_question(2, child->id(), 1).known);
  });
}

TEST(Communicator, ShrinksToTheSameOnesAfterASplitThatFailedOnSomeRanks) {
  std::latch sent(2);
  run_ranks({"a", "a"}, [&](Communicator& comm) {
    CommOptions options;
    options.timeout_s = 5;
    std::shared_ptr<Communicator> rest;
    if (comm.rank() == 0) {
      sent.arrive_and_wait();
      const auto child = split(comm, 0, 0, options);
      ASSERT_TRUE(child.ok()) << child.status().message();
      rest = shrink(comm, {}, true, options).take();
    } else {
      std::thread splitter([&] { EXPECT_FALSE(split(comm, 0, 0, options).ok()); });
      wait_for_operations(comm);
      rest = shrink(comm, {}, true, options).take();
      splitter.join();
      sent.arrive_and_wait();
    }
    EXPECT_EQ(sum_of_ones(*rest), 2);
    EXPECT_TRUE(rest->finalize().ok());
  });
}

// A root that needs nothing was done before the inquiry was, which then found no operation and said nothing:
// ranks went on to sum what others had never broadcast.
TEST(Communicator, AnEarlyMessageOfAnotherCallIsToldThoughTheOperationIsDone) {
  run_ranks({"a", "a"}, [](Communicator& comm) {
    std::vector<int32_t> data(4, 1);
    if (comm.rank() == 0) {
      EXPECT_TRUE(comm.run(in_place(plan::Collective::broadcast, data.data(), data.size())).ok());
    } else {
      for (int turn = 0; turn < 100; ++turn) {  // until the message is there, and kept
        EXPECT_TRUE(comm.health().ok());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_TRUE(comm.run(in_place(plan::Collective::broadcast, data.data(), 0)).ok());
    }
    const Deadline end = Deadline::in_seconds(10);
    while (comm.health().ok() && !end.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_NE(comm.health().message().find("rank 0 called Broadcast of 4 int32 from root 0"),
              std::string::npos)
        << comm.health().message();
  });
}

// They went with the messages, on whose connection twice as much may be on its way.
TEST(Communicator, BlocksThatHaveBeenAskedForArePutThoughAMessageWouldHoldThem) {
  constexpr size_t kRanks = 12, kBlock = 12 << 10;  // 48 KiB of int32
  std::vector<std::string> nodes;
  for (size_t node = 0; node < kRanks; ++node) nodes.push_back(fmt::format("node {}", node));
  run_ranks(nodes, [](Communicator& comm) {
    comm.pin(*model::parse_pins("alltoall=all_to_all"));
    std::vector<int32_t> mine(kRanks * kBlock), all(mine.size());
    for (size_t i = 0; i < mine.size(); ++i)
      mine[i] = static_cast<int32_t>(1000 * comm.rank() + static_cast<int>(i / kBlock));
    Call call{.collective = plan::Collective::all_to_all, .send = mine.data(), .recv = all.data()};
    call.count = kBlock;
    call.type = device::DataType::int32;
    const transport::Transport& network = *comm.context().fabric().between_nodes();
    const uint64_t before = network.counters().puts;
    ASSERT_TRUE(comm.run(call).ok());
    EXPECT_EQ(network.counters().puts - before, kRanks - 1);
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(all[i], static_cast<int32_t>(1000 * (i / kBlock)) + comm.rank()) << i;
  });
}

// Of two halves the longer is asked for, and the shorter, which goes to the same rank, is not.
TEST(Communicator, AShortHalfIsSentThoughOnlyTheLongOnesPlaceWillBeKnown) {
  run_ranks({"a", "b", "c"}, [](Communicator& comm) {
    comm.pin(*model::parse_pins("allreduce=double_tree"));
    std::vector<int32_t> data(32769, 1);
    if (comm.rank() == 2)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // has told nothing yet
    const Status done = comm.run(in_place(plan::Collective::all_reduce, data.data(), data.size()));
    ASSERT_TRUE(done.ok()) << done.message();
    EXPECT_EQ(data, std::vector<int32_t>(data.size(), 3));
  });
}

TEST(OpNumbers, AreComparedAroundTheirEnd) {
  EXPECT_TRUE(comes_after(1, 0));
  EXPECT_FALSE(comes_after(1, 1));
  EXPECT_FALSE(comes_after(0, 1));
  EXPECT_TRUE(comes_after(0, kCollectiveMask));
  EXPECT_TRUE(comes_after(3, kCollectiveMask - 3));
  EXPECT_FALSE(comes_after(kCollectiveMask - 3, 3));
}

// The root of broadcasts is ahead by all of them, whose messages wait at the other rank.
TEST(Communicator, GoesOnAfterTwoToThe31Collectives) {
  CommOptions options;
  options.calls_before = kCollectiveMask - 8;
  std::latch ahead(2);
  run_ranks(
      {"a", "b"},
      [&](Communicator& comm) {
        if (comm.rank() == 1) ahead.arrive_and_wait();
        int32_t value = 0;
        Call call;
        call.collective = plan::Collective::broadcast;
        call.send = call.recv = &value;
        call.count = 1;
        call.type = device::DataType::int32;
        for (int32_t i = 0; i < 20; ++i) {
          value = comm.rank() == 0 ? i : -1;
          const Status done = comm.run(call);
          ASSERT_TRUE(done.ok()) << done.message();
          EXPECT_EQ(value, i);
        }
        EXPECT_EQ(comm.operations().last_collective(), 11u);
        if (comm.rank() == 0) ahead.arrive_and_wait();
      },
      options);
}

// One inquiry runs at a time, and a message that does not fit comes only once.
TEST(Communicator, ReportsAMismatchThatWasSeenDuringAnotherInquiry) {
  std::latch receiving(2), summed(2), judged(2);
  run_ranks({"a", "a"}, [&](Communicator& comm) {
    int32_t data[20] = {};
    if (comm.rank() == 1) {
      receiving.arrive_and_wait();
      EXPECT_TRUE(comm.run(in_place(plan::Collective::send, data, 10, 0)).ok());
      EXPECT_EQ(sum_of_ones(comm), 2);
      summed.arrive_and_wait();
      return judged.arrive_and_wait();
    }
    std::latch other_inquiry(1);
    {
      const Lock lock = comm.context().lock();
      ASSERT_TRUE(comm.context().failures().inquiries().ask([&] { other_inquiry.wait(); }));
    }
    Status received;
    std::thread receiver([&] { received = comm.run(in_place(plan::Collective::recv, data, 20, 1)); });
    wait_for_operations(comm);
    receiving.arrive_and_wait();
    EXPECT_EQ(sum_of_ones(comm), 2);  // what was sent before it is here
    summed.arrive_and_wait();         // or rank 1 might hear of the mismatch in the midst of it
    other_inquiry.count_down();
    receiver.join();
    EXPECT_EQ(received.code(), Code::mismatch) << received.message();
    judged.arrive_and_wait();
  });
}

/// Whether `ring` rings for a thread that sleeps in the context until it has received something. That thread
/// needs the lock to get up, so it cannot have taken the ring back.
void expect_ring(const std::function<void(Communicator&)>& ring) {
  std::latch woken(2);
  run_ranks({"a", "a"}, [&](Communicator& comm) {
    if (comm.rank() == 1) return woken.arrive_and_wait();
    int32_t data = 0;
    std::thread receiver([&] { EXPECT_FALSE(comm.run(in_place(plan::Collective::recv, &data, 1, 1)).ok()); });
    Lock lock = comm.context().lock();
    while (!comm.context().sleepers().waits_for_operation()) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock.lock();
    }
    pollfd bell{comm.context().fabric().epoll_fd(), POLLIN, 0};
    EXPECT_EQ(poll(&bell, 1, 0), 0);
    ring(comm);
    EXPECT_EQ(poll(&bell, 1, 0), 1);
    comm.fail(fail(Code::aborted, "enough"), false);
    lock.unlock();
    receiver.join();
    woken.arrive_and_wait();
  });
}

TEST(Context, WakesASleeperWhoseOperationAnotherThreadEnds) {
  expect_ring([](Communicator& comm) { comm.fail(fail(Code::aborted, "enough"), false); });
}

// Who slept before there were any has to look at CUDA streams from now on.
TEST(Context, WakesASleeperForAnOperationThatWaitsForItsStream) {
  expect_ring([](Communicator& comm) {
    Operation* const op = comm.context().operations().acquire();
    op->end.finished.store(true);  // so that the next turn drops it
    comm.context().device_operations().await_stream(*op);
    comm.context().operations().release(op);
  });
}

}  // namespace
}  // namespace weft::engine
