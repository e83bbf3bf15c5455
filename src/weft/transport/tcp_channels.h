// Channels: the connections between this rank and its peers. Connections to peers come from a Connector when
// there is something to send; those from peers come through accept(). There is no listening socket here.
//
// A pair of ranks has a channel for each rail. Whichever end comes first opens it and both use it, so that
// the kernel need not send acknowledgements of its own: half of all segments, where ranks exchange messages.
// If both open one at once, each end writes on its own. But long streams in both directions of one connection
// hold up each other, and messages beside them. So ranks may keep puts apart (TcpOptions::puts_apart):
//
//   channel 0      messages; the lower rank's if there are two
//   channel 1 + r  the puts of the rank that opened it, on rail r
//
// Flight: the bytes on their way to one peer are bounded (bound_flight()), since the queue of the peer's
// switch port is. On a long path the bound is large, and a rank that puts to several peers at once would fill
// the queues of all. So these peers share the bounds of two peers, until the kernel has their puts.
//
// Thread safety: none, except accept().
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "transport/tcp_options.h"
#include "transport/tcp_peers.h"

namespace weft::transport::tcp {

/// The keys in the transport's epoll instance: of the doorbell that accept() rings, and of a link.
inline constexpr uint64_t kDoorbellKey = UINT64_MAX;
constexpr uint64_t key_of(LinkId id) {
  return static_cast<uint64_t>(id.index) << 32 | static_cast<uint32_t>(id.peer);
}
constexpr LinkId link_of(uint64_t key) {
  return {static_cast<int>(key & 0xffffffff), static_cast<size_t>(key >> 32)};
}

class Channels {
 public:
  /// `peers` and `options` outlive this.
  Channels(int rank, PeerTable& peers, Connector connector, const TcpOptions& options);
  /// Makes the doorbell; it and all links are added to an epoll instance.
  Status open(int epoll_fd);

  /// As ConnectionControl::accept. From any thread.
  Status accept(int peer, uint32_t channel, UniqueFd connection);
  /// The doorbell rang. Returns the number of connections taken over.
  int take_over_accepted();

  /// Gives the peer's sender its next channel: one that the peer has opened, unless that is for the peer's
  /// puts, or else one of our own.
  Status add(int rank);
  /// Adds channels for the puts that wait for a peer, as far as they are of use.
  void add_further(int rank);

  /// As ConnectionControl::bound_flight.
  void bound_flight(size_t bytes);
  /// Adapts the bound of a peer's channels for puts to the number of peers that are put to.
  void share_flight(Peer& peer);

 private:
  struct Arrival {
    int peer;
    uint32_t channel;
    UniqueFd connection;
  };

  static Link* find(const Peer& peer, size_t channel, bool opened_here);
  static void share_messages(Peer& peer, Link& theirs);
  void take_over(Arrival arrival);
  void give_up_from(size_t channel);
  Result<Link*> adopt(int peer, size_t channel, bool opened_here, UniqueFd connection);
  size_t flight_of(size_t channel, size_t for_puts) const;
  size_t shared_flight() const;

  const int rank_;
  PeerTable& peers_;
  const Connector connector_;
  const TcpOptions& options_;
  size_t flight_bytes_ = 0;
  int epoll_fd_ = -1;
  UniqueFd doorbell_;
  std::mutex inbox_mutex_;
  std::vector<Arrival> inbox_;
};

}  // namespace weft::transport::tcp
