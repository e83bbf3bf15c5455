#include "engine/context/sleepers.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>

#include "base/log.h"

namespace weft::engine {

Status Sleepers::open(int epoll_fd) {
  doorbell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_.valid()) return fail_errno(errno, "eventfd");
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, doorbell_.get(), &event) != 0) return fail_errno(errno, "epoll_ctl");
  return {};
}

void Sleepers::end_sleep() {
  taken_ = false;
  sleeps_for_ = nullptr;
  asleep_.store(false);
  uint64_t rings;
  while (read(doorbell_.get(), &rings, sizeof rings) > 0) {
  }
  if (beside_ > 0) ended_.notify_all();
}

void Sleepers::sleep_beside(Lock& lock) {
  ++beside_;
  ended_.wait_for(lock, std::chrono::milliseconds(1));
  --beside_;
}

void Sleepers::ring() const {
  const uint64_t one = 1;
  if (write(doorbell_.get(), &one, sizeof one) < 0) log::trace("doorbell is full");  // it rings already
}

}  // namespace weft::engine
