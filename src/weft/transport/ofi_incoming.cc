// The libfabric transport's receiving half: it reads completion queues, and delivers messages and whole puts.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "transport/ofi.h"

namespace weft::transport {

using namespace ofi;

// Completions take effect at once, deliveries wait for poll(). So send() and put() may reap, and the Sink may
// send.
Result<int> OfiTransport::reap() {
  int reaped = 0;
  for (auto& rail : rails_) {
    events_.clear();
    Result<int> count = rail->reap(events_);
    if (!count) return count;
    reaped += *count;
    for (Event& event : events_) settle(*rail, event);
  }
  return reaped;
}

void OfiTransport::settle(Rail& rail, Event& event) {
  switch (event.kind) {
    case Event::Kind::received:
      inbox_.push_back({.rail = &rail, .message = event.operation, .bytes = event.bytes});
      return;
    case Event::Kind::remotely_written:
      inbox_.push_back({.rail = &rail, .immediate = event.immediate});
      return;
    case Event::Kind::sent: message_left(event.number); return;
    case Event::Kind::wrote: stripe_over(*event.put); return;
    case Event::Kind::cut_off: return cut_off(event);
    case Event::Kind::failed: break;
  }
  // A failed receive names no sender, and a failed greeting is repeated.
  if (event.peer >= 0) lose(event.peer, event.why);
  else log::info("{}", event.why.message());
  if (event.number > 0) message_left(event.number);
  if (event.put) stripe_over(*event.put);
}

/// The provider has given up an incoming write, and its connection with it: no write that had begun goes on.
/// Not every provider reports that: `tcp;ofi_rxm` of 1.17 does not.
void OfiTransport::cut_off(const Event& event) {
  log::info("{}", event.why.message());
  const uint32_t from = immediate_.sender(event.immediate);
  if (from >= peers_.size()) return;
  for (IncomingPut& put : peers_[from].incoming.known()) put.cut_off = true;
}

// An announcement leaves before its stripes, and on a single rail arrives before them. Over several rails a
// stripe may arrive first, so nothing shows that no write has begun.
bool OfiTransport::may_be_writing(int peer, uint32_t comm) const {
  return rails_.size() > 1 || is_writing(peer, comm);
}

bool OfiTransport::is_writing(int peer, uint32_t comm) const {
  return std::ranges::any_of(peers_[static_cast<size_t>(peer)].incoming.known(), [&](const auto& put) {
    const bool others = put.announced && !put.withdrawn && put.envelope.comm != comm;
    return put.under_way() && !others;
  });
}

Result<int> OfiTransport::poll(Sink& sink) {
  Result<int> events = reap();
  if (!events) return events;
  for (size_t left = inbox_.size(); left > 0; --left) {
    const Arrival arrival = inbox_.front();
    inbox_.pop_front();
    WEFT_TRY(deliver(sink, arrival));
  }
  if (!unposted_.empty()) advance_all();
  if (!acknowledgements_.empty()) acknowledge_due(sink);
  for (int peer : std::exchange(losses_, {})) {
    sink.lost(peer, peers_[static_cast<size_t>(peer)].lost);
    ++*events;
  }
  if (*events > 0) nap_ns_ = 0;
  return events;
}

Status OfiTransport::deliver(Sink& sink, const Arrival& arrival) {
  if (!arrival.message) return deliver_stripe(sink, arrival.immediate), Status();
  deliver_message(sink, arrival.message->buffer, arrival.bytes);
  return arrival.rail->post_receive(arrival.message);
}

void OfiTransport::deliver_stripe(Sink& sink, uint32_t immediate) {
  const uint32_t from = immediate_.sender(immediate);
  if (from >= peers_.size())
    return log::warn("{}: a write came from rank {}, which does not exist", describe(), from);
  Peer& peer = peers_[from];
  IncomingPut* put =
      peer.incoming.find(immediate_.sequence(immediate, peer.incoming.first()), immediate_.window());
  if (!put) return log::warn("{}: rank {} wrote a stripe that is not expected", describe(), from);
  ++put->stripes_seen;
  if (put->striped_whole()) arrived_whole(sink, static_cast<int>(from), *put);
}

void OfiTransport::deliver_message(Sink& sink, const std::byte* message, size_t bytes) {
  Header header;
  if (bytes >= sizeof(header)) std::memcpy(&header, message, sizeof(header));
  const size_t payload_bytes = bytes - sizeof(header);
  if (bytes < sizeof(header) || header.token != token_ || header.sender >= peers_.size())
    return log::warn("{}: dropped {} bytes that are no message of this job", describe(), bytes);
  const int from = static_cast<int>(header.sender);
  Peer& peer = peers_[header.sender];
  // The Sink hears nothing more of a lost peer. The transport still counts the writes that the peer may have
  // begun.
  if (!peer.lost.ok() && header.kind != MessageKind::put && header.kind != MessageKind::withdrawn) return;
  if (!greets(header)) peer.met = peer.all_rails();  // it has had our welcome over each
  const std::byte* payload = message + sizeof(header);
  if (header.kind == MessageKind::message) {
    if (payload_bytes < header.envelope.bytes)
      return log::warn("{}: dropped a message of rank {} with {} of {} bytes", describe(), from,
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
    if (auto sent = post_short(MessageKind::welcome, from, header.count); !sent) lose(from, sent.status());
    return;
  }

  IncomingPut* put = peer.incoming.find(header.sequence, immediate_.window());
  if (!put || put->finished) return;  // overtaken by its withdrawal
  switch (header.kind) {
    case MessageKind::put:
      if (put->filing != IncomingPut::Filing::undecided)
        return log::warn("{}: rank {} announced a put that comes in segments", describe(), from);
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
    default: return log::warn("{}: rank {} sent a message of unknown kind", describe(), from);
  }
}

/// Copies a segment to where the Sink wants the put, or keeps it until all have arrived. A Sink that knew a
/// place and knows none any more has given up the operation: the transport drops the bytes.
void OfiTransport::file_segment(Sink& sink, int from, IncomingPut& put, const Header& header,
                                const std::byte* payload, size_t bytes) {
  const size_t total = header.envelope.bytes;
  if (header.position > total || bytes > total - header.position)
    return log::warn("{}: rank {} sent a segment beyond the end of its put", describe(), from);
  put.envelope = header.envelope;
  std::byte* place = nullptr;
  if (put.filing != IncomingPut::Filing::staged)
    place = static_cast<std::byte*>(sink.place(from, header.envelope));
  if (put.filing == IncomingPut::Filing::undecided) {
    put.filing = place ? IncomingPut::Filing::placed : IncomingPut::Filing::staged;
    if (!place) put.staging.resize(total);
  }
  if (put.filing == IncomingPut::Filing::staged && put.staging.size() != total)
    return log::warn("{}: rank {} sent segments of one put with different lengths of it", describe(), from);
  if (put.filing == IncomingPut::Filing::staged) place = put.staging.data();
  const Status copied = place ? copy(from, place + header.position, payload, bytes) : Status();
  if (!copied.ok()) return lose(from, copied);
  put.bytes_filed += bytes;
  if (put.bytes_filed == total) arrived_whole(sink, from, put);
}

void OfiTransport::arrived_whole(Sink& sink, int from, IncomingPut& put) {
  const bool wanted = !put.withdrawn && peers_[static_cast<size_t>(from)].lost.ok();
  if (wanted)
    sink.arrived(from, put.envelope,
                 put.filing == IncomingPut::Filing::staged ? put.staging.data() : nullptr);
  finished(from, put);
}

/// Each whole put lets the sender start another one. Acknowledgements say so, one for several puts.
void OfiTransport::finished(int from, IncomingPut& put) {
  peers_[static_cast<size_t>(from)].incoming.finish(put);
  acknowledge_later(from);
}

}  // namespace weft::transport
