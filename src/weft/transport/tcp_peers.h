// PeerTable: what a TCP transport knows of each peer: its links (connections), the sender over some of them,
// and whether it is lost. Also which peers can be written to now, and which are lost but not reported.
//
// Loss: a peer is lost when a connection with it ends in any way. The transport still
// delivers earlier data of the peer: report_lost() waits until all of its connections are read to their end,
// or nothing has come over them for 100 ms.
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
  LinkId followed_by;  // the link that had something next, the last time that this one had
  uint64_t wakes = 0;  // the reader's count of sleeps when `reads` began
  uint32_t reads = 0;  // that found something, since any sleep; of a hot link: consecutive ones in vain
};

struct Peer {
  PutAssembly puts;
  std::vector<std::unique_ptr<Link>> links;  // a link keeps its place; null once it has ended
  std::unique_ptr<Sender> sender;            // from the first send on, over some of the links
  size_t channels = 0;                       // that the sender has been given
  size_t usable_channels = 0;                // fewer than all where one could not be connected
  size_t flight_bytes = 0;                   // the bound of its channels for puts
  MessageBurst burst;                        // of messages sent to it
  bool heard = false;                        // has opened a connection, or sent something over ours
  Status failure;                            // not ok: lost
  int64_t quiet_since_ns = 0;                // when it failed, or last had something to be read since
  bool reported = false;                     // as lost

  // For PeerTable.
  bool active = false;   // is in its list of active peers
  bool pending = false;  // is counted
  bool putting = false;
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

  /// For callers that have changed what waits for a peer.
  void activate(int rank) {
    Peer& peer = (*this)[rank];
    count(peer);
    if (peer.active || peer.sender == nullptr || !peer.sender->ready()) return;
    peer.active = true;
    active_.push_back(rank);
  }
  /// The same, of the counts alone.
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
  /// Peers to which not everything is with the kernel, and those to which puts are under way.
  size_t pending() const { return pending_; }
  size_t putting() const { return putting_; }
  /// The first rank that has not acknowledged everything yet, or -1.
  int unflushed() const;

  // ---- Loss

  /// Ends all sending to a peer, for the first reason that came up; what the peer has sent can still be read.
  void fail(int rank, Status why);
  /// The peers that failed and are not reported, in the order of their failures.
  const std::vector<int>& failing() const { return failing_; }
  /// Reports those that have nothing more to be read. Returns their number.
  int report_lost(Sink& sink);

 private:
  std::vector<Peer> peers_;  // by rank
  std::vector<int> active_;
  std::vector<int> writing_;  // those that each_active() goes through; empty outside of it
  std::vector<int> failing_;
  size_t pending_ = 0, putting_ = 0;
};

}  // namespace weft::transport::tcp
