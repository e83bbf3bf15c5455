// The search for the next rank that is present.
#include "bootstrap/ring.h"

#include "base/log.h"

namespace weft::bootstrap {
namespace {

// Before a search, and between attempts with a rank that neither takes nor refuses the connection.
constexpr double kPause_s = 0.05;
// For the answer of a rank whose process is stopped or whose host is off. The kernel takes as long to notice
// a dead host (notice_dead_host()).
constexpr double kPatience_s = 5;

}  // namespace

void Ring::on_lost(int rank) {
  if (rank == next_ && timer_ == 0 && !looking_) look_after(kPause_s);
}

void Ring::on_reached(int rank) {
  if (rank != next_ || looking_) return;
  loop_.cancel(timer_);
  timer_ = 0;
  if (ways_.is_present(rank) && !ways_.is_linked(rank)) look_after(kPause_s);
  else look();
}

void Ring::close() {
  loop_.cancel(timer_);
  timer_ = 0;
  next_ = rank_;
}

void Ring::look_after(double seconds) {
  timer_ = loop_.at(Deadline::in_seconds(seconds), [this] {
    timer_ = 0;
    look();
  });
}

void Ring::look() {
  looking_ = true;
  while (next_ != rank_ && !ways_.is_linked(next_)) {
    if (ways_.is_present(next_)) ways_.reach(next_);
    if (ways_.is_present(next_) && !patience_.passed()) {
      look_after(kPause_s);
      break;
    }
    if (ways_.is_present(next_))
      log::info("rank {} does not answer; rank {} links with the one after it as well", next_, rank_);
    pass_over_next();
  }
  looking_ = false;
}

void Ring::pass_over_next() {
  next_ = (next_ + 1) % ranks_;
  patience_ = Deadline::in_seconds(kPatience_s);
}

}  // namespace weft::bootstrap
