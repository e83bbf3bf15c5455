#include "transport/ofi_incoming.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace weft::transport::ofi {

Status Incoming::deliver_all(Sink& sink) {
  for (size_t left = arrivals_.size(); left > 0; --left) {
    const Arrival arrival = arrivals_.front();
    arrivals_.pop_front();
    WEFT_TRY(deliver(sink, arrival));
  }
  return {};
}

void Incoming::cut_off(const Event& event) {
  log::info("{}", event.why.message());
  const uint32_t from = immediate_.sender(event.immediate);
  if (from >= peers_.all().size()) return;
  for (IncomingPut& put : peers_[static_cast<int>(from)].incoming.known()) put.cut_off = true;
}

// An announcement leaves before its stripes. Where a stripe may overtake it (over several rails, and over
// EFA), nothing shows that no write has begun.
bool Incoming::may_be_writing(int peer, uint32_t comm) const {
  return !rails_.announcements_come_first() || is_writing(peer, comm);
}

bool Incoming::is_writing(int peer, uint32_t comm) const {
  return std::ranges::any_of(peers_[peer].incoming.known(), [&](const auto& put) {
    const bool others = put.announced && !put.withdrawn && put.envelope.comm != comm;
    return put.under_way() && !others;
  });
}

Status Incoming::deliver(Sink& sink, const Arrival& arrival) {
  if (!arrival.message) return deliver_stripe(sink, arrival.immediate), Status();
  deliver_message(sink, arrival.message->buffer, arrival.bytes);
  return arrival.rail->post_receive(arrival.message);
}

void Incoming::deliver_stripe(Sink& sink, uint32_t immediate) {
  const uint32_t from = immediate_.sender(immediate);
  if (from >= peers_.all().size())
    return log::warn("{}: a write came from rank {}, which does not exist", rails_.describe(), from);
  Peer& peer = peers_[static_cast<int>(from)];
  IncomingPut* put =
      peer.incoming.find(immediate_.sequence(immediate, peer.incoming.first()), immediate_.window());
  if (!put) return log::warn("{}: rank {} wrote a stripe that is not expected", rails_.describe(), from);
  ++put->stripes_seen;
  if (put->striped_whole()) arrived_whole(sink, static_cast<int>(from), *put);
}

void Incoming::deliver_message(Sink& sink, const std::byte* message, size_t bytes) {
  Header header;
  if (bytes >= sizeof(header)) std::memcpy(&header, message, sizeof(header));
  const size_t payload_bytes = bytes - sizeof(header);
  if (bytes < sizeof(header) || header.token != token_ || header.sender >= peers_.all().size())
    return log::warn("{}: dropped {} bytes that are no message of this job", rails_.describe(), bytes);
  const int from = static_cast<int>(header.sender);
  Peer& peer = peers_[from];
  // The Sink hears nothing more of a lost peer. The transport still counts the writes that the peer may have
  // begun.
  if (!peer.lost.ok() && header.kind != MessageKind::put && header.kind != MessageKind::withdrawn) return;
  if (!greets(header)) peer.met = peer.all_rails();  // it has had our welcome over each
  const std::byte* payload = message + sizeof(header);
  if (header.kind == MessageKind::message) {
    if (payload_bytes < header.envelope.bytes)
      return log::warn("{}: dropped a message of rank {} with {} of {} bytes", rails_.describe(), from,
                       payload_bytes, header.envelope.bytes);
    peer.messages_here += message_cost(header.envelope.bytes);
    acknowledge_later(from);
    return sink.arrived(from, header.envelope, payload);
  }
  if (header.kind == MessageKind::received) {
    peer.puts_received = std::max(peer.puts_received, std::min(header.sequence, peer.puts_started));
    peer.messages_taken = std::max(peer.messages_taken, std::min(header.position, peer.messages_sent));
    return;
  }
  if (greets(header)) {
    if (header.count >= peer.routes.size()) return;  // not introduced yet: it asks again
    if (header.kind == MessageKind::welcome) {
      peer.met |= 1u << header.count;
      return;
    }
    peer.greetings[header.count].hurry();
    if (auto sent = messages_.post_short(MessageKind::welcome, from, header.count); !sent)
      peers_.lose(from, sent.status());
    return;
  }

  IncomingPut* put = peer.incoming.find(header.sequence, immediate_.window());
  if (!put || put->finished) return;  // overtaken by its withdrawal
  switch (header.kind) {
    case MessageKind::put:
      if (put->in_segments)
        return log::warn("{}: rank {} announced a put that comes in segments", rails_.describe(), from);
      put->envelope = header.envelope;
      [[fallthrough]];
    case MessageKind::withdrawn:
      // A withdrawal may overtake the announcement that it corrects.
      if (header.kind == MessageKind::put && put->withdrawn) return;
      put->withdrawn = header.kind == MessageKind::withdrawn;
      put->announced = true;
      put->stripes_expected = header.count;
      if (put->striped_whole()) arrived_whole(sink, from, *put);
      return;
    case MessageKind::segment: return file_segment(sink, from, *put, header, payload, payload_bytes);
    default: return log::warn("{}: rank {} sent a message of unknown kind", rails_.describe(), from);
  }
}

/// Copies a segment to where the Sink wants the put. A receiver exposes memory before a peer can put into it,
/// so a Sink without a place has given up the operation: the transport drops the bytes. It reserves no memory
/// for them, whose length is the peer's word.
void Incoming::file_segment(Sink& sink, int from, IncomingPut& put, const Header& header,
                            const std::byte* payload, size_t bytes) {
  const size_t total = header.envelope.bytes;
  if (header.position > total || bytes > total - header.position)
    return log::warn("{}: rank {} sent a segment beyond the end of its put", rails_.describe(), from);
  if (put.in_segments && put.envelope.bytes != total)
    return log::warn("{}: rank {} sent segments of one put with different lengths of it", rails_.describe(),
                     from);
  put.envelope = header.envelope;
  put.in_segments = true;
  auto* const place = static_cast<std::byte*>(sink.place(from, header.envelope));
  const Status copied = place ? messages_.copy(from, place + header.position, payload, bytes) : Status();
  if (!copied.ok()) return peers_.lose(from, copied);
  put.segment_bytes += bytes;
  if (put.segment_bytes == total) arrived_whole(sink, from, put);
}

void Incoming::arrived_whole(Sink& sink, int from, IncomingPut& put) {
  if (!put.withdrawn && peers_[from].lost.ok()) sink.arrived(from, put.envelope, nullptr);
  finished(from, put);
}

/// Each whole put lets the sender start another one. Acknowledgements say so, one for several puts.
void Incoming::finished(int from, IncomingPut& put) {
  peers_[from].incoming.finish(put);
  acknowledge_later(from);
}

bool Incoming::owes_puts(const Peer& peer) const {
  return peer.incoming.first() - peer.acknowledged >= puts_per_acknowledgement();
}

bool Incoming::owes_messages(const Peer& peer) const {
  return credit_ > 0 && peer.messages_here - peer.acknowledged_messages >= credit_ / 2;
}

// The other end's owes_messages() and owes_puts().
bool Incoming::awaits_acknowledgement() const {
  return std::ranges::any_of(peers_.all(), [this](const Peer& peer) {
    const uint64_t on_their_way = peer.messages_sent - peer.messages_taken;
    const bool of_messages = on_their_way > 0 && on_their_way >= peer.message_credit / 2;
    const bool of_puts = peer.puts_started - peer.puts_received >= puts_per_acknowledgement();
    return peer.lost.ok() && (of_messages || of_puts);
  });
}

void Incoming::acknowledge_later(int rank) {
  Peer& peer = peers_[rank];
  if (peer.acknowledgement_due || !(owes_puts(peer) || owes_messages(peer))) return;
  peer.acknowledgement_due = true;
  due_.push_back(rank);
}

void Incoming::acknowledge_due(Sink& sink) {
  std::erase_if(due_, [&](int rank) {
    Peer& peer = peers_[rank];
    if (!peer.lost.ok()) return true;
    const bool takes_more = sink.takes_early(rank);
    if (!takes_more && !owes_puts(peer)) return false;
    Header header;
    header.kind = MessageKind::received;
    header.sequence = peer.incoming.first();
    header.position = takes_more ? peer.messages_here : peer.acknowledged_messages;
    Result<Progress> outcome = messages_.post_now(rank, header, nullptr, 0);
    if (outcome && *outcome == Progress::busy) return false;
    if (!outcome) log::info("{}", outcome.status().message());
    peer.acknowledged = header.sequence;
    peer.acknowledged_messages = header.position;
    peer.acknowledgement_due = owes_messages(peer);
    return !peer.acknowledgement_due;
  });
}

}  // namespace weft::transport::ofi
