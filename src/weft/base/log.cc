// Where log lines go. The level and the file come from the settings and never change while the process lives.
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>

#include "base/settings.h"

namespace weft::log {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"none", "error", "warn", "info", "trace"};
constexpr std::array<std::string_view, 5> kLabels = {"", "ERROR", "WARN", "INFO", "TRACE"};

constexpr int kNoRank = -1, kSeveral = -2;
std::atomic<int> process_rank{kNoRank};

LogLevel threshold() {
  static const LogLevel level = static_cast<LogLevel>(
      std::distance(kNames.begin(), std::find(kNames.begin(), kNames.end(), settings().log)));
  return level;
}

/// One write(), so that lines of several threads and processes do not mix; repeated only where the kernel
/// took a part.
void write_line(int fd, std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = ::write(fd, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a log that cannot be written must not stop the job
    line.remove_prefix(static_cast<size_t>(written));
  }
}

/// WEFT_LOG_FILE with %h and %p filled in.
std::string expand(std::string_view pattern) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view mark = pattern.substr(i, 2);
    if (mark == "%p") {
      path += std::to_string(getpid()), ++i;
    } else if (mark == "%h") {
      char host[256] = {};
      gethostname(host, sizeof host - 1);
      path += host, ++i;
    } else {
      path += pattern[i];
    }
  }
  return path;
}

/// The descriptor that lines go to; never closed, since threads may log until the process ends.
int descriptor() {
  static const int fd = [] {
    if (settings().log_file.empty()) return STDERR_FILENO;
    const std::string path = expand(settings().log_file);
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file >= 0) return file;
    write_line(STDERR_FILENO, fmt::format("weft WARN cannot open WEFT_LOG_FILE '{}': {}; logging to stderr\n",
                                          path, std::strerror(errno)));
    return STDERR_FILENO;
  }();
  return fd;
}

}  // namespace

bool enabled(LogLevel level) { return level <= threshold(); }

void add_rank(int rank) {
  int known = kNoRank;
  if (!process_rank.compare_exchange_strong(known, rank) && known != rank) process_rank.store(kSeveral);
}

void write(LogLevel level, std::string_view text) {
  const std::string_view label = kLabels[static_cast<size_t>(level)];
  const int rank = process_rank.load(std::memory_order_relaxed);
  write_line(descriptor(), rank < 0 ? fmt::format("weft {} {}\n", label, text)
                                    : fmt::format("weft [{}] {} {}\n", rank, label, text));
}

}  // namespace weft::log
