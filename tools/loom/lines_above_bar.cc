// The bar is erased before each line and drawn again after it: a terminal has one cursor for both outputs.
#include "loom/lines_above_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "loom/progress.h"

namespace loom::command {

LinesAboveBar::LinesAboveBar(bool shown) : terminal_(shown && isatty(STDERR_FILENO) != 0) {}

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

}  // namespace loom::command
