#include "device/host.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "support.h"

namespace loom::testing {
namespace {

using device::Host;
using device::HostQueue;

HostQueue& host_queue(const std::unique_ptr<device::Queue>& queue) { return static_cast<HostQueue&>(*queue); }

class HostQueues : public ::testing::TestWithParam<Host::Queues> {
 protected:
  Host host{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Device, HostQueues,
                         ::testing::Values(Host::Queues::at_once, Host::Queues::on_threads));

TEST_P(HostQueues, DoTheirWorkInOrder) {
  const auto queue = host.make_queue().take();
  device::Memory a = host.allocate(1000).take(), b = host.allocate(1000).take();
  for (int round = 0; round < 50; ++round) {
    queue->fill(a.data(), std::byte(round), 1000);
    queue->copy(b.data(), a.data(), 1000);
  }
  ASSERT_TRUE(queue->drain().ok());
  EXPECT_EQ(std::vector<std::byte>(b.data(), b.data() + 1000), std::vector<std::byte>(1000, std::byte(49)));
}

TEST_P(HostQueues, WaitForTheEventsOfOthers) {
  const auto first = host.make_queue().take(), second = host.make_queue().take();
  const auto event = host.make_event().take();
  std::atomic<int> done{0};
  int seen = -1;
  host_queue(first).run([&] {
    done.store(1);
    return Status();
  });
  first->record(*event);
  second->wait(*event);
  host_queue(second).run([&] {
    seen = done.load();
    return Status();
  });
  ASSERT_TRUE(event->wait().ok());
  EXPECT_EQ(done.load(), 1);
  ASSERT_TRUE(second->drain().ok());
  EXPECT_EQ(seen, 1);
}

TEST_P(HostQueues, AnEventThatWasNeverRecordedHoldsNobodyUp) {
  const auto queue = host.make_queue().take();
  const auto event = host.make_event().take();
  queue->wait(*event);
  EXPECT_TRUE(queue->drain().ok());
  EXPECT_TRUE(event->wait().ok());
}

TEST_P(HostQueues, KeepTheFirstFailureAndDropTheRest) {
  const auto queue = host.make_queue().take();
  const auto event = host.make_event().take();
  bool dropped = true;
  host_queue(queue).run([] { return fail(Code::system_error, "the first"); });
  host_queue(queue).run([] { return fail(Code::system_error, "the second"); });
  host_queue(queue).run([&] {
    dropped = false;
    return Status();
  });
  queue->record(*event);
  EXPECT_TRUE(fails_with(event->wait(), Code::system_error, "the first"));
  EXPECT_TRUE(fails_with(queue->drain(), Code::system_error, "the first"));
  EXPECT_TRUE(dropped);
}

TEST(HostQueue, AThreadWorksWhileTheCallerDoes) {
  Host host(Host::Queues::on_threads);
  const auto queue = host.make_queue().take();
  std::atomic<bool> let_go{false};
  host_queue(queue).run([&] {
    while (!let_go.load()) std::this_thread::yield();
    return Status();
  });
  let_go.store(true);  // reached only if run() has returned
  EXPECT_TRUE(queue->drain().ok());
}

TEST(HostQueue, AnyWaitsForAThread) {
  Host threads(Host::Queues::on_threads), at_once(Host::Queues::at_once);
  const auto first = threads.make_queue().take();
  for (Host* host : {&threads, &at_once}) {
    const auto second = host->make_queue().take();
    const auto event = threads.make_event().take();
    std::atomic<bool> let_go{false};
    std::atomic<int> done{0};
    int seen = -1;
    host_queue(first).run([&] {
      while (!let_go.load()) std::this_thread::yield();
      done.store(1);
      return Status();
    });
    first->record(*event);
    std::thread letting_go([&] {
      for (int turn = 0; turn < 1000; ++turn) std::this_thread::yield();
      let_go.store(true);
    });
    second->wait(*event);
    host_queue(second).run([&] {
      seen = done.load();
      return Status();
    });
    EXPECT_TRUE(second->drain().ok());
    letting_go.join();
    EXPECT_EQ(seen, 1);
    EXPECT_TRUE(first->drain().ok());
  }
}

TEST(HostQueue, AnEventStaysReachedWhenAnEarlierMomentComesLate) {
  Host host(Host::Queues::on_threads);
  const auto event = host.make_event().take();
  const auto first = host.make_queue().take(), second = host.make_queue().take();
  std::atomic<bool> let_go{false};
  host_queue(first).run([&] {
    while (!let_go.load()) std::this_thread::yield();
    return fail(Code::system_error, "the earlier moment's");
  });
  first->record(*event);
  second->record(*event);
  EXPECT_TRUE(second->drain().ok());
  let_go.store(true);
  EXPECT_FALSE(first->drain().ok());
  EXPECT_TRUE(event->wait().ok());  // does not return where the event has gone back to the earlier moment
}

TEST(Host, GivesAlignedMemoryAndSaysWhatThereIs) {
  Host host;
  const auto memory = host.allocate(3);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % device::kMemoryAlignment, 0u);
  EXPECT_GT(host.memory()->all, 0);
  EXPECT_TRUE(fails_with(host.allocate(0), Code::invalid_argument, "0"));
  EXPECT_TRUE(fails_with(host.allocate(int64_t{1} << 62), Code::out_of_memory, "has no"));
}

}  // namespace
}  // namespace loom::testing
