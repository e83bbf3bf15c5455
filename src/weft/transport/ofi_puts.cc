#include "transport/ofi_puts.h"

#include <algorithm>
#include <functional>

namespace weft::transport::ofi {
namespace {

constexpr size_t kMostUnpostedPuts = 64;  // accepted, with bytes still to be handed to libfabric

}  // namespace

Result<Progress> Puts::start(int peer, const Envelope& envelope, const void* source, bool of_gpu,
                             size_t bytes, const RemoteBuffer& target, uint64_t offset, Completion* done) {
  WEFT_TRY(peers_.check(peer));
  if (envelope.bytes != envelope_bytes(bytes))
    return fail(Code::invalid_argument, "a put has {} bytes, but its envelope says {}", bytes,
                envelope.bytes);
  if (offset > target.bytes || bytes > target.bytes - offset)
    return fail(Code::invalid_argument,
                "a put of {} bytes at offset {} does not fit into the {} bytes that rank {} exposed", bytes,
                offset, target.bytes, peer);
  const bool writes = bytes == 0 || rails_.reachable_by_writes(target);
  if (!writes && bytes > UINT32_MAX)
    return fail(Code::unsupported,
                "a put of {} bytes to rank {}, whose memory {} cannot write itself: at most {} go in "
                "messages; set WEFT_SLICE_BYTES, or call with fewer elements",
                bytes, peer, rails_.describe(), UINT32_MAX);
  Peer& to = peers_[peer];
  if (to.puts_started - to.puts_received >= immediate_.window() || unposted_.size() >= kMostUnpostedPuts)
    return messages_.refuse();

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
    put.piece_bytes = message_limit_;
  }
  ++to.puts_started;
  put.first_rail = next_rail_++;
  unposted_.splice(unposted_.end(), spare_, put.self);
  // Only now: a caller may try a put that finds no room many times.
  Result<RegistrationHold> registered =
      writes ? rails_.register_source(put.source, bytes, of_gpu) : RegistrationHold();
  if (registered.ok()) {
    put.registration = registered.take();
  } else {
    put.done = nullptr;
    put.withdrawn = true;
  }
  advance(put);
  if (!registered) return registered.status();
  return Progress::accepted;
}

/// Prepares the stripes and tells the peer how many there will be.
Result<Progress> Puts::announce(OutgoingPut& put, const RemoteBuffer& target, uint64_t offset) {
  const size_t rails = peers_[put.peer].routes.size();
  put.address = Rails::write_address(target, offset);
  put.keys = target.keys.as<Keys>().rails;
  put.piece_bytes = rails_.stripe_bytes(put.bytes, rails);
  Header header;
  header.kind = MessageKind::put;
  header.envelope = put.envelope;
  header.sequence = put.sequence;
  header.count = static_cast<uint32_t>((put.bytes + put.piece_bytes - 1) / put.piece_bytes);
  return messages_.post(put.peer, header, nullptr, 0);
}

/// Posts on the rail whose turn it is, or on another if that has no room, as while it is still connecting.
Result<Progress> Puts::post_stripe(OutgoingPut& put) {
  const size_t rails = peers_[put.peer].routes.size();
  const size_t bytes = std::min(put.piece_bytes, put.bytes - put.posted_bytes);
  for (size_t turn = 0; turn < rails; ++turn) {
    const size_t rail = (put.first_rail + put.posted + turn) % rails;
    Result<fi_addr_t> to = rails_.route(peers_[put.peer], rail);
    if (!to) return to.status();
    Result<Progress> outcome =
        rails_[rail].post_write({.put = &put,
                                 .peer = put.peer,
                                 .to = *to,
                                 .source = put.source + put.posted_bytes,
                                 .bytes = bytes,
                                 .descriptor = put.registration.descriptor(rail),
                                 .address = put.address + put.posted_bytes,
                                 .key = put.keys[rail],
                                 .immediate = immediate_.encode(peers_[put.peer].known_as, put.sequence)});
    if (outcome && *outcome == Progress::busy) continue;
    if (outcome) ++put.in_flight, ++put.posted, put.posted_bytes += bytes;
    return outcome;
  }
  return Progress::busy;
}

Result<Progress> Puts::post_segment(OutgoingPut& put) {
  const size_t bytes = std::min(put.piece_bytes, put.bytes - put.posted_bytes);
  Header header;
  header.kind = MessageKind::segment;
  header.envelope = put.envelope;
  header.sequence = put.sequence;
  header.position = put.posted_bytes;
  Result<Progress> outcome = messages_.post(put.peer, header, put.source + put.posted_bytes, bytes);
  if (outcome && *outcome == Progress::accepted) ++put.posted, put.posted_bytes += bytes;
  return outcome;
}

Result<Progress> Puts::post_withdrawal(OutgoingPut& put) {
  Header header;
  header.kind = MessageKind::withdrawn;
  header.sequence = put.sequence;
  header.count = put.way == OutgoingPut::Way::writes ? put.posted : 0;
  Result<Progress> outcome = messages_.post(put.peer, header, nullptr, 0);
  if (outcome && *outcome == Progress::accepted) put.posted_bytes = put.bytes;
  return outcome;
}

void Puts::advance(OutgoingPut& put) {
  const bool writes = put.way == OutgoingPut::Way::writes;
  while (!put.all_posted()) {
    if (!peers_[put.peer].lost.ok()) {
      put.done = nullptr;  // it will never have happened
      put.posted_bytes = put.bytes;
      break;
    }
    Result<Progress> outcome = put.withdrawn ? post_withdrawal(put)
                               : writes      ? post_stripe(put)
                                             : post_segment(put);
    if (!outcome) peers_.lose(put.peer, outcome.status());
    else if (*outcome == Progress::busy) return;
  }
  posted_.splice(posted_.end(), unposted_, put.self);
  if (put.in_flight == 0) finish(put);
}

void Puts::advance_all() {
  for (auto it = unposted_.begin(); it != unposted_.end();) advance(*it++);
}

void Puts::finish(OutgoingPut& put) {
  if (put.done && peers_[put.peer].lost.ok()) put.done->done = true;
  put.registration.reset();
  spare_.splice(spare_.begin(), posted_, put.self);
}

void Puts::stripe_over(OutgoingPut& put) {
  if (--put.in_flight == 0 && put.all_posted()) finish(put);
}

// Bytes that libfabric does not have yet stay here, since the source may be freed. A message tells the peer
// not to wait for them.
void Puts::forget(const Completion* first, const Completion* last) {
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
bool Puts::any(Test test) const {
  return std::ranges::any_of(posted_, test) || std::ranges::any_of(unposted_, test);
}

bool Puts::reads_forgotten() const {
  return any([](const OutgoingPut& put) { return put.done == nullptr && put.in_flight > 0; });
}

bool Puts::reads_forgotten(int peer) const {
  return any(
      [&](const OutgoingPut& put) { return put.peer == peer && put.done == nullptr && put.in_flight > 0; });
}

bool Puts::carries(const Completion& done) const {
  return any([&](const OutgoingPut& put) { return put.done == &done; });
}

}  // namespace weft::transport::ofi
