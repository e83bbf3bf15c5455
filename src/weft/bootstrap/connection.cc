// Reading and writing frames without blocking.
#include "bootstrap/connection.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bootstrap/socket.h"

namespace weft::bootstrap {
namespace {

constexpr size_t kMostUnsentBytes = 4 << 20;

}  // namespace

Connection::Connection(EventLoop& loop, UniqueFd fd, Events events)
    : loop_(loop), fd_(std::move(fd)), events_(std::move(events)) {
  notice_dead_host(fd_.get());
}

std::shared_ptr<Connection> Connection::adopt(EventLoop& loop, UniqueFd fd, Events events) {
  std::shared_ptr<Connection> self(new Connection(loop, std::move(fd), std::move(events)));
  self->begin(EPOLLIN);
  return self;
}

Result<std::shared_ptr<Connection>> Connection::open(EventLoop& loop, const SocketAddress& address,
                                                     const Job& job, std::vector<std::byte> hello,
                                                     double within_s, Events events) {
  Result<UniqueFd> fd = begin_connect(address);
  if (!fd.ok()) return fd.status();
  std::shared_ptr<Connection> self(new Connection(loop, fd.take(), std::move(events)));
  self->connecting_ = self->proving_ = true;
  self->proof_ = job.proof;
  self->address_ = address;
  self->out_ = greeting(job.secret, std::move(hello));
  // Inside a host connecting is over at once. The acceptor's patience has begun then: greet it now.
  if (wait_for(self->fd_.get(), POLLOUT, Deadline::in_seconds(0))) {
    if (const Status connected = self->finish_connecting(); !connected.ok()) return connected;
    self->flush();
  }
  self->begin(self->out_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
  self->timer_ = loop.at(Deadline::in_seconds(within_s), [weak = self->weak_from_this(), within_s] {
    if (const auto held = weak.lock()) {
      held->fail_with(
          fail(Code::timeout, "{} did not answer within {} s", held->address_.to_string(), within_s));
    }
  });
  return self;
}

void Connection::begin(uint32_t events) {
  watch_ = loop_.watch(fd_.get(), events, [weak = weak_from_this()](uint32_t what) {
    if (const auto held = weak.lock()) held->ready(what);
  });
}

void Connection::send(std::span<const std::byte> frame) {
  if (!fd_.valid() || out_.size() + frame.size() > kMostUnsentBytes) return;
  const bool idle = out_.empty();
  out_.insert(out_.end(), frame.begin(), frame.end());
  if (!idle) return;  // the loop tells when there is room
  flush();
  if (!out_.empty()) loop_.change(watch_, EPOLLIN | EPOLLOUT);
}

void Connection::close() {
  if (!fd_.valid()) return;
  loop_.unwatch(watch_);
  loop_.cancel(timer_);
  // Unread bytes would make the kernel reset the connection, and a reset may overtake a goodbye.
  std::byte scrap[4096];
  while (::recv(fd_.get(), scrap, sizeof scrap, MSG_DONTWAIT) > 0) {
  }
  fd_.reset();
}

void Connection::ready(uint32_t events) {
  if (connecting_) {
    if (const Status connected = finish_connecting(); !connected.ok()) return fail_with(connected);
  }
  if ((events & EPOLLOUT) != 0 && flush() && out_.empty()) loop_.change(watch_, EPOLLIN);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read();
}

Status Connection::finish_connecting() {
  const int error = connect_outcome(fd_.get());
  connecting_ = false;
  return error == 0
             ? Status()
             : fail(Code::remote_error, "connecting to {}: {}", address_.to_string(), std::strerror(error));
}

/// False when the connection is broken; reading then says so.
bool Connection::flush() {
  size_t done = 0;
  while (done < out_.size()) {
    const ssize_t sent = ::send(fd_.get(), out_.data() + done, out_.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) break;
    done += static_cast<size_t>(sent);
  }
  const bool broken = done < out_.size() && errno != EAGAIN && errno != EWOULDBLOCK;
  out_.erase(out_.begin(), broken ? out_.end() : out_.begin() + static_cast<ptrdiff_t>(done));
  return !broken;
}

void Connection::read() {
  std::byte piece[16 << 10];
  while (fd_.valid()) {
    const ssize_t got = ::recv(fd_.get(), piece, sizeof piece, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got < 0) return fail_with(fail(Code::remote_error, "its connection broke: {}", std::strerror(errno)));
    if (got == 0) return fail_with(fail(Code::remote_error, "its connection was closed"));
    in_.insert(in_.end(), piece, piece + got);
    if (!parse()) return;
  }
}

/// Hands on every whole frame; false once the connection is closed.
bool Connection::parse() {
  if (proving_ && !check_proof()) return fd_.valid();
  size_t at = 0;
  while (fd_.valid() && in_.size() - at >= kFrameHeaderBytes) {
    const FrameHeader header = read_header(std::span(in_).subspan(at));
    if (header.bytes > kMaxFrameBytes) {
      fail_with(fail(Code::protocol_error, "it sent a frame of {} bytes, {} are the most", header.bytes,
                     kMaxFrameBytes));
      return false;
    }
    if (in_.size() - at - kFrameHeaderBytes < header.bytes) break;
    const auto body = in_.begin() + static_cast<ptrdiff_t>(at + kFrameHeaderBytes);
    const Frame frame{header.kind, std::vector<std::byte>(body, body + header.bytes)};
    at += kFrameHeaderBytes + header.bytes;
    events_.on_frame(frame);
  }
  in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(at));
  return fd_.valid();
}

/// True when the proof is here and right.
bool Connection::check_proof() {
  const size_t have = std::min(in_.size(), proof_.size());
  if (!std::equal(proof_.begin(), proof_.begin() + static_cast<ptrdiff_t>(have), in_.begin())) {
    fail_with(not_weft(address_, std::span(in_).first(have)));
    return false;
  }
  if (have < proof_.size()) return false;
  in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(have));
  proving_ = false;
  loop_.cancel(timer_);
  events_.on_open();
  return fd_.valid();
}

void Connection::fail_with(const Status& why) {
  if (!fd_.valid()) return;
  close();
  // Moved out: the callback may drop the last reference to what it captured, and to this.
  const Events events = std::move(events_);
  events.on_close(why);
}

}  // namespace weft::bootstrap
