// Network: the interfaces of the nodes and the switches between them, as servers that work on one thing at a
// time. Every rail of a node is one server out and one in. Each end of a leaf's uplink is a server. Streams
// that share a server pass one after the other: k senders to one receiver take k times as long. If packets
// took turns, only the order would differ. Messages without bytes wait for none.
//
// Thread safety: none; one simulation's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "model/conditions.h"
#include "model/cost.h"

namespace weft::model {

class Network {
 public:
  /// `bursts`: whether interfaces stand idle at times, and make up for it (Machine::burst_bytes).
  Network(const Machine& machine, int nodes, const Conditions& conditions, bool bursts = true);

  /// When a server began with something, and when it was through.
  struct Passage {
    double start_us, end_us;
  };

  /// Into how many stripes a put goes, and over which rail the k-th of a rank's messages to `to` begins.
  int stripes(double bytes, int from, int to) const;
  int rail(int from, int to, uint64_t k) const;

  /// `to` is any number for the node it goes to, the same one for the same node. `headers` is how many
  /// messages' headers it has.
  Passage egress(int node, int rail, int to, double at_us, double bytes, double headers = 1) {
    return pass(out_[index(node, rail)], at_us, bytes, to, headers);
  }
  Passage ingress(int node, int rail, int from, double at_us, double bytes, double headers = 1) {
    const Passage passage = pass(in_[index(node, rail)], at_us, bytes, from, headers);
    longest_wait_us_ = std::max(longest_wait_us_, passage.start_us - at_us);
    return passage;
  }
  /// Whether what goes from one node to the other goes through the core.
  bool through_core(int from, int to) const {
    return nodes_per_leaf_ > 0 && from / nodes_per_leaf_ != to / nodes_per_leaf_;
  }
  Passage uplink(int node, double at_us, double bytes) {
    return pass(up_[static_cast<size_t>(node / nodes_per_leaf_)], at_us, bytes, 0);
  }
  Passage downlink(int node, double at_us, double bytes) {
    return pass(down_[static_cast<size_t>(node / nodes_per_leaf_)], at_us, bytes, 0);
  }

  /// How much of its speed a node has.
  double speed(int node) const { return speed_.empty() ? 1.0 : speed_[static_cast<size_t>(node)]; }
  /// The longest that anything waited because a receiver's rail was taken: how bad incast was.
  double longest_wait_us() const { return longest_wait_us_; }

 private:
  struct Server {
    double free_us = 0;
    double bytes_per_us = 0;  // 0: down
    double message_us = 0;
    double burst_us = 0;  // of idle time that it makes up for
    int peer = -1;        // the node of the bytes before
  };

  /// Bytes of another node than the last are slower. Notifications slip in between: a put is many packets.
  Passage pass(Server& server, double at_us, double bytes, int peer, double headers = 1) {
    const double start = std::max(at_us, server.free_us), message_us = headers * server.message_us;
    server.free_us = std::max(server.free_us, at_us - server.burst_us) + message_us;
    if (bytes == 0) return {at_us, at_us + message_us};
    const bool crosses = server.peer >= 0 && server.peer != peer;
    server.peer = peer;
    server.free_us += bytes / (server.bytes_per_us * (crosses ? crossing_ : 1.0));
    return {start, std::max(start, server.free_us)};
  }
  size_t index(int node, int rail) const {
    return static_cast<size_t>(node) * static_cast<size_t>(rails_) + static_cast<size_t>(rail);
  }
  bool is_up(int from, int to, int rail) const {
    return out_[index(from, rail)].bytes_per_us > 0 && out_[index(to, rail)].bytes_per_us > 0;
  }
  int rails_up(int from, int to) const;

  const int rails_;
  const int nodes_per_leaf_;
  const double stripe_bytes_;
  const double crossing_;
  bool any_down_ = false;
  std::vector<Server> out_, in_;   // by node and rail
  std::vector<Server> up_, down_;  // by leaf
  std::vector<double> speed_;      // by node; empty: all 1
  double longest_wait_us_ = 0;
};

}  // namespace weft::model
