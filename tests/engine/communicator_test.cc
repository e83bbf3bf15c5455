// Communicators from inside: what the C functions cannot show or bring about.
#include "engine/communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace weft::engine {
namespace {

/// Makes a communicator with a rank for every name of a pretended node, and runs `body` on each in a thread
/// of its own.
void run_ranks(const std::vector<std::string>& nodes, const std::function<void(Communicator&)>& body,
               CommOptions options = {}) {
  const auto id = bootstrap::create_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().message();
  options.timeout_s = 20;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < nodes.size(); ++rank)
    threads.emplace_back([&, rank, options]() mutable {
      options.host_id = nodes[rank];
      const auto made =
          Communicator::create(*id, static_cast<int>(rank), static_cast<int>(nodes.size()), options);
      ASSERT_TRUE(made.ok()) << made.status().message();
      body(**made);
      EXPECT_TRUE((*made)->finalize().ok() || !(*made)->health().ok());
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Communicator, ShrinkingWithAbortFailsNothingWhileAnotherThreadHasTheLock) {
  run_ranks({"a"}, [](Communicator& comm) {
    Lock lock = comm.context().lock();
    std::thread shrinker([&] { EXPECT_TRUE(comm.shrink({}, true, CommOptions()).ok()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // long enough for one that does not wait
    EXPECT_TRUE(comm.failure().ok());
    lock.unlock();
    shrinker.join();
    EXPECT_EQ(comm.health().code(), Code::aborted);
  });
}

}  // namespace
}  // namespace weft::engine
