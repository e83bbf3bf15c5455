// In which order operations in flight are served.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "weft/weft.h"

namespace weft::testing {
namespace {

/// Each turn a copy goes on by a piece. The younger of two of one length was advanced before the older, and
/// ended first; what they put went out in that order, too.
TEST(OperationsInFlight, TheOldestGoesFirst) {
  weftComm_t comm = nullptr;
  ASSERT_EQ(weftCommInitAll(&comm, 1, nullptr), weftSuccess) << weftGetLastError(nullptr);
  const std::vector<float> from(1 << 20, 1.f);
  std::vector<float> x(from.size()), y(from.size());
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_EQ(weftGroupStart(), weftSuccess);
    for (std::vector<float>* to : {&x, &y})
      ASSERT_EQ(weftAllGather(from.data(), to->data(), to->size(), weftFloat, comm, nullptr), weftSuccess);
    ASSERT_EQ(weftGroupEnd(), weftSuccess);
  }
  const std::string path = ::testing::TempDir() + "order." + std::to_string(getpid());
  ASSERT_EQ(weftCommDump(comm, path.c_str()), weftSuccess);
  const auto operations = nlohmann::json::parse(std::ifstream(path))["operations"];
  std::filesystem::remove(path);
  ASSERT_EQ(operations.size(), 2u * kRounds);
  for (size_t older = 0; older < operations.size(); older += 2)
    EXPECT_LE(operations[older]["done_us"].get<double>(), operations[older + 1]["done_us"].get<double>());
  EXPECT_EQ(weftCommDestroy(comm), weftSuccess);
}

}  // namespace
}  // namespace weft::testing
