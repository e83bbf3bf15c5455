// PeerTable: the state of each peer of a TCP transport: its links (connections), its sender, and whether it
// is lost. The table also lists the peers that can be written to now, and the lost peers that are not
// reported.
//
// Loss: a peer is lost when any connection with it ends. The transport still delivers data that the peer sent
// before. So report_lost() waits until all connections of the peer are read to their end, or until they have
// been silent for 100 ms. It waits 1 s if the peer has neither opened a connection nor sent anything.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transport/message_burst.h"
#include "transport/tcp_receiver.h"
#include "transport/tcp_sender.h"
#include "transport/tcp_socket.h"

namespace weft::transport::tcp {

struct LinkId {
  int peer = -1;  // -1: none
  size_t index = 0;
  bool operator==(const LinkId&) const = default;
};

/// One connection with a peer. Either end has opened it, and both may use it.
struct Link {
  Link(int peer, size_t channel, bool opened_here, UniqueFd fd, PutAssembly& puts, bool patient)
      : channel(channel),
        opened_here(opened_here),
        socket(std::move(fd)),
        receiver(peer, socket, puts, patient) {}
  const size_t channel;
  const bool opened_here;
  Socket socket;
  Receiver receiver;

  // For LinkReader.
  LinkId followed_by;  // the link that had data next, after this link last had data
  uint64_t wakes = 0;  // the reader's count of sleeps when `reads` began
  uint32_t reads = 0;  // reads with data since the last sleep; of a hot link: consecutive reads without data
};

struct Peer {
  PutAssembly puts;
  std::vector<std::unique_ptr<Link>> links;  // a link keeps its place; null once it has ended
  std::unique_ptr<Sender> sender;            // exists from the first send on; uses some of the links
  size_t channels = 0;                       // number of channels that the sender has
  size_t usable_channels = 0;                // less than all if a channel could not be connected
  size_t flight_bytes = 0;                   // bytes that a channel for puts may have in flight
  MessageBurst burst;                        // of the messages to this peer
  bool heard = false;                        // the peer has opened a connection, or sent something over ours
  Status failure;                            // not ok: the peer is lost
  int64_t quiet_since_ns = 0;  // when the peer failed, or when its data was last read after that
  bool reported = false;       // the loss has been reported

  // For PeerTable.
  bool active = false;   // the peer is in PeerTable::active_
  bool pending = false;  // the peer counts in PeerTable::pending_
  bool putting = false;  // the peer counts in PeerTable::putting_
};

class PeerTable {
 public:
  explicit PeerTable(int ranks) : peers_(static_cast<size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(peers_.size()); }
  Peer& operator[](int rank) { return peers_[static_cast<size_t>(rank)]; }
  auto begin() { return peers_.begin(); }
  auto end() { return peers_.end(); }
  /// Null if the link has ended.
  Link* find(LinkId id) {
    if (id.peer < 0) return nullptr;
    const auto& links = (*this)[id.peer].links;
    return id.index < links.size() ? links[id.index].get() : nullptr;
  }

  // ---- Sending

  /// Callers call this after they have changed what waits to be sent to a peer.
  void activate(int rank) {
    Peer& peer = (*this)[rank];
    count(peer);
    if (peer.active || peer.sender == nullptr || !peer.sender->ready()) return;
    peer.active = true;
    active_.push_back(rank);
  }
  /// Updates the counts only.
  void count(Peer& peer);
  /// Whether something can be written to a peer now.
  bool any_active() const { return !active_.empty(); }
  /// Takes the active peers off their list, and calls write(rank) for each that has a sender.
  template <typename F>
  void each_active(F write) {
    writing_.swap(active_);
    for (const int rank : writing_) {
      Peer& peer = (*this)[rank];
      peer.active = false;
      if (peer.sender != nullptr) write(rank);
    }
    writing_.clear();
  }
  /// The number of peers with data that the kernel has not taken yet, and of those with puts among it.
  size_t pending() const { return pending_; }
  size_t putting() const { return putting_; }
  /// The first rank that has not acknowledged all data yet, or -1.
  int unflushed() const;

  // ---- Loss

  /// Ends all sending to a peer. The first reason stays. Data that the peer has sent can still be read.
  void fail(int rank, Status why);
  /// The lost peers that are not reported yet, in the order of their losses.
  const std::vector<int>& failing() const { return failing_; }
  /// Reports the lost peers that have nothing more to be read. Returns their number.
  int report_lost(Sink& sink);

 private:
  std::vector<Peer> peers_;  // by rank
  std::vector<int> active_;
  std::vector<int> writing_;  // the peers that each_active() goes through; empty outside of it
  std::vector<int> failing_;
  size_t pending_ = 0, putting_ = 0;
};

}  // namespace weft::transport::tcp
