#include "peer_watch.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/clock.h"

namespace weft::nccl_net {

// Nothing else is written after the handshake, so the socket has room. A peer that does not hear it has
// closed its end or died.
void PeerWatch::say_farewell(uint64_t messages) {
  const Farewell farewell{messages};
  if (socket_.valid()) (void)::send(socket_.get(), &farewell, sizeof farewell, MSG_NOSIGNAL | MSG_DONTWAIT);
}

PeerWatch::Peer PeerWatch::look() {
  while (socket_.valid() && peer_ == Peer::there) {
    std::byte* const into = reinterpret_cast<std::byte*>(&farewell_) + heard_;
    const ssize_t got = ::recv(socket_.get(), into, sizeof farewell_ - heard_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got > 0 && (heard_ += static_cast<size_t>(got)) < sizeof farewell_) continue;
    peer_ = got > 0 ? Peer::closed : Peer::gone;
    left_ns_ = now_ns();
  }
  return peer_;
}

}  // namespace weft::nccl_net
