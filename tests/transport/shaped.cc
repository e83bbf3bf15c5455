#include "transport/shaped.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/clock.h"

namespace weft::transport {

Result<std::unique_ptr<ShapedTransport>> ShapedTransport::create(std::unique_ptr<Transport> inner,
                                                                 const Options& options) {
  if (!(options.bytes_per_s >= 0) || !(options.latency_s >= 0))
    return fail(Code::invalid_argument, "rate is {} bytes/s and latency {} s, both must be at least 0",
                options.bytes_per_s, options.latency_s);
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) return fail_errno(errno, "cannot make a timer");
  return std::unique_ptr<ShapedTransport>(new ShapedTransport(std::move(inner), options, std::move(timer)));
}

std::string ShapedTransport::describe() const {
  return fmt::format("{} shaped to {:g} MB/s and {:g} us", inner().describe(), options_.bytes_per_s / 1e6,
                     options_.latency_s * 1e6);
}

/// Sends `bytes` after all that went before; returns when they arrive.
int64_t ShapedTransport::occupy_uplink(size_t bytes) {
  const double seconds = options_.bytes_per_s > 0 ? static_cast<double>(bytes) / options_.bytes_per_s : 0;
  uplink_free_ns_ = std::max(uplink_free_ns_, now_ns()) + static_cast<int64_t>(seconds * 1e9);
  return uplink_free_ns_ + static_cast<int64_t>(options_.latency_s * 1e9);
}

Result<Progress> ShapedTransport::send(int peer, const Envelope& envelope, const void* payload) {
  const size_t wire_bytes = sizeof(Envelope) + envelope.bytes;
  if (!items_.empty() && queued_bytes_ + wire_bytes > options_.queue_bytes) return Progress::busy;
  Item& item = items_.emplace_back();
  item.due_ns = occupy_uplink(wire_bytes);
  item.peer = peer;
  item.envelope = envelope;
  if (envelope.bytes > 0) {
    const auto* bytes = static_cast<const std::byte*>(payload);
    item.payload.assign(bytes, bytes + envelope.bytes);
  }
  queued_bytes_ += wire_bytes;
  return Progress::accepted;
}

Result<Progress> ShapedTransport::put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                                      const RemoteBuffer& target, uint64_t offset, Completion* done) {
  Item& item = items_.emplace_back();
  item.due_ns = occupy_uplink(sizeof(Envelope) + bytes);
  item.peer = peer;
  item.envelope = envelope;
  item.source = source;
  item.bytes = bytes;
  item.target = target;
  item.offset = offset;
  item.done = done;
  return Progress::accepted;
}

void ShapedTransport::forget(const Completion* first, const Completion* last) {
  const std::less<const Completion*> before;
  std::erase_if(items_, [&](const Item& item) {
    return item.done != nullptr && !before(item.done, first) && before(item.done, last);
  });
  inner().forget(first, last);
}

Result<Progress> ShapedTransport::pass_on(const Item& item) {
  if (item.done == nullptr) return inner().send(item.peer, item.envelope, item.payload.data());
  return inner().put(item.peer, item.envelope, item.source, item.bytes, item.target, item.offset, item.done);
}

Result<int> ShapedTransport::poll(Sink& sink) {
  int events = 0;
  const int64_t now = items_.empty() ? 0 : now_ns();
  for (auto it = items_.begin(); it != items_.end() && it->due_ns <= now;) {
    const Result<Progress> progress = pass_on(*it);
    if (!progress.ok() && progress.status().code() != Code::remote_error) return progress.status();
    if (progress.ok() && *progress == Progress::busy) {  // others need not wait for this peer
      ++it;
      continue;
    }
    // A lost peer is reported by the inner transport's poll: here its items are only dropped.
    if (it->done == nullptr) queued_bytes_ -= sizeof(Envelope) + it->envelope.bytes;
    it = items_.erase(it);
    ++events;
  }
  Result<int> moved = inner().poll(sink);
  if (moved.ok()) *moved += events;
  return moved;
}

bool ShapedTransport::prepare_sleep() {
  itimerspec at{};  // all zero: no alarm
  if (!items_.empty()) {
    const int64_t due = items_.front().due_ns;
    if (due <= now_ns()) return false;
    at.it_value.tv_sec = due / 1'000'000'000;
    at.it_value.tv_nsec = due % 1'000'000'000;
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
  return inner().prepare_sleep();
}

Status ShapedTransport::watch(int epoll_fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = timer_.get();
  if (::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_.get(), &event) < 0)
    return fail_errno(errno, "cannot watch the timer of the shaped transport");
  return inner().watch(epoll_fd);
}

}  // namespace weft::transport
