// Ring: keeps this rank linked with the next rank that is present, so that the links connect all ranks that
// stay. The first links (neighbours.h) end with the ranks at their ends, and a goodbye goes to neighbours
// only.
//
// The ring has the ranks in their order. When the next rank leaves or dies, this rank tries the ranks after
// it, one by one. The host of a rank that has ended refuses the connection at once. The search begins after a
// pause: at the end of a job most ranks leave before their pause is over, and open no link.
//
// Cost: a rank that leaves costs the others one link. A rank tries each other rank at most once. If n ranks
// leave one by one in any order, they make about n ln(n) attempts together.
//
// Thread safety: the agent's thread only.
#pragma once

#include <functional>

#include "bootstrap/event_loop.h"

namespace weft::bootstrap {

class Ring {
 public:
  struct Ways {
    std::function<bool(int rank)> is_present;  // as far as this rank knows
    std::function<bool(int rank)> is_linked;
    /// Opens a link, unless one is being opened. on_reached() follows, perhaps from inside.
    std::function<void(int rank)> reach;
  };
  Ring(EventLoop& loop, int rank, int ranks, Ways ways)
      : loop_(loop), rank_(rank), ranks_(ranks), next_((rank + 1) % ranks), ways_(std::move(ways)) {}

  /// A rank has left, is dead or refuses connections.
  void on_lost(int rank);
  /// The attempt to link with a rank has ended, well or not.
  void on_reached(int rank);
  /// Ends the search for good.
  void close();

 private:
  void look_after(double seconds);
  void look();
  void pass_over_next();

  EventLoop& loop_;
  const int rank_, ranks_;
  int next_;                               // the rank to be linked with; itself: no other rank is left
  Deadline patience_ = Deadline::never();  // for an answer of `next_`
  EventLoop::Id timer_ = 0;                // 0: nothing to do
  bool looking_ = false;
  const Ways ways_;
};

}  // namespace weft::bootstrap
