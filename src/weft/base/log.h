// Log lines to stderr or WEFT_LOG_FILE: "weft [rank] LEVEL text", without the rank where the process has none
// or several. Silent by default but for warnings.
//
// Thread safety: all functions; a line is written with one write().
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace weft {

enum class LogLevel { none, error, warn, info, trace };

namespace log {
bool enabled(LogLevel level);
void write(LogLevel level, std::string_view text);
/// This process is that rank of a job. Lines bear it from now on, unless it is another one, too.
void add_rank(int rank);

template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::error)) write(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::warn)) write(LogLevel::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::info)) write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void trace(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(LogLevel::trace)) write(LogLevel::trace, fmt::format(format, std::forward<Args>(args)...));
}
}  // namespace log
}  // namespace weft
