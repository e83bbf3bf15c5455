// Messages: the path of a put or a signal, from when its sender's CPU begins with it until its receiver's CPU
// has filed it. It passes these events. Inside a node there is none between `ended` and `land`. A put of
// several stripes has a `wire` for each:
//
//   send()  ── CPU ──▶ inject ── egress ──▶ (core ──▶) wire ── ingress ──▶ land ── CPU ──▶ filed
//
// If CPUs move the bytes, an interface's queue holds a bounded part of each connection's. A put that finds no
// room waits for its `write`. So puts to several peers share an interface.
//
// The simulator knows which call a message is for, and which lane goes on.
//
// Invariant: each message leads to one `land`, and to one event that says that its source may be reused:
// `released`, or `ended` where that is so by then.
//
// Thread safety: none; one simulation's.
#pragma once

#include <cstdint>
#include <vector>

#include "model/agenda.h"
#include "model/cost.h"
#include "model/event_queue.h"
#include "model/network.h"
#include "model/ranks.h"
#include "model/simulate.h"
#include "model/workers.h"
#include "transport/message_burst.h"

namespace weft::model {

class Messages {
 public:
  /// All but `layout` must live as long. `streams`: what each rank sends follows on many messages.
  Messages(const Machine& machine, const topology::Layout& layout, const plan::Limits& limits, Ranks& ranks,
           Network& network, Workers& workers, Agenda& agenda, bool streams);

  /// `rank` sends; the peer must be a rank. Returns when its CPU begins with that.
  double send(RankState& rank, plan::StepId id, double now);
  /// The sender's CPU has handed it to the network interfaces.
  void inject(const Event& event);
  /// … or now, since there was no room.
  void write(const Event& event);
  /// … or, inside the node, is done with it.
  void leave(const Event& event);
  void core(const Event& event);
  void wire(const Event& event);
  /// The receiver's CPU takes it in, from `from_us` on; `then` is what that leads to, unless its end comes
  /// later.
  void file(const Event& event, double from_us, EventKind then);

  /// The traffic so far, inside nodes or between them.
  const Traffic& traffic(bool same_node) const { return same_node ? intra_ : inter_; }

 private:
  /// A put on its way in several stripes.
  struct Flight {
    int left = 0;             // stripes
    double bytes = 0;         // of one
    double last_byte_us = 0;  // so far
  };
  uint32_t take_flight(const Flight& flight);
  void leave_node(const Event& event);
  void wait_for_room(const Line& line, double now);

  double share(const RankState& from, const RankState& to) const;
  bool is_staged(const plan::Step& step) const;
  double handling_us(double message_us, const plan::Step& step) const;
  struct Sent {
    double cpu_us;
    bool gathered;
  };
  Sent sent(RankState& rank, const plan::Step& step, double now) const;
  static bool flies(const Event& event) { return event.flight < kUnwritten; }
  bool read_together(RankState& receiver, int from, const Event& message, double from_us) const;
  double flow_us(const RankState& rank, double bytes) const;
  bool has_room(const Line& line, double now) const;
  double reusable_us(const Network::Passage& out, double gone_us) const;

  const Machine& machine_;
  const plan::Limits& limits_;
  const transport::tcp::MessageBurst before_;  // the messages that are simulated
  const double kept_us_;                       // of a line's time, for what it sends, the kernel keeps bytes
  const double queued_us_;                     // … in an interface's queue, of one connection
  Ranks& ranks_;
  Network& network_;
  Workers& workers_;
  Agenda& agenda_;
  std::vector<Flight> flights_;
  std::vector<uint32_t> free_flights_;
  Traffic intra_, inter_;
};

}  // namespace weft::model
