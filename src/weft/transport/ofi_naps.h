// Naps: how a thread sleeps on the rails' descriptors. A timer among the watched descriptors ends sleeps that
// the descriptors would not end in time (see "sleeping" in ofi.h).
//
// Thread safety: none; as the transport's.
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "transport/ofi_rails.h"

namespace weft::transport::ofi {

class Naps {
 public:
  explicit Naps(Rails& rails) : rails_(rails) {}

  Status open();
  /// Adds what is watched to an epoll instance.
  Status watch(int epoll_fd);
  /// True if the provider has no descriptor to sleep on, or none that works; that may turn out late.
  bool needs_polling() const;
  /// Whether a thread may sleep now; then it calls finish(). `waits_for_room`: something waits for room that
  /// no event announces.
  bool prepare(bool waits_for_room);
  void finish();
  /// Something has happened: the next nap is short.
  void shorten() { nap_ns_ = 0; }

 private:
  void distrust(Rail& rail);

  Rails& rails_;
  UniqueFd wakeups_;  // an epoll instance: the rails' descriptors and the timer
  UniqueFd nap_timer_;
  int64_t nap_ns_ = 0;
  bool napping_ = false;
};

}  // namespace weft::transport::ofi
