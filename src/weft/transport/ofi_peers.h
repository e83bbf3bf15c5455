// Peers: what a rank knows of the others over libfabric, and which of them are lost.
//
// Thread safety: none; as the transport's.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transport/ofi_protocol.h"

namespace weft::transport::ofi {

/// This rank's knowledge of another.
struct Peer {
  uint32_t token = 0;
  uint32_t known_as = 0;                      // this rank's number among the peer's peers
  std::vector<std::vector<std::byte>> names;  // by rail; as many rails as both have
  std::vector<fi_addr_t> routes;              // by rail, FI_ADDR_UNSPEC until first used
  uint32_t met = 0;                           // rails over which it has answered a greeting, a bit each
  Greetings greetings[kMaxRails];             // over the others
  uint64_t puts_started = 0;
  uint64_t puts_received = 0;   // by the peer, all before this number
  uint64_t message_credit = 0;  // the peer's; UINT64_MAX: it has no bound
  uint64_t messages_sent = 0;   // what they cost
  uint64_t messages_taken = 0;  // of these, by the peer, as far as it has said
  IncomingPuts incoming;
  uint64_t messages_here = 0;          // what those that have come from it cost
  uint64_t acknowledged = 0;           // of `incoming`
  uint64_t acknowledged_messages = 0;  // of `messages_here`
  bool acknowledgement_due = false;    // it is among those of acknowledge_due()
  bool takes_gpu = false;              // it offers GPUDirect
  Status lost;                         // ok while it is not

  uint32_t all_rails() const { return (1u << routes.size()) - 1; }
  bool met_on_all() const { return met == all_rails(); }
};

class Peers {
 public:
  Peers(int rank, int ranks) : rank_(rank), peers_(static_cast<size_t>(ranks)) {}

  int size() const { return static_cast<int>(peers_.size()); }
  Peer& operator[](int peer) { return peers_[static_cast<size_t>(peer)]; }
  const Peer& operator[](int peer) const { return peers_[static_cast<size_t>(peer)]; }
  const std::vector<Peer>& all() const { return peers_; }

  /// ok if messages can go to a peer.
  Status check(int peer) const {
    if (peer < 0 || peer >= size() || peer == rank_)
      return fail(Code::invalid_argument, "peer is {}, must be another rank than {} in [0, {})", peer, rank_,
                  size());
    if ((*this)[peer].routes.empty())
      return fail(Code::invalid_usage, "the address of rank {} is not known: connect() first", peer);
    return (*this)[peer].lost;
  }
  /// From now on nothing is sent to the peer. Only the first reason counts.
  void lose(int peer, const Status& why) {
    Peer& who = (*this)[peer];
    if (!who.lost.ok()) return;
    const bool own = why.code() == Code::invalid_usage;  // this process's own fault
    who.lost = fail(own ? why.code() : Code::remote_error, "the connection to rank {} is lost: {}", peer,
                    why.message());
    losses_.push_back(peer);
  }
  /// Peers that were lost since the last call.
  std::vector<int> take_losses() { return std::exchange(losses_, {}); }
  bool any_loss() const { return !losses_.empty(); }

 private:
  const int rank_;
  std::vector<Peer> peers_;
  std::vector<int> losses_;  // to be reported
};

}  // namespace weft::transport::ofi
