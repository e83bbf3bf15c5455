// Ranks as threads: runs a function on every rank of a job inside this process, over real transports.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "api/ranks_at_work.h"
#include "weft/weft.h"

#define WEFT_OK(call)                                                               \
  do {                                                                              \
    const weftResult_t weft_ok_ = (call);                                           \
    ASSERT_EQ(weft_ok_, weftSuccess) << #call << ": " << weftGetLastError(nullptr); \
  } while (0)

namespace weft::testing {

struct Rank {
  int rank;
  int size;
  weftComm_t comm;
};

/// A name for each rank's pretended node.
using Nodes = std::vector<std::string>;

/// `nodes` nodes of `ranks_per_node` ranks, in blocks.
inline Nodes blocks(int nodes, int ranks_per_node) {
  Nodes names;
  for (int node = 0; node < nodes; ++node)
    for (int i = 0; i < ranks_per_node; ++i) names.push_back("node" + std::to_string(node));
  return names;
}

/// Creates a communicator with a rank for every entry of `nodes`, runs `body` on each in a thread of its own,
/// and destroys what `body` has left (set comm to null to keep it from that).
inline void run_ranks(const Nodes& nodes, const std::function<void(Rank&)>& body,
                      const std::function<void(weftConfig_t&)>& configure = {}) {
  weftUniqueId id;
  WEFT_OK(weftGetUniqueId(&id));
  const int size = static_cast<int>(nodes.size());
  const RanksAtWork at_work;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      weftConfig_t config = WEFT_CONFIG_INITIALIZER;
      config.hostId = nodes[rank].c_str();
      config.timeoutSeconds = 60;
      if (configure) configure(config);
      Rank self{rank, size, nullptr};
      WEFT_OK(weftCommInitRankConfig(&self.comm, size, id, rank, &config));
      body(self);
      if (self.comm) WEFT_OK(weftCommDestroy(self.comm));
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace weft::testing
