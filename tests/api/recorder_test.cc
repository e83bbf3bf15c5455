// The flight recorder on a signal. This program runs itself again, as AskedRank.Leaves.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "weft/weft.h"

namespace weft::testing {
namespace {

/// What a program does that is asked for its recorder just before it ends. Run by ctest it is a job of one
/// rank, whose recorder nobody reads.
TEST(AskedRank, Leaves) {
  weftComm_t comm = nullptr;
  ASSERT_EQ(weftCommInitAll(&comm, 1, nullptr), weftSuccess) << weftGetLastError(nullptr);
  float value = 1;
  ASSERT_EQ(weftAllReduce(&value, &value, 1, weftFloat, weftSum, comm, nullptr), weftSuccess);
  if (const char* victim = std::getenv("ASKED_RANK_FINDS_LINK_TO")) {
    const std::string path = std::string(std::getenv("WEFT_RECORDER_DIR")) + "/weft-recorder.world.0." +
                             std::to_string(getpid()) + ".json";
    ASSERT_EQ(symlink(victim, path.c_str()), 0);
  }
  ASSERT_EQ(raise(SIGUSR2), 0);
  if (std::getenv("ASKED_RANK_EXITS")) std::exit(0);  // and leaves the communicator open
  EXPECT_EQ(weftCommDestroy(comm), weftSuccess);
}

TEST(RecorderOnASignal, IsWrittenBeforeTheCommunicatorOrTheProcessIsGone) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string folder = ::testing::TempDir() + "recorder-on-a-signal." + std::to_string(getpid());
  for (const std::string how : {"", "ASKED_RANK_EXITS=1 "}) {
    std::filesystem::create_directory(folder);
    for (int again = 0; again < 5; ++again) {  // the progress thread is sometimes fast enough by itself
      const std::string command = how + "WEFT_RECORDER_SIGNAL=USR2 WEFT_RECORDER_DIR=" + folder + " " + self +
                                  " --gtest_filter=AskedRank.Leaves > /dev/null 2>&1";
      ASSERT_EQ(std::system(command.c_str()), 0) << command;
    }
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto dump = nlohmann::json::parse(std::ifstream(entry.path()), nullptr, false);
      ASSERT_TRUE(dump.is_object()) << entry.path() << " is no whole file";
      EXPECT_EQ(dump["operations"].back()["call"], "AllReduce of 1 float (sum)");
      ++found;
    }
    EXPECT_EQ(found, 5) << how;
    std::filesystem::remove_all(folder);
  }
}

// The folder may be one where everybody writes, and the file's name can be guessed.
TEST(RecorderOnASignal, DoesNotFollowALinkThatStandsInItsPlace) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string folder = ::testing::TempDir() + "recorder-and-link." + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const std::string victim = folder + "/victim";
  std::ofstream(victim) << "kept";
  const std::string command = "ASKED_RANK_FINDS_LINK_TO=" + victim +
                              " WEFT_RECORDER_SIGNAL=USR2 WEFT_RECORDER_DIR=" + folder + " " + self +
                              " --gtest_filter=AskedRank.Leaves > /dev/null 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::string kept;
  std::ifstream(victim) >> kept;
  EXPECT_EQ(kept, "kept");
  int written = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    written += !entry.is_symlink() && nlohmann::json::accept(std::ifstream(entry.path()));
  EXPECT_EQ(written, 1);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::testing
