// What tests of plan kernels share.
#pragma once

#include <string>
#include <vector>

#include "cuda/device_memory.h"
#include "device/cuda/plan_kernels.h"

namespace weft::testing {

#define WEFT_NEED_PLAN_PATH()                                       \
  WEFT_NEED_DEVICE();                                               \
  if (!settings().cuda_kernel || cuda::plan_kernel_image().empty()) \
  GTEST_SKIP() << "cuda.plan_path runs this with WEFT_CUDA_KERNEL=on, where nvcc made kernels"

inline std::string algorithm_of(weftComm_t comm) {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  EXPECT_EQ(weftCommGetStats(comm, &stats), weftSuccess);
  return stats.lastAlgorithm;
}

inline weftResult_t async_failure_of(weftComm_t comm) {
  weftResult_t failure = weftSuccess;
  (void)eventually([&] {
    return weftCommGetAsyncError(comm, &failure) != weftSuccess ||
           (failure != weftSuccess && failure != weftInProgress);
  });
  return failure;
}

}  // namespace weft::testing
