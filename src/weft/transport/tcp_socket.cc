#include "transport/tcp_socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "transport/lost_memory.h"

namespace weft::transport::tcp {

namespace {

msghdr message_of(const iovec* parts, size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  return message;
}

Io outcome_of(ssize_t result) {
  if (result > 0) return {Io::Outcome::moved, static_cast<size_t>(result), 0};
  if (result == 0) return {Io::Outcome::closed, 0, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {Io::Outcome::blocked, 0, 0};
  return {Io::Outcome::failed, 0, errno};
}

/// The largest buffer that a program may ask for. The kernel gives it twice as much.
size_t largest_buffer() {
  static const size_t bytes = [] {
    size_t largest = 212992;  // the kernel's default, for network namespaces that do not show it
    std::ifstream("/proc/sys/net/core/wmem_max") >> largest;
    return largest;
  }();
  return bytes;
}

}  // namespace

Status Socket::open(int epoll, uint64_t key, size_t unsent_bytes) {
  epoll_ = epoll;
  key_ = key;
  if (::fcntl(fd(), F_SETFD, FD_CLOEXEC) < 0)
    return fail_errno(errno, "cannot set FD_CLOEXEC on a connection");
  const int on = 1;
  if (::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
    return fail_errno(errno, "cannot set TCP_NODELAY on a connection");
  // Firewalls that track connections forget idle ones, the earliest after some minutes: AWS's after 350 s.
  const int sign_of_life_s = 60;
  if (::setsockopt(fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) < 0 ||
      ::setsockopt(fd(), IPPROTO_TCP, TCP_KEEPIDLE, &sign_of_life_s, sizeof(sign_of_life_s)) < 0)
    return fail_errno(errno, "cannot set SO_KEEPALIVE on a connection");
  const int unsent = static_cast<int>(unsent_bytes);
  if (unsent > 0 && ::setsockopt(fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)) < 0)
    return fail_errno(errno, "cannot set TCP_NOTSENT_LOWAT on a connection");
  if (!watch(EPOLLIN)) return fail_errno(errno, "cannot watch a connection");
  return {};
}

Io Socket::write(const iovec* parts, size_t count) {
  const msghdr message = message_of(parts, count);
  size_t offered = 0;
  for (size_t i = 0; i < count; ++i) offered += parts[i].iov_len;
  ssize_t result;
  do {
    result = count == 1 ? ::send(fd(), parts->iov_base, parts->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (result < 0 && errno == EINTR);
  const Io io = outcome_of(result);
  if (!io.over() && io.bytes < offered) blocked_ = watch(watched_ | EPOLLOUT);
  return io;
}

Io Socket::read(iovec* parts, size_t count) {
  msghdr message = message_of(parts, count);
  ssize_t result;
  do {
    result = count == 1 ? ::recv(fd(), parts->iov_base, parts->iov_len, MSG_DONTWAIT)
                        : ::recvmsg(fd(), &message, MSG_DONTWAIT);
  } while (result < 0 && errno == EINTR);
  return outcome_of(result);
}

bool Socket::watch_input(bool on) {
  return watch(on ? watched_ | EPOLLIN : watched_ & ~static_cast<uint32_t>(EPOLLIN));
}

void Socket::room() {
  if (blocked_) blocked_ = false;
  else watch(watched_ & ~static_cast<uint32_t>(EPOLLOUT));
}

/// Only adding a descriptor to the epoll instance can fail: other changes need no memory.
bool Socket::watch(uint32_t events) {
  if (events == watched_) return true;
  const int operation = watched_ == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_event event{};
  event.events = events;
  event.data.u64 = key_;
  if (::epoll_ctl(epoll_, operation, fd(), &event) < 0) return false;
  watched_ = events;
  return true;
}

void Socket::bound_flight(size_t bytes) {
  const size_t buffer = bytes / 2;
  if (buffer == 0 || buffer > largest_buffer()) return;
  const int asked = static_cast<int>(buffer);
  ::setsockopt(fd(), SOL_SOCKET, SO_SNDBUF, &asked, sizeof(asked));
}

size_t Socket::largest_flight() { return 2 * largest_buffer(); }

size_t Socket::unacknowledged() const {
  int bytes = 0;
  if (::ioctl(fd(), SIOCOUTQ, &bytes) != 0 || bytes <= 0) return 0;
  // The kernel goes on counting what it has thrown away when the peer reset the connection.
  tcp_info info{};
  socklen_t length = sizeof info;
  const bool known = ::getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0;
  return known && info.tcpi_state == TCP_CLOSE ? 0 : static_cast<size_t>(bytes);
}

Status connection_lost(int peer, const Io& io) {
  if (io.outcome == Io::Outcome::closed)
    return fail(Code::remote_error, "rank {} closed its connection", peer);
  if (io.error == EFAULT) return memory_is_gone(peer);
  return fail(Code::remote_error, "the connection with rank {} broke: {} (errno {})", peer,
              std::strerror(io.error), io.error);
}

}  // namespace weft::transport::tcp
