// TCP sockets as the bootstrap uses them.
#include "bootstrap/socket.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/cancellation.h"
#include "base/fork.h"
#include "base/log.h"

namespace weft::bootstrap {
namespace {

bool out_of_descriptors(int error) { return error == EMFILE; }

/// BBR lets data go at the rate at which it has seen some arrive, and by timers. Of messages that come one at
/// a time it sees their last segments, some hundred bytes a round trip, and holds up the next ones for 10 ms.
/// Any other congestion control does; every kernel has reno, and lets everybody choose it. A connection that
/// has begun with BBR stays paced whatever it changes to, so this comes before it is one.
void leave_bbr(int fd) {
  char name[16] = {};
  socklen_t bytes = sizeof name - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0 &&
      std::string_view(name).starts_with("bbr"))
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

Result<UniqueFd> open_socket(int family) {
  do {
    UniqueFd fd = make_private_socket(
        [family] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
    if (fd.valid()) {
      leave_bbr(fd.get());
      return fd;
    }
  } while (out_of_descriptors(errno) && raise_descriptor_limit());
  return fail_errno(errno, "socket");
}

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

/// What `ask`, which is named so, says of a socket: its own address or its peer's.
Result<SocketAddress> address_by(int (*ask)(int, sockaddr*, socklen_t*), const char* name, int fd) {
  sockaddr_storage raw{};
  socklen_t bytes = sizeof raw;
  if (ask(fd, reinterpret_cast<sockaddr*>(&raw), &bytes) != 0) return fail_errno(errno, name);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&raw));
}

Status bind_and_listen(int fd, const SocketAddress& address) {
  // So that a root on a port that its launcher fixed can come back at once after the last job.
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd, address.raw(), address.raw_bytes()) != 0 || ::listen(fd, SOMAXCONN) != 0) {
    const int error = errno;
    const Status failed = fail_errno(error, fmt::format("listening on {}", address.to_string()));
    if (error != EADDRINUSE) return failed;
    return fail(
        failed.code(),
        "{}; another job or program has that port: end it, or name another port, the same on all ranks, "
        "in WEFT_ROOT (host:port) or MASTER_PORT",
        failed.message());
  }
  return {};
}

}  // namespace

Result<UniqueFd> listen_on(const SocketAddress& address) {
  Result<UniqueFd> fd = open_socket(address.family());
  if (!fd.ok()) return fd;
  WEFT_TRY(bind_and_listen(fd->get(), address));
  return fd;
}

Result<UniqueFd> listen_everywhere(uint16_t port) {
  if (Result<UniqueFd> six = open_socket(AF_INET6); six.ok()) {
    set_option(six->get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind_and_listen(six->get(), SocketAddress::any(AF_INET6, port)).ok()) return six;
  }
  // The kernel has no IPv6, or the port is taken; the latter is reported from here.
  return listen_on(SocketAddress::any(AF_INET, port));
}

bool is_of_this_host(const SocketAddress& address) {
  Result<UniqueFd> fd = open_socket(address.family());
  const SocketAddress any_port = address.with_port(0);
  return !fd.ok() || ::bind(fd->get(), any_port.raw(), any_port.raw_bytes()) == 0 || errno != EADDRNOTAVAIL;
}

UniqueFd accept_from(int listener, int* error) {
  do {
    UniqueFd fd = make_private_socket(
        [listener] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    *error = fd.valid() ? 0 : errno;
    if (fd.valid()) return fd;
  } while (out_of_descriptors(*error) && raise_descriptor_limit());
  return UniqueFd();
}

Result<UniqueFd> begin_connect(const SocketAddress& address, const SocketAddress& from) {
  Result<UniqueFd> fd = open_socket(address.family());
  if (!fd.ok()) return fd;
  if (from.valid()) {
    set_option(fd->get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);  // connect() then chooses one
    const SocketAddress own = from.with_port(0);
    if (::bind(fd->get(), own.raw(), own.raw_bytes()) != 0)
      return fail_errno(errno, fmt::format("connecting from {}", own.to_string(false)));
  }
  if (::connect(fd->get(), address.raw(), address.raw_bytes()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return fail(Code::remote_error, "connecting to {}: {}", address.to_string(), std::strerror(errno));
  }
  send_at_once(fd->get());
  return fd;
}

int connect_outcome(int fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  if (error != 0) return error;
  // The kernel may have given the socket the very port that it goes to, where nobody listens.
  const Result<SocketAddress> own = local_address(fd), other = peer_address(fd);
  const bool to_itself = own.ok() && other.ok() && own->port() == other->port() && own->same_host(*other);
  return to_itself ? ECONNREFUSED : 0;
}

Result<UniqueFd> connect_to(const SocketAddress& address, Deadline deadline, const SocketAddress& from) {
  Result<UniqueFd> fd = begin_connect(address, from);
  if (!fd.ok()) return fd;
  if (!wait_for(fd->get(), POLLOUT, deadline)) {
    return fail(Code::timeout, "connecting to {}: no answer before the deadline", address.to_string());
  }
  if (const int error = connect_outcome(fd->get()); error != 0) {
    return fail(Code::remote_error, "connecting to {}: {}", address.to_string(), std::strerror(error));
  }
  return fd;
}

Result<SocketAddress> local_address(int fd) { return address_by(getsockname, "getsockname", fd); }

Result<SocketAddress> peer_address(int fd) { return address_by(getpeername, "getpeername", fd); }

void send_at_once(int fd) { set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1); }

void notice_dead_host(int fd) {
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
}

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, Cancellation::sleep_ms(deadline, 60'000));
    if (ready > 0) return true;
    if (Cancellation::ends(deadline)) return false;
  }
}

Status send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline))
        return fail(Code::timeout, "sending did not end before the deadline");
    } else if (errno != EINTR) {
      return fail(Code::remote_error, "sending: {}", std::strerror(errno));
    }
  }
  return {};
}

Status recv_all(int fd, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      return fail(Code::remote_error, "the connection was closed");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLIN, deadline)) return fail(Code::timeout, "nothing came before the deadline");
    } else if (errno != EINTR) {
      return fail(Code::remote_error, "receiving: {}", std::strerror(errno));
    }
  }
  return {};
}

bool is_exhausted(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

bool raise_descriptor_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  log::info("out of file descriptors: raised the soft limit from {} to {}", before, limit.rlim_max);
  return true;
}

}  // namespace weft::bootstrap
