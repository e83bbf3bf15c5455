// Whole files, and what is none.
#include "base/read_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace weft {
namespace {

std::string problem_of(const Result<std::string>& read) {
  return read.ok() ? "read " + *read : read.status().message();
}

TEST(ReadFile, TakesAllOfItAndNothingBeyondTheLimit) {
  const std::string path = ::testing::TempDir() + fmt::format("weft_read_file_{}", getpid());
  const std::string content(200'000, 'x');
  std::ofstream(path) << content;
  const Result<std::string> all = read_file(path, 200'000);
  EXPECT_TRUE(all.ok() && *all == content);
  EXPECT_EQ(problem_of(read_file(path, 199'999)),
            path + " is longer than 199999 bytes, which is the most for such a file");
  unlink(path.c_str());
  EXPECT_EQ(problem_of(read_file(path)), "cannot open " + path + ": No such file or directory (errno 2)");
}

TEST(ReadFile, TakesFilesWhoseSizeNobodyStates) {
  const Result<std::string> status = read_file("/proc/self/status");
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_NE(status->find("Pid:"), std::string::npos);
}

TEST(ReadFile, SaysThatAFolderIsOne) {
  EXPECT_EQ(problem_of(read_file("/")), "cannot read /: Is a directory (errno 21)");
}

}  // namespace
}  // namespace weft
