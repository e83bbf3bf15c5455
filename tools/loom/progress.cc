#include "loom/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "train/lines_above_bar.h"

namespace loom::command {
namespace {

/// Draws the bar anew, and ends its line when all is done.
void show_bar(int64_t done, int64_t all) {
  fmt::print(stderr, "\r{}{}", train::bar_text(done, all), done == all ? "\n" : "");
}

}  // namespace

void Progress::operator()(int64_t done, int64_t all) {
  if (isatty(STDERR_FILENO) != 0) return show_bar(done, all);
  const int64_t tenths = done * 10 / all;
  const Clock::time_point now = Clock::now();
  if (tenths == told_ && now - last_ < std::chrono::seconds(30)) return;
  told_ = tenths;
  last_ = now;
  fmt::print(stderr, "{} of {} {}\n", done, all, what_);
}

}  // namespace loom::command
