// Log lines: level, prefix, file. Each case is a process of its own, since the settings are read once in a
// process.
#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace weft {
namespace {

using testing::ExitedWithCode;

TEST(Log, WarnsByDefaultAndNothingLess) {
  EXPECT_EXIT(
      {
        unsetenv("WEFT_LOG");
        log::warn("peer {} is slow", 3);
        log::info("not this");
        std::exit(0);
      },
      ExitedWithCode(0), "^weft WARN peer 3 is slow\n$");
}

TEST(Log, NoneIsSilent) {
  EXPECT_EXIT(
      {
        setenv("WEFT_LOG", "none", 1);
        log::error("not this");
        std::exit(0);
      },
      ExitedWithCode(0), "^$");
}

TEST(Log, LinesBearTheRankOfAProcessThatHasOne) {
  EXPECT_EXIT(
      {
        setenv("WEFT_LOG", "info", 1);
        log::info("none");
        log::add_rank(7);
        log::add_rank(7);
        std::thread([] { log::error("one"); }).join();
        log::add_rank(0);
        log::add_rank(7);
        log::error("two");
        std::exit(0);
      },
      ExitedWithCode(0), "^weft INFO none\nweft \\[7\\] ERROR one\nweft ERROR two\n$");
}

TEST(Log, AFileIsAppendedTo) {
  const std::string path = testing::TempDir() + "weft_log_" + std::to_string(getpid());
  std::ofstream(path) << "before\n";
  EXPECT_EXIT(
      {
        setenv("WEFT_LOG_FILE", path.c_str(), 1);
        log::warn("after");
        std::exit(0);
      },
      ExitedWithCode(0), "^$");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "before\nweft WARN after\n");
  std::filesystem::remove(path);
}

TEST(Log, TheFileNameMayHoldTheProcessId) {
  const std::string folder = testing::TempDir() + "weft_log_folder_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  EXPECT_EXIT(
      {
        setenv("WEFT_LOG_FILE", (folder + "/log.%p").c_str(), 1);
        log::warn("line");
        std::exit(std::filesystem::exists(folder + "/log." + std::to_string(getpid())) ? 0 : 1);
      },
      ExitedWithCode(0), "^$");
  std::filesystem::remove_all(folder);
}

TEST(Log, AnImpossibleFileFallsBackToStderrAndSaysSo) {
  EXPECT_EXIT(
      {
        setenv("WEFT_LOG_FILE", "/no/such/folder/log", 1);
        log::warn("line");
        std::exit(0);
      },
      ExitedWithCode(0),
      "cannot open WEFT_LOG_FILE '/no/such/folder/log': No such file.*\nweft WARN line\n$");
}

}  // namespace
}  // namespace weft
