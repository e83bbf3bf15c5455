// LinesAboveBar: a progress bar at the bottom of a terminal, and the lines that are printed above it
// meanwhile.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>

namespace loom::train {

/// "[####....]  50 %", without the end of the line.
std::string bar_text(int64_t done, int64_t all);

/// On standard error, where that is a terminal; elsewhere there is no bar, and lines are just printed.
class LinesAboveBar {
 public:
  LinesAboveBar();
  /// Takes the bar away, so that what is printed next, such as an error, stands on a line of its own.
  ~LinesAboveBar() { erase(); }
  LinesAboveBar(const LinesAboveBar&) = delete;
  LinesAboveBar& operator=(const LinesAboveBar&) = delete;

  /// Prints a line to standard output above the bar, which then shows that `done` of `all` steps are done.
  /// After the last step the bar stays, and what comes is printed below it.
  void line(const std::string& text, int64_t done, int64_t all);

  /// Until the next line.
  void erase();

 private:
  const bool terminal_;
  bool drawn_ = false;
};

}  // namespace loom::train
