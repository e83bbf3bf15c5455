// WindowTraffic: what windows ask of a context. While one is open, the context listens to its transports
// though no operation is under way. Puts that have been announced are taken up after a poll.
//
// Thread safety: under the context's lock.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace weft::engine {

class Windows;

class WindowTraffic {
 public:
  void opened() { ++open_; }
  void closed() { --open_; }
  /// Whether a window is open.
  bool listens() const { return open_ > 0; }

  /// Puts are announced to these windows.
  void note(Windows& windows) {
    if (std::find(noted_.begin(), noted_.end(), &windows) == noted_.end()) noted_.push_back(&windows);
  }
  void forget(Windows& windows) { std::erase(noted_, &windows); }
  bool any_noted() const { return !noted_.empty(); }
  std::vector<Windows*> take_noted() { return std::exchange(noted_, {}); }

 private:
  int open_ = 0;
  std::vector<Windows*> noted_;
};

}  // namespace weft::engine
