// The libfabric transport's sending half: messages through bounce buffers, puts as stripes or segments, and
// their completion.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/checked_copy.h"
#include "base/log.h"
#include "base/memory_watch.h"
#include "transport/lost_memory.h"
#include "transport/ofi.h"

namespace weft::transport {

using namespace ofi;

namespace {

constexpr size_t kStripeBytes = 1 << 20;       // of one write, unless the user says otherwise
constexpr size_t kShortestStripe = 128 << 10;  // below, a second rail costs more than it brings
constexpr size_t kStripeAlignment = 128;       // NICs write so many bytes in one piece
constexpr size_t kMostUnpostedPuts = 64;       // accepted, with bytes still to be handed to libfabric

struct DroppingSink final : Sink {
  void* place(int, const Envelope&) override { return nullptr; }
  void arrived(int, const Envelope&, const void*) override {}
  void lost(int, const Status&) override {}
};

}  // namespace

Result<fi_addr_t> OfiTransport::route(int peer, size_t rail) {
  Peer& to = peers_[static_cast<size_t>(peer)];
  if (to.routes[rail] == FI_ADDR_UNSPEC) {
    Result<fi_addr_t> inserted = rails_[rail]->insert(to.names[rail]);
    if (!inserted) return inserted;
    to.routes[rail] = *inserted;
  }
  return to.routes[rail];
}

void OfiTransport::lose(int peer, const Status& why) {
  Peer& who = peers_[static_cast<size_t>(peer)];
  if (!who.lost.ok()) return;
  const Code code =
      why.code() == Code::invalid_usage ? why.code() : Code::remote_error;  // this process's own
  who.lost = fail(code, "the connection to rank {} is lost: {}", peer, why.message());
  losses_.push_back(peer);
}

// Messages.

Result<Progress> OfiTransport::send(int peer, const Envelope& envelope, const void* payload) {
  WEFT_TRY(check_peer(peer));
  if (envelope.bytes > eager_bytes())
    return fail(Code::invalid_argument, "a message has {} bytes, at most {} fit", envelope.bytes,
                eager_bytes());
  Peer& to = peers_[static_cast<size_t>(peer)];
  if (to.messages_sent - to.messages_taken > to.message_credit) {
    refused_ = true;
    return Progress::busy;
  }
  Header header;
  header.envelope = envelope;
  Result<Progress> outcome = post_message(peer, header, payload, envelope.bytes);
  if (outcome && *outcome == Progress::accepted) {
    to.messages_sent += message_cost(envelope.bytes);
    ++counters_.messages_sent;
    counters_.payload_bytes_sent += envelope.bytes;
  }
  return outcome;
}

Result<Progress> OfiTransport::post_short(MessageKind kind, int peer, size_t rail) {
  Header header;
  header.kind = kind;
  header.count = static_cast<uint32_t>(rail);
  return post_over(rail, peer, header, nullptr, 0);
}

/// Greets a peer over the rails on which it has not answered.
Status OfiTransport::meet(int peer) {
  Peer& to = peers_[static_cast<size_t>(peer)];
  const int64_t now = now_ns();
  for (size_t rail = 0; rail < to.routes.size(); ++rail) {
    if ((to.met >> rail & 1) != 0 || !to.greetings[rail].due(now)) continue;
    Result<Progress> outcome = post_short(MessageKind::greeting, peer, rail);
    if (!outcome) return outcome.status();
    if (*outcome == Progress::accepted) to.greetings[rail].sent(now);
  }
  return {};
}

/// Posts a message. If there is no room, looks once whether completions make some. A hard error loses the
/// peer.
Result<Progress> OfiTransport::post_message(int peer, const Header& header, const void* payload,
                                            size_t bytes) {
  const auto post = [&]() -> Result<Progress> {
    if (peers_[static_cast<size_t>(peer)].met_on_all()) [[likely]]
      return post_message_now(peer, header, payload, bytes);
    WEFT_TRY(meet(peer));
    return Progress::busy;
  };
  Result<Progress> outcome = post();
  if (outcome && *outcome == Progress::busy) {
    Result<int> reaped = reap();
    if (!reaped) return reaped.status();
    if (*reaped > 0) outcome = post();
  }
  if (!outcome) {
    lose(peer, outcome.status());
    return peers_[static_cast<size_t>(peer)].lost;
  }
  if (*outcome == Progress::busy) refused_ = true;
  return outcome;
}

/// Copies between a network buffer and memory of the program.
Status OfiTransport::copy(int peer, void* to, const void* from, size_t bytes) const {
  if (options_.careful && bytes > kUncheckedBytes)
    return copy_checked(to, from, bytes) ? Status() : memory_is_gone(peer);
  if (bytes > 0) std::memcpy(to, from, bytes);
  return options_.careful && MemoryWatch::lost(to, bytes) ? memory_is_gone(peer) : Status();
}

Result<Progress> OfiTransport::post_message_now(int peer, const Header& header, const void* payload,
                                                size_t bytes) {
  const size_t rails = peers_[static_cast<size_t>(peer)].routes.size();
  for (size_t turn = 0; turn < rails; ++turn) {
    Result<Progress> outcome = post_over(next_messages_rail_++ % rails, peer, header, payload, bytes);
    if (!outcome || *outcome == Progress::accepted) return outcome;
  }
  return Progress::busy;
}

Result<Progress> OfiTransport::post_over(size_t index, int peer, Header header, const void* payload,
                                         size_t bytes) {
  header.token = peers_[static_cast<size_t>(peer)].token;
  header.sender = peers_[static_cast<size_t>(peer)].known_as;
  Result<fi_addr_t> to = route(peer, index);
  if (!to) return to.status();
  Rail& rail = *rails_[index];
  Operation* send = rail.take_send();
  if (!send) return Progress::busy;
  std::memcpy(send->buffer, &header, sizeof(header));
  if (Status copied = copy(peer, send->buffer + sizeof(header), payload, bytes); !copied.ok()) {
    rail.give_back(send);
    return copied;
  }
  if (MemoryWatch::lost(payload, bytes)) [[unlikely]]
    return rail.give_back(send), Progress::busy;
  send->number = last_message_ + 1;
  send->may_fail = may_be_lost(header);
  Result<Progress> outcome = rail.post_send(send, peer, *to, sizeof(header) + bytes);
  if (outcome && *outcome == Progress::accepted) ++last_message_, messages_out_.push_back(false);
  return outcome;
}

// Puts.

/// Stripes are as long as allowed on one rail; over several, short enough for all to share the work.
size_t OfiTransport::stripe_bytes(size_t bytes, size_t rails) const {
  size_t longest = options_.stripe_bytes ? options_.stripe_bytes : kStripeBytes;
  for (size_t rail = 0; rail < rails; ++rail) longest = std::min(longest, rails_[rail]->longest_write());
  size_t stripe = longest;
  if (rails > 1) stripe = std::min(longest, std::max(kShortestStripe, (bytes + rails - 1) / rails));
  if (stripe > kStripeAlignment)
    stripe = (stripe + kStripeAlignment - 1) / kStripeAlignment * kStripeAlignment;
  return stripe > longest ? stripe - kStripeAlignment : stripe;
}

Result<Progress> OfiTransport::put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                                   const RemoteBuffer& target, uint64_t offset, Completion* done) {
  return start_put(peer, envelope, source, false, bytes, target, offset, done);
}

Result<Progress> OfiTransport::start_put(int peer, const Envelope& envelope, const void* source, bool of_gpu,
                                         size_t bytes, const RemoteBuffer& target, uint64_t offset,
                                         Completion* done) {
  WEFT_TRY(check_peer(peer));
  if (envelope.bytes != envelope_bytes(bytes))
    return fail(Code::invalid_argument, "a put has {} bytes, but its envelope says {}", bytes,
                envelope.bytes);
  if (offset > target.bytes || bytes > target.bytes - offset)
    return fail(Code::invalid_argument,
                "a put of {} bytes at offset {} does not fit into the {} bytes that rank {} exposed", bytes,
                offset, target.bytes, peer);
  const bool writes = bytes == 0 || reachable_by_writes(target);
  if (!writes && bytes > UINT32_MAX)
    return fail(Code::unsupported,
                "a put of {} bytes to rank {}, whose memory {} cannot write itself: at most {} go in "
                "messages; set WEFT_SLICE_BYTES, or call with fewer elements",
                bytes, peer, describe(), UINT32_MAX);
  Peer& to = peers_[static_cast<size_t>(peer)];
  if (to.puts_started - to.puts_received >= immediate_.window() || unposted_.size() >= kMostUnpostedPuts) {
    refused_ = true;
    return Progress::busy;
  }

  if (spare_.empty()) spare_.emplace_back();
  OutgoingPut& put = spare_.front();
  put = OutgoingPut{};
  put.self = spare_.begin();
  put.peer = peer;
  put.envelope = envelope;
  put.sequence = to.puts_started;
  put.source = static_cast<const std::byte*>(source);
  put.of_gpu = of_gpu;
  put.bytes = bytes;
  put.done = done;
  if (writes) {
    Result<Progress> announced = announce(put, target, offset);
    if (!announced || *announced == Progress::busy) return announced;
  } else {
    put.way = OutgoingPut::Way::messages;
    put.piece_bytes = eager_bytes();
  }
  ++to.puts_started;
  put.first_rail = next_puts_rail_++;
  unposted_.splice(unposted_.end(), spare_, put.self);
  const Status registered = register_source(put);
  if (registered.ok()) {
    ++counters_.puts;
    counters_.payload_bytes_sent += bytes;
  } else {
    put.done = nullptr;
    put.withdrawn = true;
  }
  advance(put);
  if (!registered.ok()) return registered;
  return Progress::accepted;
}

/// Called only when the put is announced: a caller may try a put that finds no room many times.
Status OfiTransport::register_source(OutgoingPut& put) {
  const bool needed = put.of_gpu || options_.register_sources || rails_.front()->needs_local_registration();
  if (!needed || put.way == OutgoingPut::Way::messages || put.bytes == 0) return {};
  Result<Registration*> registration = put.of_gpu ? gpu_registrations_->acquire(put.source, put.bytes)
                                                  : registrations_->acquire(put.source, put.bytes);
  if (!registration) return registration.status();
  RegistrationOwner& owner =
      put.of_gpu ? static_cast<RegistrationOwner&>(*gpu_registrations_) : *registrations_;
  put.registration = RegistrationHold(owner, *registration);
  return {};
}

/// Prepares the stripes and tells the peer how many there will be.
Result<Progress> OfiTransport::announce(OutgoingPut& put, const RemoteBuffer& target, uint64_t offset) {
  const size_t rails = peers_[static_cast<size_t>(put.peer)].routes.size();
  put.address = write_address(target, offset);
  put.keys = target.keys.as<Keys>().rails;
  put.piece_bytes = stripe_bytes(put.bytes, rails);
  Header header;
  header.kind = MessageKind::put;
  header.envelope = put.envelope;
  header.sequence = put.sequence;
  header.count = static_cast<uint32_t>((put.bytes + put.piece_bytes - 1) / put.piece_bytes);
  return post_message(put.peer, header, nullptr, 0);
}

/// Posts on the rail whose turn it is, or on another if that has no room, as while it is still connecting.
Result<Progress> OfiTransport::post_stripe(OutgoingPut& put) {
  const size_t rails = peers_[static_cast<size_t>(put.peer)].routes.size();
  const size_t bytes = std::min(put.piece_bytes, put.bytes - put.posted_bytes);
  for (size_t turn = 0; turn < rails; ++turn) {
    const size_t rail = (put.first_rail + put.posted + turn) % rails;
    Result<fi_addr_t> to = route(put.peer, rail);
    if (!to) return to.status();
    Result<Progress> outcome = rails_[rail]->post_write(
        {.put = &put,
         .peer = put.peer,
         .to = *to,
         .source = put.source + put.posted_bytes,
         .bytes = bytes,
         .descriptor = put.registration.descriptor(rail),
         .address = put.address + put.posted_bytes,
         .key = put.keys[rail],
         .immediate = immediate_.encode(peers_[static_cast<size_t>(put.peer)].known_as, put.sequence)});
    if (outcome && *outcome == Progress::busy) continue;
    if (outcome) ++put.in_flight, ++put.posted, put.posted_bytes += bytes;
    return outcome;
  }
  return Progress::busy;
}

Result<Progress> OfiTransport::post_segment(OutgoingPut& put) {
  const size_t bytes = std::min(put.piece_bytes, put.bytes - put.posted_bytes);
  Header header;
  header.kind = MessageKind::segment;
  header.envelope = put.envelope;
  header.sequence = put.sequence;
  header.position = put.posted_bytes;
  Result<Progress> outcome = post_message(put.peer, header, put.source + put.posted_bytes, bytes);
  if (outcome && *outcome == Progress::accepted) ++put.posted, put.posted_bytes += bytes;
  return outcome;
}

Result<Progress> OfiTransport::post_withdrawal(OutgoingPut& put) {
  Header header;
  header.kind = MessageKind::withdrawn;
  header.sequence = put.sequence;
  header.count = put.way == OutgoingPut::Way::writes ? put.posted : 0;
  Result<Progress> outcome = post_message(put.peer, header, nullptr, 0);
  if (outcome && *outcome == Progress::accepted) put.posted_bytes = put.bytes;
  return outcome;
}

/// Hands over as much of a put as there is room for.
void OfiTransport::advance(OutgoingPut& put) {
  const bool writes = put.way == OutgoingPut::Way::writes;
  while (!put.all_posted()) {
    if (!peers_[static_cast<size_t>(put.peer)].lost.ok()) {
      put.done = nullptr;  // it will never have happened
      put.posted_bytes = put.bytes;
      break;
    }
    Result<Progress> outcome = put.withdrawn ? post_withdrawal(put)
                               : writes      ? post_stripe(put)
                                             : post_segment(put);
    if (!outcome) lose(put.peer, outcome.status());
    else if (*outcome == Progress::busy) return;
  }
  posted_.splice(posted_.end(), unposted_, put.self);
  if (put.in_flight == 0) finish(put);
}

void OfiTransport::advance_all() {
  for (auto it = unposted_.begin(); it != unposted_.end();) advance(*it++);
}

void OfiTransport::finish(OutgoingPut& put) {
  if (put.done && peers_[static_cast<size_t>(put.peer)].lost.ok()) put.done->done = true;
  put.registration.reset();
  spare_.splice(spare_.begin(), posted_, put.self);
}

void OfiTransport::stripe_over(OutgoingPut& put) {
  if (--put.in_flight == 0 && put.all_posted()) finish(put);
}

// Bytes that libfabric does not have yet stay here, since the source may be freed. A message tells the peer
// not to wait for them.
void OfiTransport::forget(const Completion* first, const Completion* last) {
  const std::less<const Completion*> before;
  auto named = [&](const OutgoingPut& put) {
    return put.done && !before(put.done, first) && before(put.done, last);
  };
  for (OutgoingPut& put : posted_)
    if (named(put)) put.done = nullptr;
  for (OutgoingPut& put : unposted_)
    if (named(put)) put.done = nullptr, put.withdrawn = true;
}

template <typename Test>
bool OfiTransport::any_outgoing(Test test) const {
  return std::ranges::any_of(posted_, test) || std::ranges::any_of(unposted_, test);
}

bool OfiTransport::reads_forgotten() const {
  return any_outgoing([](const OutgoingPut& put) { return put.done == nullptr && put.in_flight > 0; });
}

bool OfiTransport::reads_forgotten(int peer) const {
  return any_outgoing(
      [&](const OutgoingPut& put) { return put.peer == peer && put.done == nullptr && put.in_flight > 0; });
}

bool OfiTransport::carries(const Completion& done) const {
  return any_outgoing([&](const OutgoingPut& put) { return put.done == &done; });
}

// Acknowledgements.

bool OfiTransport::owes_puts(const Peer& peer) const {
  return peer.incoming.first() - peer.acknowledged >= std::max<uint64_t>(1, immediate_.window() / 4);
}

bool OfiTransport::owes_messages(const Peer& peer) const {
  const uint64_t credit = options_.message_credit;
  return credit > 0 && peer.messages_here - peer.acknowledged_messages >= credit / 2;
}

/// Whether a peer is going to acknowledge messages: the other end's owes_messages().
bool OfiTransport::awaits_acknowledgement() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) {
    const uint64_t on_their_way = peer.messages_sent - peer.messages_taken;
    return peer.lost.ok() && on_their_way > 0 && on_their_way >= peer.message_credit / 2;
  });
}

void OfiTransport::acknowledge_later(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.acknowledgement_due || !(owes_puts(peer) || owes_messages(peer))) return;
  peer.acknowledgement_due = true;
  acknowledgements_.push_back(rank);
}

void OfiTransport::acknowledge_due(Sink& sink) {
  std::erase_if(acknowledgements_, [&](int rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (!peer.lost.ok()) return true;
    const bool takes_more = sink.takes_early(rank);
    if (!takes_more && !owes_puts(peer)) return false;
    Header header;
    header.kind = MessageKind::received;
    header.sequence = peer.incoming.first();
    header.position = takes_more ? peer.messages_here : peer.acknowledged_messages;
    Result<Progress> outcome = post_message_now(rank, header, nullptr, 0);
    if (outcome && *outcome == Progress::busy) return false;
    if (!outcome) log::info("{}", outcome.status().message());
    peer.acknowledged = header.sequence;
    peer.acknowledged_messages = header.position;
    peer.acknowledgement_due = owes_messages(peer);
    return !peer.acknowledgement_due;
  });
}

void OfiTransport::message_left(uint64_t number) {
  messages_out_[number - (last_message_ - messages_out_.size()) - 1] = true;
  while (!messages_out_.empty() && messages_out_.front()) messages_out_.pop_front();
}

bool OfiTransport::flushed(uint64_t ticket) { return ticket <= last_message_ - messages_out_.size(); }

bool OfiTransport::nothing_under_way() const {
  return unposted_.empty() && posted_.empty() && acknowledgements_.empty() &&
         std::ranges::all_of(rails_, [](const auto& rail) { return rail->idle(); });
}

Status OfiTransport::flush(Deadline deadline) {
  DroppingSink sink;
  while (!nothing_under_way() || awaits_acknowledgement()) {
    Result<int> events = poll(sink);
    if (!events) return events.status();
    if (*events > 0) continue;
    if (deadline.passed() && nothing_under_way()) break;
    if (deadline.passed())
      return fail(Code::timeout, "{}: {} puts and some messages have not left in time", describe(),
                  unposted_.size() + posted_.size());
    sched_yield();
  }
  return {};
}

}  // namespace weft::transport
