// LineRelay: carries one output stream of one rank to one of ours, a whole line at a time, so that lines of
// different ranks never mix. Not thread-safe.
//
// Invariant: whatever has been read is either written or is the beginning of an unfinished line.
#pragma once

#include <functional>
#include <string>

#include "base/fd.h"

namespace weft::run {

class LineRelay {
 public:
  /// Reads from `source` (made non-blocking here), writes to the descriptor `sink` with `label` before each
  /// line. Before each write `await_room` waits until the sink takes something; false gives the output up.
  LineRelay(UniqueFd source, int sink, std::string label, std::function<bool(int sink)> await_room);

  /// Moves what can be read now, or some of it where it is much: there are others. At the end of the stream
  /// an unfinished line is completed. If nobody reads our output any more the source is closed, so that the
  /// rank finds out just as it would have found out itself.
  void pump();
  /// Gives up on what is still to come: completes the unfinished line and closes the source.
  void finish();

  bool done() const { return !source_.valid(); }
  int fd() const { return source_.get(); }

 private:
  bool emit_lines();
  bool write_all(std::string_view text);

  UniqueFd source_;
  int sink_;
  std::string label_;
  std::function<bool(int sink)> await_room_;
  std::string pending_;  // without label
};

}  // namespace weft::run
