// Operations in flight from inside: what is known of them, what they wait for, and what they leave behind.
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/settings.h"
#include "engine/interpreter.h"
#include "engine/ranks.h"
#include "engine/stream.h"
#include "engine/verdict.h"

namespace weft::engine {
namespace {

using plan::Collective;

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
      const Operation& op = *comm.operations().front();
      EXPECT_TRUE(op.prepared->exposes_inside[static_cast<int>(plan::Space::scratch)]);
      const ScratchPool::Block lent = op.scratch;
      EXPECT_NE(lent.data, nullptr);
      comm.fail(fail(Code::aborted, "enough"), true);
      ScratchPool& pool = comm.context().scratch();
      const auto next = pool.take(size_t{1} << lent.size_class);
      EXPECT_TRUE(next.ok() && next->data != lent.data);
      if (next) pool.give(*next);
    }
    caller.join();
    failed.arrive_and_wait();
  });
}

}  // namespace
}  // namespace weft::engine
