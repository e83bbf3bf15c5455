// What the tests of Loom share: a folder of their own, files by content, and the sentence of a failure.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>

#include "base/status.h"

namespace loom::testing {

/// A new folder, removed with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "loom-test-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// Files and folders at its top.
  size_t entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

inline void put_file(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

inline std::string get_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline std::string fixture(std::string_view name) {
  return std::string(LOOM_FIXTURES "/") + std::string(name);
}

/// Succeeds when the call failed with this code and its sentence has these words.
template <typename Outcome>
::testing::AssertionResult fails_with(const Outcome& outcome, Code code, std::string_view words) {
  Status status;
  if constexpr (std::is_same_v<Outcome, Status>) status = outcome;
  else status = outcome.status();
  if (status.code() == code && status.message().find(words) != std::string::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << code_name(status.code()) << ": \"" << status.message() << "\", not "
                                       << code_name(code) << " with \"" << words << "\"";
}

/// Runs something in a process of its own that may write files of at most `bytes`; whether it returned true
/// there.
inline bool with_file_limit(uint64_t bytes, const std::function<bool()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);  // the write fails instead
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(action() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#define LOOM_ASSERT_OK(expr)                                                   \
  do {                                                                         \
    const auto& loom_outcome = (expr);                                         \
    ASSERT_TRUE(loom_outcome.ok()) << ::loom::testing::sentence(loom_outcome); \
  } while (0)

inline std::string sentence(const Status& status) { return status.message(); }
template <typename T>
std::string sentence(const Result<T>& result) {
  return result.status().message();
}

}  // namespace loom::testing
