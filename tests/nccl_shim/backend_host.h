// Programs of Weft beside a fake NCCL and a fake CUDA driver: ranks as threads, each with a communicator, and
// what their calls must answer.
#pragma once

#include "cuda/device_memory.h"
#include "shim_host.h"
#include "weft/weft.h"

namespace weft::nccl_shim_test {

using testing::DeviceArray;
using testing::DeviceStream;
using Floats = std::vector<float>;

inline const Environment kNccl = {{"WEFT_BACKEND", "nccl"}, {"WEFT_NCCL_LIBRARY", kFakeNccl}};
inline const Environment kGpuAndNccl = {{"WEFT_CUDA_LIBRARY", kFakeCuda}, {"WEFT_NCCL_LIBRARY", kFakeNccl}};
inline const Environment kGpuAlone = {{"WEFT_CUDA_LIBRARY", kFakeCuda},
                                      {"WEFT_NCCL_LIBRARY", "/nowhere/libnccl.so.2"}};

inline bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define WEFT_GOOD(call) EXPECT_EQ((call), weftSuccess) << #call << ": " << weftGetLastError(nullptr)
#define EXPECT_REFUSED(call, code, part)                            \
  do {                                                              \
    EXPECT_EQ((call), code);                                        \
    const std::string said = weftGetLastError(nullptr);             \
    EXPECT_TRUE(mentions(said, part)) << said << " lacks " << part; \
  } while (0)

/// Ranks as threads of this process; `body` may set its communicator to null to have it left alone.
inline void on_ranks(int ranks, const std::function<void(int, weftComm_t&)>& body,
                     const weftConfig_t* config = nullptr) {
  weftUniqueId id;
  ASSERT_EQ(weftGetUniqueId(&id), weftSuccess) << weftGetLastError(nullptr);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      weftComm_t comm = nullptr;
      ASSERT_EQ(weftCommInitRankConfig(&comm, ranks, id, rank, config), weftSuccess)
          << weftGetLastError(nullptr);
      body(rank, comm);
      if (comm) {
        WEFT_GOOD(weftCommDestroy(comm));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

inline std::string last_algorithm(weftComm_t comm, uint64_t* operations = nullptr) {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  WEFT_GOOD(weftCommGetStats(comm, &stats));
  if (operations) *operations = stats.operations;
  return stats.lastAlgorithm;
}

}  // namespace weft::nccl_shim_test
