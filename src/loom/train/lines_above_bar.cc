// The bar is erased before each line and drawn again after it: a terminal has one cursor for both outputs.
#include "train/lines_above_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace loom::train {

std::string bar_text(int64_t done, int64_t all) {
  constexpr int64_t kCells = 40;
  const int64_t full = done * kCells / all;
  return fmt::format("[{:#<{}}{:.<{}}] {:3} %", "", full, "", kCells - full, done * 100 / all);
}

LinesAboveBar::LinesAboveBar() : terminal_(isatty(STDERR_FILENO) != 0) {}

void LinesAboveBar::erase() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");  // standard error has no buffer
  drawn_ = false;
}

void LinesAboveBar::line(const std::string& text, int64_t done, int64_t all) {
  erase();
  fmt::print("{}\n", text);
  std::fflush(stdout);  // before the bar, which would overtake it
  if (!terminal_) return;
  fmt::print(stderr, "{}", bar_text(done, all));
  drawn_ = done < all;
  if (!drawn_) fmt::print(stderr, "\n");
}

}  // namespace loom::train
