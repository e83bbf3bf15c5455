#include "transport/shm.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/memory_watch.h"
#include "device/reduce.h"
#include "transport/eager.h"
#include "transport/helped.h"
#include "transport/lost_memory.h"

namespace weft::transport {

using shm::ControlSegment;
using shm::Payload;

namespace {

/// The `kind` of an envelope for a peer's transport.
enum class Aside : uint8_t {
  piece,  // of a put: `offset` is the receiver's address for the payload, `op` and `comm` its exposure
  help,   // the payload is a HelpRequest
};

Status not_a_peer(int own, int rank) {
  return fail(Code::invalid_argument,
              "rank {} has no shared memory with rank {}: must be another rank of its node", own, rank);
}

uint64_t exposure_of(const RemoteBuffer& buffer) { return buffer.keys.as<shm::Keys>().exposure; }

}  // namespace

Result<std::unique_ptr<ShmTransport>> ShmTransport::create(int rank, int ranks,
                                                           std::span<const int> local_ranks,
                                                           const Options& options) {
  if (std::find(local_ranks.begin(), local_ranks.end(), rank) == local_ranks.end()) {
    return fail(Code::invalid_argument, "rank {} is not among the {} ranks of its own node", rank,
                local_ranks.size());
  }
  for (const int local : local_ranks) {
    if (local < 0 || local >= ranks) {
      return fail(Code::invalid_argument, "a node has rank {}, must be in [0, {})", local, ranks);
    }
  }
  const size_t eager_bytes = shm_eager_bytes(options.eager_bytes);
  if (eager_bytes > kLargestEagerBytes) {
    return fail(Code::invalid_argument, "eager messages of {} bytes inside a node, must be at most {}",
                eager_bytes, kLargestEagerBytes);
  }
  const auto ring_bytes = static_cast<uint32_t>(shm::ring_bytes_for(eager_bytes));
  auto own = ControlSegment::create(static_cast<int>(local_ranks.size()), ring_bytes);
  if (!own) return own.status();
  // Yama forbids cross memory attach between siblings unless the target agrees. Agreeing gives processes of
  // this user no more rights than they have without Yama.
  if (options.cma) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  std::unique_ptr<ShmTransport> transport(
      new ShmTransport(rank, ranks, local_ranks, eager_bytes, own.take()));
  transport->cma_ = options.cma;
  return transport;
}

ShmTransport::ShmTransport(int rank, int ranks, std::span<const int> local_ranks, size_t eager_bytes,
                           std::shared_ptr<ControlSegment> own)
    : rank_(rank),
      eager_bytes_(eager_bytes),
      short_bytes_(std::min(eager_bytes, shm::kInlineBytes)),
      own_(std::move(own)),
      by_rank_(static_cast<size_t>(ranks), nullptr) {
  const auto own_local =
      static_cast<int>(std::find(local_ranks.begin(), local_ranks.end(), rank) - local_ranks.begin());
  for (const int local : local_ranks) {
    const int position = static_cast<int>(peers_.size());
    if (local == rank) {
      peers_.push_back(nullptr);
      continue;
    }
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->rank = local;
    peers_.back()->local = position;
    peers_.back()->own_local = own_local;
    by_rank_[static_cast<size_t>(local)] = peers_.back().get();
  }
  inboxes_.reserve(peers_.size());
}

ShmTransport::Reach ShmTransport::probe(int peer, const ShmAddress& address) const {
  if (Status reached = ControlSegment::probe(address); !reached)
    return {reached.in(fmt::format("rank {} cannot share memory with rank {}", rank_, peer)), false};
  return {Status(), shm::PeerMemory(peer, address, cma_).single_copy()};
}

Status ShmTransport::connect(std::span<const ShmAddress> by_rank) {
  if (by_rank.size() != by_rank_.size()) {
    return fail(Code::invalid_argument, "{} addresses for {} ranks", by_rank.size(), by_rank_.size());
  }
  reads_peers_ = cma_;
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->address = by_rank[static_cast<size_t>(peer->rank)];
    WEFT_TRY(probe(peer->rank, peer->address).shares);
    const ShmAddress own = address();
    if (peer->address.ring_bytes != own.ring_bytes || peer->address.locals != own.locals) {
      return fail(Code::mismatch,
                  "rank {} has {} ranks on its node and byte rings of {} bytes, rank {} has {} and {}: eager "
                  "limit and "
                  "layout must be the same on all ranks of a node",
                  rank_, own.locals, own.ring_bytes, peer->rank, peer->address.locals,
                  peer->address.ring_bytes);
    }
    peer->memory = shm::PeerMemory(peer->rank, peer->address, cma_);
    if (cma_ && !peer->memory.single_copy() && reads_peers_) {
      log::info(
          "the kernel forbids reading the memory of rank {}: plain memory travels through the FIFO in two "
          "copies",
          peer->rank);
    }
    reads_peers_ = reads_peers_ && peer->memory.single_copy();
  }
  return {};
}

Status ShmTransport::Peer::map_segment() {
  if (segment != nullptr) return {};
  auto opened = ControlSegment::open(address);
  if (!opened) return opened.status().in(fmt::format("rank {}", rank));
  segment = opened.take();
  return {};
}

Status ShmTransport::Peer::open_fifo() {
  WEFT_TRY(map_segment());
  fifo = shm::FifoSender(segment->fifo(own_local));
  segment->announce(own_local);
  return {};
}

Result<Progress> ShmTransport::send(int rank, const Envelope& envelope, const void* payload) {
  Peer* const found = find(rank);
  if (found == nullptr) [[unlikely]]
    return not_a_peer(rank_, rank);
  Peer& peer = *found;
  if (!peer.fifo.open()) [[unlikely]]
    WEFT_TRY(peer.open_fifo());
  if (send_short(rank, envelope, payload)) return Progress::accepted;
  if (envelope.bytes > eager_bytes_) [[unlikely]] {
    return fail(Code::invalid_argument, "a message of {} bytes to rank {}, must be at most {}",
                envelope.bytes, rank, eager_bytes_);
  }
  if (!peer.fifo.send(envelope, payload)) return Progress::busy;
  ++counters_.messages_sent;
  return peer.accepted(envelope.bytes, counters_);
}

Result<Progress> ShmTransport::put(int rank, const Envelope& envelope, const void* source, size_t bytes,
                                   const RemoteBuffer& target, uint64_t offset, Completion* done) {
  Peer* const found = find(rank);
  if (found == nullptr) [[unlikely]]
    return not_a_peer(rank_, rank);
  Peer& peer = *found;
  if (!peer.fifo.open()) WEFT_TRY(peer.open_fifo());
  if (offset > target.bytes || bytes > target.bytes - offset) {
    return fail(Code::invalid_argument, "a put of {} bytes at {} into {} bytes of rank {}", bytes, offset,
                target.bytes, rank);
  }
  if (!peer.fifo.slot_free()) return Progress::busy;
  // A window that cannot be mapped has most likely been freed, and its address may belong to other memory by
  // now. So the bytes go through the owner, which knows.
  if (void* mapped = peer.memory.find(target)) {
    if (bytes > 0) std::memcpy(static_cast<std::byte*>(mapped) + offset, source, bytes);
    if (MemoryWatch::lost(source, bytes)) [[unlikely]]
      return memory_is_gone(rank);
  } else if (peer.memory.single_copy() && !shm::is_window(target)) {
    WEFT_TRY(peer.memory.write(target, offset, source, bytes));
  } else {
    return start_relay(peer, envelope, source, bytes, target, offset, done);
  }
  (void)peer.fifo.notify(envelope);
  done->done = true;
  ++counters_.puts;
  return peer.accepted(bytes, counters_);
}

Result<Progress> ShmTransport::start_relay(Peer& peer, const Envelope& envelope, const void* source,
                                           size_t bytes, const RemoteBuffer& target, uint64_t offset,
                                           Completion* done) {
  if (peer.relay) return Progress::busy;
  peer.relay = Relay{
      envelope, static_cast<const std::byte*>(source), bytes, target.address + offset, exposure_of(target),
      done};
  ++relays_;
  ++counters_.puts;
  counters_.payload_bytes_sent += bytes;
  if (peer.continue_relay(eager_bytes_); !peer.relay) --relays_;
  return Progress::accepted;
}

int ShmTransport::Peer::continue_relay(size_t piece_bytes) {
  Relay& put = *relay;
  int pieces = 0;
  while (put.bytes > 0) {
    const size_t piece = std::min(put.bytes, piece_bytes);
    Envelope envelope;
    envelope.kind = static_cast<uint8_t>(Aside::piece);
    envelope.offset = put.target;
    envelope.comm = static_cast<uint32_t>(put.exposure);
    envelope.op = static_cast<uint32_t>(put.exposure >> 32);
    envelope.bytes = static_cast<uint32_t>(piece);
    if (!fifo.tell(envelope, put.source)) break;
    put.source += piece;
    put.target += piece;
    put.bytes -= piece;
    ++pieces;
  }
  if (put.bytes == 0 && fifo.notify(put.envelope)) {
    put.done->done = true;
    relay.reset();
    ++pieces;
  }
  if (pieces > 0) segment->wake();
  return pieces;
}

void ShmTransport::forget(const Completion* first, const Completion* last) {
  if (relays_ == 0) return;
  for (const auto& peer : peers_) {
    if (peer == nullptr || !peer->relay) continue;
    if (std::less_equal<>()(first, peer->relay->done) && std::less<>()(peer->relay->done, last)) {
      peer->relay.reset();
      --relays_;
    }
  }
}

MappedBuffer ShmTransport::map(int rank, const RemoteBuffer& target) {
  Peer* const peer = find(rank);
  return peer == nullptr ? MappedBuffer() : peer->memory.map(target);
}

bool ShmTransport::same_process(int rank) const {
  const Peer* const peer = find(rank);
  return peer != nullptr && ControlSegment::in_this_process(peer->address);
}

Status ShmTransport::read(int rank, const RemoteBuffer& target, uint64_t offset, void* into, size_t bytes) {
  Peer* const found = find(rank);
  if (found == nullptr) [[unlikely]]
    return not_a_peer(rank_, rank);
  Peer& peer = *found;
  if (offset > target.bytes || bytes > target.bytes - offset) {
    return fail(Code::invalid_argument, "a read of {} bytes at {} from {} bytes of rank {}", bytes, offset,
                target.bytes, rank);
  }
  if (const void* mapped = peer.memory.find(target)) {
    device::copy(into, static_cast<const std::byte*>(mapped) + offset, bytes);
  } else if (peer.memory.single_copy()) {
    WEFT_TRY(peer.memory.read(target, offset, into, bytes));
  } else if (shm::is_window(target)) {
    return peer.memory.why_unmapped(target);
  } else {
    return fail(Code::unsupported, "the memory of rank {} cannot be read: single-copy calls are {}", rank,
                cma_ ? "forbidden by the kernel" : "switched off");
  }
  counters_.bytes_read += bytes;
  return {};
}

Result<RemoteBuffer> ShmTransport::expose(void* address, size_t bytes) {
  return shm::describe_memory(address, bytes, helper_.expose(address, bytes), own_->revocations().count());
}

void ShmTransport::unexpose(const RemoteBuffer& buffer) { helper_.unexpose(exposure_of(buffer)); }

void ShmTransport::revoke(const RemoteBuffer& buffer) { own_->revocations().add(exposure_of(buffer)); }

bool ShmTransport::revoked(int rank, const RemoteBuffer& target) {
  Peer* const peer = find(rank);
  if (peer == nullptr || !peer->map_segment().ok()) return true;
  const auto keys = target.keys.as<shm::Keys>();
  return peer->segment->revocations().contain(keys.exposure, keys.revocations);
}

std::unique_ptr<Reading> ShmTransport::begin_reading(int rank, const RemoteBuffer& target, uint64_t offset,
                                                     uint64_t bytes) {
  Peer* const peer = find(rank);
  if (peer == nullptr || !is_helped(bytes, false) || offset > target.bytes || bytes > target.bytes - offset)
    return nullptr;
  if (shm::is_window(target) || ControlSegment::in_this_process(peer->address)) return nullptr;
  if (!peer->fifo.open() && !peer->open_fifo().ok()) return nullptr;
  const shm::HelpRings::Lent lent = peer->rings.take();
  if (lent.ring == nullptr) return nullptr;
  const uint64_t ahead = help_ahead_bytes(peers_.size() - 1) / shm::kChunkBytes;
  auto reading = std::make_unique<shm::HelpedReading>(
      shm::HelpedReading::Range{peer->memory, target, offset, bytes, ahead}, peer->rings, lent,
      *peer->segment, counters_);
  const shm::HelpRequest request{.ring = shm::describe_memory(lent.ring, sizeof(shm::HelpRing)),
                                 .exposure = exposure_of(target),
                                 .address = target.address + offset,
                                 .bytes = bytes,
                                 .number = lent.number,
                                 .ahead = static_cast<uint32_t>(ahead)};
  Envelope envelope;
  envelope.kind = static_cast<uint8_t>(Aside::help);
  envelope.bytes = sizeof request;
  if (!peer->fifo.tell(envelope, &request)) return nullptr;
  peer->segment->wake();
  return reading;
}

Result<int> ShmTransport::poll(Sink& sink) {
  if (own_->announced() != announced_) [[unlikely]]
    open_inboxes();
  const auto deliver = [&sink](int rank, const Envelope& envelope, const std::byte* payload) {
    sink.arrived(rank, envelope, payload);
  };
  int events = 0;
  for (Inbox& inbox : inboxes_) {
    // A message that a peer has sent ahead, for its next operation, is cheapest where it is.
    const auto expected = [&](const Envelope& envelope) { return sink.expects(inbox.peer->rank, envelope); };
    const auto taken = [&](const Envelope& envelope) {
      return sink.takes_early(inbox.peer->rank) || expected(envelope);
    };
    events += inbox.note(inbox.fifo.receive(receiver(inbox, deliver), taken, expected));
  }
  return has_aside() ? events + do_aside() : events;
}

int ShmTransport::do_aside() {
  int events = 0;
  if (relays_ > 0) {
    for (const auto& peer : peers_) {
      if (peer == nullptr || !peer->relay) continue;
      events += peer->continue_relay(eager_bytes_);
      if (!peer->relay) --relays_;
    }
  }
  if (!helper_.idle()) events += helper_.work();
  return events;
}

void ShmTransport::told(Peer& peer, const Envelope& envelope, const std::byte* payload) {
  if (static_cast<Aside>(envelope.kind) == Aside::piece) {
    const uint64_t exposure = uint64_t{envelope.op} << 32 | envelope.comm;
    if (helper_.is_exposed(exposure, envelope.offset, envelope.bytes))
      std::memcpy(reinterpret_cast<void*>(envelope.offset), payload, envelope.bytes);
    return;
  }
  shm::HelpRequest request;
  if (envelope.bytes != sizeof request) return;
  std::memcpy(&request, payload, sizeof request);
  helper_.accept(peer.memory, request);
}

void ShmTransport::open_inboxes() {
  announced_ = own_->announced();
  for (const auto& peer : peers_) {
    if (peer == nullptr || !own_->has_announced(peer->local)) continue;
    const bool known =
        std::any_of(inboxes_.begin(), inboxes_.end(), [&](const Inbox& i) { return i.peer == peer.get(); });
    if (!known) inboxes_.push_back({shm::FifoReceiver(own_->fifo(peer->local)), peer.get()});
  }
}

bool ShmTransport::prepare_sleep() {
  own_->lie_down();
  const bool anything_to_do =
      own_->announced() != announced_ || helper_.has_work() ||
      std::ranges::any_of(inboxes_, [](const Inbox& inbox) { return inbox.fifo.ready(); }) ||
      std::ranges::any_of(peers_,
                          [](const auto& peer) { return peer != nullptr && peer->fifo.room_again(); });
  if (anything_to_do) own_->get_up();
  return !anything_to_do;
}

Status ShmTransport::watch(int epoll_fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = own_->doorbell()}};
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, own_->doorbell(), &event) != 0) {
    return fail_errno(errno, "watching the doorbell of shared memory");
  }
  return {};
}

}  // namespace weft::transport
