#include "transport/tcp_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace weft::transport::tcp {

namespace {

Io outcome_of(ssize_t result) {
  if (result > 0) return {Io::Outcome::moved, static_cast<size_t>(result), 0};
  if (result == 0) return {Io::Outcome::closed, 0, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {Io::Outcome::blocked, 0, 0};
  return {Io::Outcome::failed, 0, errno};
}

msghdr message_of(const iovec* parts, size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  return message;
}

}  // namespace

Status prepare_socket(int fd, size_t unsent_bytes) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
    return fail_errno(errno, "cannot set O_NONBLOCK");
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) return fail_errno(errno, "cannot set FD_CLOEXEC");
  const int on = 1;
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
    return fail_errno(errno, "cannot set TCP_NODELAY on a data connection");
  const int unsent = static_cast<int>(unsent_bytes);
  if (unsent > 0 && ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)) < 0)
    return fail_errno(errno, "cannot set TCP_NOTSENT_LOWAT on a data connection");
  return {};
}

Io write_some(int fd, const iovec* parts, size_t count) {
  const msghdr message = message_of(parts, count);
  ssize_t result;
  do {
    result = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (result < 0 && errno == EINTR);
  return outcome_of(result);
}

Io read_some(int fd, iovec* parts, size_t count) {
  msghdr message = message_of(parts, count);
  ssize_t result;
  do {
    result = count == 1 ? ::recv(fd, parts->iov_base, parts->iov_len, MSG_DONTWAIT)
                        : ::recvmsg(fd, &message, MSG_DONTWAIT);
  } while (result < 0 && errno == EINTR);
  return outcome_of(result);
}

Status connection_lost(int peer, const Io& io) {
  if (io.outcome == Io::Outcome::closed)
    return fail(Code::remote_error, "rank {} closed its connection", peer);
  return fail(Code::remote_error, "the connection with rank {} broke: {} (errno {})", peer,
              std::strerror(io.error), io.error);
}

}  // namespace weft::transport::tcp
