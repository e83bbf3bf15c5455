// Ranks as threads, with their communicators as the engine knows them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/run/communicator.h"
#include "job/founding.h"

namespace weft::engine {

/// Makes a communicator with a rank for every name of a pretended node, and runs `body` on each in a thread
/// of its own.
inline void run_ranks(const std::vector<std::string>& nodes, const std::function<void(Communicator&)>& body,
                      CommOptions options = {}) {
  const auto id = bootstrap::create_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().message();
  options.timeout_s = 20;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < nodes.size(); ++rank)
    threads.emplace_back([&, rank, options]() mutable {
      options.host_id = nodes[rank];
      const auto made = job::create(*id, static_cast<int>(rank), static_cast<int>(nodes.size()), options);
      ASSERT_TRUE(made.ok()) << made.status().message();
      body(**made);
      EXPECT_TRUE((*made)->finalize().ok() || !(*made)->health().ok());
    });
  for (std::thread& thread : threads) thread.join();
}

/// A split or a shrink from its beginning to its end.
inline job::NewComm split(Communicator& comm, int color, int key, const CommOptions& options) {
  const auto pending = job::begin_split(comm, color, key, options);
  return pending ? (*pending)() : job::NewComm(pending.status());
}
inline job::NewComm shrink(Communicator& comm, const std::vector<int>& excluded, bool abort_first,
                           const CommOptions& options) {
  const auto pending = job::begin_shrink(comm, excluded, abort_first, options);
  return pending ? (*pending)() : job::NewComm(pending.status());
}

/// A sum of 1 over all ranks, or -1.
inline int32_t sum_of_ones(Communicator& comm) {
  int32_t value = 1;
  Call call;
  call.send = call.recv = &value;
  call.count = 1;
  call.type = device::DataType::int32;
  return comm.run(call).ok() ? value : -1;
}

/// Of int32; `root` is a transfer's peer.
inline Call in_place(plan::Collective kind, int32_t* data, uint64_t count, int root = 0) {
  Call call;
  call.collective = kind;
  call.send = call.recv = data;
  call.count = count;
  call.type = device::DataType::int32;
  call.root = root;
  return call;
}

/// Returns when operations of `comm` are under way.
inline void wait_for_operations(Communicator& comm) {
  for (bool begun = false; !begun;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Lock lock = comm.context().lock();
    begun = !comm.operations().unfinished().empty();
  }
}

}  // namespace weft::engine
