#include "model/network.h"

#include <cmath>

namespace weft::model {

Network::Network(const Machine& machine, int nodes, const Conditions& conditions, bool bursts)
    : rails_(machine.rails),
      nodes_per_leaf_(conditions.fabric.nodes_per_leaf),
      stripe_bytes_(static_cast<double>(machine.stripe_bytes)),
      crossing_(machine.crossing) {
  const Server rail{.free_us = 0,
                    .bytes_per_us = machine.nic_bytes_per_us,
                    .message_us = machine.nic_message_us,
                    .burst_us = bursts ? machine.burst_bytes / machine.nic_bytes_per_us : 0,
                    .peer = -1};
  out_.assign(static_cast<size_t>(nodes) * static_cast<size_t>(rails_), rail);
  in_ = out_;
  if (nodes_per_leaf_ > 0) {
    const double rate = machine.node_bytes_per_us() * nodes_per_leaf_ / conditions.fabric.oversubscription;
    const Server link{.free_us = 0, .bytes_per_us = rate, .message_us = 0, .burst_us = 0, .peer = -1};
    up_.assign(static_cast<size_t>((nodes - 1) / nodes_per_leaf_ + 1), link);
    down_ = up_;
  }
  const auto slow_down = [&](std::vector<Server>& servers, int node, int rail, double rate) {
    Server& server = servers[index(node, rail)];
    server.bytes_per_us *= rate;
    if (rate > 0) server.message_us /= rate, server.burst_us /= rate;
  };
  if (!conditions.slow_nodes.empty()) speed_.assign(static_cast<size_t>(nodes), 1.0);
  for (const SlowNode& slow : conditions.slow_nodes) {
    speed_[static_cast<size_t>(slow.node)] *= slow.rate;
    for (int r = 0; r < rails_; ++r) {
      slow_down(out_, slow.node, r, slow.rate);
      slow_down(in_, slow.node, r, slow.rate);
    }
  }
  for (const SlowRail& slow : conditions.slow_rails) {
    slow_down(out_, slow.node, slow.rail, slow.rate);
    slow_down(in_, slow.node, slow.rail, slow.rate);
    any_down_ = any_down_ || slow.rate == 0;
  }
  for (const Incast& incast : conditions.incasts) {
    for (int r = 0; r < rails_; ++r) slow_down(in_, incast.node, r, 1 / (1 + incast.streams));
  }
}

int Network::rails_up(int from, int to) const {
  if (!any_down_) return rails_;
  int count = 0;
  for (int r = 0; r < rails_; ++r) count += is_up(from, to, r);
  return count;
}

int Network::stripes(double bytes, int from, int to) const {
  if (rails_ == 1 || bytes <= stripe_bytes_) return 1;
  return std::min(rails_up(from, to), static_cast<int>(std::min(std::ceil(bytes / stripe_bytes_), 1e6)));
}

int Network::rail(int from, int to, uint64_t k) const {
  if (!any_down_) return static_cast<int>(k % static_cast<uint64_t>(rails_));
  int skip = static_cast<int>(k % static_cast<uint64_t>(std::max(rails_up(from, to), 1)));
  for (int r = 0; r < rails_; ++r) {
    if (is_up(from, to, r) && skip-- == 0) return r;
  }
  return 0;
}

}  // namespace weft::model
