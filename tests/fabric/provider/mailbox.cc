#include "mailbox.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace weft::fake_efa {
namespace {

constexpr int kBufferBytes = 4 << 20;

/// A name in the abstract space, which no file system knows.
socklen_t name_of(const Address& address, sockaddr_un& name) {
  name = {};
  name.sun_family = AF_UNIX;
  const int length = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "fake-efa-%016lx%016lx",
                                   address.id[0], address.id[1]);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

UniqueFd datagram_socket() { return UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

}  // namespace

int Mailbox::open(const Address& address) {
  socket_ = datagram_socket();
  sockaddr_un name;
  const socklen_t length = name_of(address, name);
  return bind(socket_.get(), reinterpret_cast<sockaddr*>(&name), length) == 0 ? 0 : errno;
}

void Mailbox::close() {
  if (socket_.valid()) shutdown(socket_.get(), SHUT_RDWR);  // a forked child may have a copy of it
  socket_.reset();
}

ssize_t Mailbox::take(std::span<std::byte> into, UniqueFd& board) {
  iovec whole = {into.data(), into.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &whole;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* const along = bytes < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (along && along->cmsg_level == SOL_SOCKET && along->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(along), sizeof fd);
    board.reset(fd);
  }
  return bytes;
}

bool Path::connect() {
  if (socket_.valid()) return true;
  UniqueFd fresh = datagram_socket();
  setsockopt(fresh.get(), SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
  sockaddr_un name;
  const socklen_t length = name_of(to_, name);
  if (::connect(fresh.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) return false;
  socket_ = std::move(fresh);
  return true;
}

Path::Sent Path::send(const PacketHeader& header, const void* payload, size_t bytes, int board) {
  if (gone_ || !connect()) {
    gone_ = true;
    return Sent::gone;
  }
  iovec parts[2] = {{const_cast<PacketHeader*>(&header), sizeof header}, {const_cast<void*>(payload), bytes}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = bytes > 0 ? 2 : 1;
  const bool gives_board = header.kind == PacketHeader::Kind::write && !has_board_;
  if (gives_board) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const along = CMSG_FIRSTHDR(&message);
    along->cmsg_level = SOL_SOCKET;
    along->cmsg_type = SCM_RIGHTS;
    along->cmsg_len = CMSG_LEN(sizeof board);
    std::memcpy(CMSG_DATA(along), &board, sizeof board);
  }
  if (sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
    has_board_ |= gives_board;
    return Sent::yes;
  }
  switch (errno) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
    case ETOOMANYREFS:
    case EINTR: return Sent::full;
    case EFAULT: return Sent::fault;
    default: gone_ = true; return Sent::gone;
  }
}

}  // namespace weft::fake_efa
