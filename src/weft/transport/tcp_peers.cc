#include "transport/tcp_peers.h"

#include <algorithm>

#include "base/clock.h"

namespace weft::transport::tcp {

namespace {

// How long a lost peer's other connections may have nothing to be read.
constexpr int64_t kLossGraceNs = 100'000'000;
// How long this rank waits for a connection of a lost peer that it has never heard of: the peer may have
// opened one, sent its only message over it, and left.
constexpr int64_t kUnheardGraceNs = 1'000'000'000;

}  // namespace

void PeerTable::count(Peer& peer) {
  const bool pending = peer.sender != nullptr && peer.sender->pending();
  const bool putting = pending && peer.sender->puts();
  if (putting != peer.putting) putting ? ++putting_ : --putting_;
  peer.putting = putting;
  if (pending == peer.pending) return;
  peer.pending = pending;
  pending ? ++pending_ : --pending_;
}

int PeerTable::unflushed() const {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.sender == nullptr) continue;
    if (peer.sender->pending() || std::any_of(peer.links.begin(), peer.links.end(), [](const auto& link) {
          return link && link->socket.unacknowledged() > 0;
        }))
      return static_cast<int>(rank);
  }
  return -1;
}

void PeerTable::fail(int rank, Status why) {
  Peer& peer = (*this)[rank];
  if (!peer.failure.ok()) return;
  peer.failure = std::move(why);
  peer.quiet_since_ns = now_ns();
  peer.sender.reset();
  count(peer);
  failing_.push_back(rank);
}

int PeerTable::report_lost(Sink& sink) {
  int events = 0;
  for (size_t i = 0; i < failing_.size();) {
    const int rank = failing_[i];
    Peer& peer = (*this)[rank];
    const bool unread =
        std::any_of(peer.links.begin(), peer.links.end(), [](const auto& link) { return link != nullptr; });
    const int64_t grace_ns = !peer.heard ? kUnheardGraceNs : unread ? kLossGraceNs : 0;
    if (now_ns() - peer.quiet_since_ns < grace_ns) {
      ++i;
      continue;
    }
    failing_.erase(failing_.begin() + static_cast<ptrdiff_t>(i));
    peer.links.clear();
    peer.reported = true;
    sink.lost(rank, peer.failure);
    ++events;
  }
  return events;
}

}  // namespace weft::transport::tcp
