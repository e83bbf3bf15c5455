#include "transport/ofi_naps.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include <algorithm>
#include <iterator>

#include "base/log.h"

namespace weft::transport::ofi {
namespace {

constexpr int64_t kShortestNapNs = 50'000;
constexpr int64_t kLongestNapNs = 1'000'000;    // where nothing else wakes
constexpr int64_t kLongestDozeNs = 10'000'000;  // where almost everything does

Status control_epoll(int epoll, int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return epoll_ctl(epoll, operation, fd, &event) == 0 ? Status() : fail_errno(errno, "epoll_ctl");
}

}  // namespace

Status Naps::open() {
  wakeups_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!wakeups_.valid()) return fail_errno(errno, "epoll_create1");
  nap_timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!nap_timer_.valid()) return fail_errno(errno, "timerfd_create");
  for (const auto& rail : rails_.all())
    if (rail->descriptor() >= 0)
      WEFT_TRY(control_epoll(wakeups_.get(), EPOLL_CTL_ADD, rail->descriptor(), EPOLLIN));
  return control_epoll(wakeups_.get(), EPOLL_CTL_ADD, nap_timer_.get(), EPOLLIN);
}

Status Naps::watch(int epoll_fd) { return control_epoll(epoll_fd, EPOLL_CTL_ADD, wakeups_.get(), EPOLLIN); }

bool Naps::needs_polling() const {
  return std::ranges::any_of(
      rails_.all(), [](const auto& rail) { return rail->descriptor() < 0 || rail->descriptor_stuck(); });
}

// A descriptor that stays readable still reports new events by its edges. Edges may miss bytes that a
// provider has left in a socket, so the timer ends sleeps as well.
void Naps::distrust(Rail& rail) {
  log::info("{}: the descriptor of {} stays readable while nothing happens; sleeping in naps",
            rails_.describe(), rail.info().domain_attr->name);
  (void)control_epoll(wakeups_.get(), EPOLL_CTL_MOD, rail.descriptor(), EPOLLIN | EPOLLET);
}

bool Naps::prepare(bool waits_for_room) {
  for (const auto& rail : rails_.all()) {
    const bool trusted = !rail->descriptor_stuck();
    if (!rail->may_sleep()) return false;
    if (trusted && rail->descriptor_stuck()) distrust(*rail);
  }
  waits_for_room |=
      std::ranges::any_of(rails_.all(), [](const auto& rail) { return rail->waits_for_room(); });
  if (!waits_for_room && !needs_polling()) return true;
  const bool blind =
      std::ranges::any_of(rails_.all(), [](const auto& rail) { return rail->descriptor() < 0; });
  nap_ns_ = std::clamp(2 * nap_ns_, kShortestNapNs, waits_for_room || blind ? kLongestNapNs : kLongestDozeNs);
  const itimerspec nap{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = nap_ns_}};
  napping_ = timerfd_settime(nap_timer_.get(), 0, &nap, nullptr) == 0;
  return napping_;
}

void Naps::finish() {
  if (!napping_) return;
  const itimerspec disarmed{};  // also takes back an expiry that was not read
  timerfd_settime(nap_timer_.get(), 0, &disarmed, nullptr);
  epoll_event edges[kMaxRails + 1];  // those seen so far are spent; poll() comes next
  (void)epoll_wait(wakeups_.get(), edges, std::size(edges), 0);
  napping_ = false;
}

}  // namespace weft::transport::ofi
