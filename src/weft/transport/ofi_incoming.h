// Incoming: what peers send. Completions wait here for poll(), which delivers messages and whole puts to the
// Sink. It also tells peers what has been taken in.
//
// Thread safety: none; as the transport's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "transport/ofi_messages.h"
#include "transport/ofi_peers.h"
#include "transport/ofi_protocol.h"
#include "transport/ofi_rails.h"

namespace weft::transport::ofi {

class Incoming {
 public:
  /// `token` is this rank's. `credit`: see OfiOptions::message_credit.
  Incoming(Rails& rails, Peers& peers, Messages& messages, Immediate immediate, uint32_t token,
           uint64_t credit)
      : rails_(rails),
        peers_(peers),
        messages_(messages),
        immediate_(immediate),
        token_(token),
        credit_(credit) {}

  /// A message of so many bytes has come over a rail.
  void received(Rail& rail, Operation* message, size_t bytes) {
    arrivals_.push_back({&rail, message, bytes, 0});
  }
  /// A peer has written a stripe.
  void written(uint32_t immediate) { arrivals_.push_back({nullptr, nullptr, 0, immediate}); }
  /// The provider has given up an incoming write, and its connection with it: no write that had begun goes
  /// on. Not every provider reports that: `tcp;ofi_rxm` of 1.17 does not.
  void cut_off(const Event& event);
  bool any() const { return !arrivals_.empty(); }
  Status deliver_all(Sink& sink);

  /// Sends the acknowledgements that are due, as far as there is room.
  void acknowledge_due(Sink& sink);
  bool owes_acknowledgement() const { return !due_.empty(); }
  /// Whether a peer is going to acknowledge messages or puts.
  bool awaits_acknowledgement() const;

  /// Whether the peer may be in the middle of writing a put of `comm` that it began before the last poll().
  /// The caller knows that the peer begins no other. Always true where stripes may come before their
  /// announcement: over several rails, and over a network without order, such as EFA.
  bool may_be_writing(int peer, uint32_t comm) const;
  /// Whether the peer certainly is. Where may_be_writing() is always true, false says nothing.
  bool is_writing(int peer, uint32_t comm) const;

 private:
  /// A completion that waits for the Sink.
  struct Arrival {
    Rail* rail;
    Operation* message;  // null: a stripe with `immediate`
    size_t bytes;
    uint32_t immediate;
  };
  Status deliver(Sink& sink, const Arrival& arrival);
  void deliver_message(Sink& sink, const std::byte* message, size_t bytes);
  void deliver_stripe(Sink& sink, uint32_t immediate);
  void file_segment(Sink& sink, int from, IncomingPut& put, const Header& header, const std::byte* payload,
                    size_t bytes);
  void arrived_whole(Sink& sink, int from, IncomingPut& put);
  void finished(int from, IncomingPut& put);
  uint64_t puts_per_acknowledgement() const { return std::max<uint64_t>(1, immediate_.window() / 4); }
  bool owes_puts(const Peer& peer) const;
  bool owes_messages(const Peer& peer) const;
  void acknowledge_later(int rank);

  Rails& rails_;
  Peers& peers_;
  Messages& messages_;
  const Immediate immediate_;
  const uint32_t token_;
  const uint64_t credit_;
  std::deque<Arrival> arrivals_;
  std::vector<int> due_;  // peers to which an acknowledgement is due
};

}  // namespace weft::transport::ofi
