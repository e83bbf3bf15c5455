#include "transport/ofi.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string_view>

#include "base/log.h"

namespace weft::transport {

using namespace ofi;

namespace {

constexpr uint32_t kAddressMagic = 0x57656633;  // "Wef3"

/// Appends plain values to an address, and takes them off again.
class AddressWriter {
 public:
  void number(uint32_t value) { bytes(std::as_bytes(std::span(&value, 1))); }
  void field(std::span<const std::byte> value) { number(static_cast<uint32_t>(value.size())), bytes(value); }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  void bytes(std::span<const std::byte> value) { out_.insert(out_.end(), value.begin(), value.end()); }
  std::vector<std::byte> out_;
};

class AddressReader {
 public:
  explicit AddressReader(std::span<const std::byte> in) : in_(in) {}
  bool number(uint32_t& value) {
    if (in_.size() < sizeof(value)) return false;
    std::memcpy(&value, in_.data(), sizeof(value));
    in_ = in_.subspan(sizeof(value));
    return true;
  }
  bool field(std::vector<std::byte>& value) {
    uint32_t size = 0;
    if (!number(size) || in_.size() < size) return false;
    value.assign(in_.begin(), in_.begin() + size);
    in_ = in_.subspan(size);
    return true;
  }

 private:
  std::span<const std::byte> in_;
};

struct DroppingSink final : Sink {
  void* place(int, const Envelope&) override { return nullptr; }
  void arrived(int, const Envelope&, const void*) override {}
  void lost(int, const Status&) override {}
};

}  // namespace

OfiTransport::OfiTransport(int rank, int ranks, const Options& options)
    : rank_(rank),
      ranks_(ranks),
      token_(std::random_device{}()),
      message_credit_(options.message_credit),
      rails_(options),
      peers_(rank, ranks),
      messages_(rails_, peers_, rank, options.careful, [this] { return reap(); }),
      puts_(rails_, peers_, messages_, Immediate(ranks, options.sequence_bits), rank, message_limit_),
      incoming_(rails_, peers_, messages_, Immediate(ranks, options.sequence_bits), token_,
                options.message_credit),
      naps_(rails_) {}

// No endpoint that could touch memory may be left when the registrations go.
OfiTransport::~OfiTransport() { rails_.close_endpoints(); }

Result<std::unique_ptr<OfiTransport>> OfiTransport::create(int rank, int ranks, const Options& options) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return fail(Code::invalid_argument, "rank is {}, must be in [0, {})", rank, ranks);
  if (options.local_ranks < 1 || options.local_rank < 0 || options.local_rank >= options.local_ranks)
    return fail(Code::invalid_argument, "local rank is {}, must be in [0, {})", options.local_rank,
                options.local_ranks);
  std::unique_ptr<OfiTransport> transport(new OfiTransport(rank, ranks, options));
  WEFT_TRY(transport->rails_.open(ranks));
  transport->message_limit_ = transport->rails_.message_limit();
  if (const size_t bytes = transport->address().size(); bytes > kAddressBytes)
    return fail(Code::unsupported, "{} has addresses of {} bytes, Weft takes {}", transport->describe(),
                bytes, kAddressBytes);
  WEFT_TRY(transport->naps_.open());
  return transport;
}

std::vector<std::byte> OfiTransport::address() const {
  AddressWriter out;
  out.number(kAddressMagic);
  out.number(token_);
  out.number(static_cast<uint32_t>(message_limit_));
  out.number(rails_.why_no_gpu().ok());
  out.number(static_cast<uint32_t>(std::min<uint64_t>(message_credit_, UINT32_MAX)));
  out.field(std::as_bytes(std::span(rails_.provider())));
  out.number(static_cast<uint32_t>(rails_.size()));
  for (const auto& rail : rails_.all()) out.field(rail->name());
  std::vector<std::byte> bytes = out.take();
  bytes.resize(std::max(bytes.size(), kAddressBytes));
  return bytes;
}

Status OfiTransport::connect(std::vector<std::vector<std::byte>> by_rank) {
  if (by_rank.size() != peers_.all().size())
    return fail(Code::invalid_argument, "{} addresses were given for {} ranks", by_rank.size(), ranks_);
  for (size_t rank = 0; rank < by_rank.size(); ++rank)
    WEFT_TRY(introduce(static_cast<int>(rank), by_rank[rank], static_cast<uint32_t>(rank_)));
  return {};
}

Status OfiTransport::introduce(int rank, std::span<const std::byte> address, uint32_t known_as) {
  if (rank < 0 || rank >= ranks_)
    return fail(Code::invalid_argument, "peer is {}, must be in [0, {})", rank, ranks_);
  AddressReader in(address);
  Peer& peer = peers_[rank];
  uint32_t magic = 0, limit = 0, takes_gpu = 0, credit = 0, rails = 0;
  std::vector<std::byte> theirs;
  bool good = in.number(magic) && magic == kAddressMagic && in.number(peer.token) && in.number(limit) &&
              limit > 0 && in.number(takes_gpu) && in.number(credit) && in.field(theirs) &&
              in.number(rails) && rails >= 1 && rails <= kMaxRails;
  peer.names.resize(good ? rails : 0);
  for (auto& name : peer.names) good = good && in.field(name);
  if (!good) return fail(Code::protocol_error, "what rank {} sent is no libfabric address of Weft", rank);
  const std::string_view provider = rails_.provider();
  const std::string_view their_provider(reinterpret_cast<const char*>(theirs.data()), theirs.size());
  if (their_provider != provider)
    return fail(Code::protocol_error, "rank {} uses libfabric provider {}, rank {} uses {}: set one for all",
                rank, their_provider, rank_, provider);
  message_limit_ = std::min(message_limit_, size_t{limit});
  peer.known_as = known_as;
  peer.takes_gpu = takes_gpu != 0;
  peer.message_credit = credit > 0 ? credit : UINT64_MAX;
  peer.names.resize(std::min(peer.names.size(), rails_.size()));
  peer.routes.assign(peer.names.size(), FI_ADDR_UNSPEC);
  peer.met = rails_.greets() ? 0 : peer.all_rails();
  return {};
}

// ---- Sending

Result<Progress> OfiTransport::send(int peer, const Envelope& envelope, const void* payload) {
  WEFT_TRY(peers_.check(peer));
  if (envelope.bytes > eager_bytes())
    return fail(Code::invalid_argument, "a message has {} bytes, at most {} fit", envelope.bytes,
                eager_bytes());
  Peer& to = peers_[peer];
  if (to.messages_sent - to.messages_taken > to.message_credit) return messages_.refuse();
  Header header;
  header.envelope = envelope;
  Result<Progress> outcome = messages_.post(peer, header, payload, envelope.bytes);
  if (outcome && *outcome == Progress::accepted) {
    to.messages_sent += message_cost(envelope.bytes);
    ++counters_.messages_sent;
    counters_.payload_bytes_sent += envelope.bytes;
  }
  return outcome;
}

Result<Progress> OfiTransport::start_put(int peer, const Envelope& envelope, const void* source, bool of_gpu,
                                         size_t bytes, const RemoteBuffer& target, uint64_t offset,
                                         Completion* done) {
  Result<Progress> outcome = puts_.start(peer, envelope, source, of_gpu, bytes, target, offset, done);
  if (outcome && *outcome == Progress::accepted) {
    ++counters_.puts;
    counters_.payload_bytes_sent += bytes;
  }
  return outcome;
}

Result<Progress> OfiTransport::put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                                   const RemoteBuffer& target, uint64_t offset, Completion* done) {
  return start_put(peer, envelope, source, false, bytes, target, offset, done);
}

Result<Progress> OfiTransport::put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                                       const RemoteBuffer& target, uint64_t offset, Completion* done) {
  WEFT_TRY(Status(rails_.why_no_gpu()));
  if (bytes > 0 && !rails_.reachable_by_writes(target))
    return fail(Code::invalid_usage, "rank {} has not registered the target of a put of GPU memory", peer);
  return start_put(peer, envelope, source, true, bytes, target, offset, done);
}

Status OfiTransport::gpu_direct_with(int peer) const {
  if (!rails_.why_no_gpu().ok() || peer == rank_) return rails_.why_no_gpu();
  if (peers_[peer].takes_gpu) return {};
  return fail(Code::unsupported, "rank {} does not offer it; its log says why (WEFT_LOG=info)", peer);
}

// ---- Polling

// Completions take effect at once, deliveries wait for poll(). So send() and put() may reap, and the Sink may
// send.
Result<int> OfiTransport::reap() {
  int reaped = 0;
  for (auto& rail : rails_.all()) {
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
    case Event::Kind::received: return incoming_.received(rail, event.operation, event.bytes);
    case Event::Kind::remotely_written: return incoming_.written(event.immediate);
    case Event::Kind::sent: return messages_.left(event.number);
    case Event::Kind::wrote: return puts_.stripe_over(*event.put);
    case Event::Kind::cut_off: return incoming_.cut_off(event);
    case Event::Kind::failed: break;
  }
  // A failed receive names no sender, and a failed greeting is repeated.
  if (event.peer >= 0) peers_.lose(event.peer, event.why);
  else log::info("{}", event.why.message());
  if (event.number > 0) messages_.left(event.number);
  if (event.put) puts_.stripe_over(*event.put);
}

Result<int> OfiTransport::poll(Sink& sink) {
  Result<int> events = reap();
  if (!events) return events;
  WEFT_TRY(incoming_.deliver_all(sink));
  if (puts_.any_unposted()) puts_.advance_all();
  if (incoming_.owes_acknowledgement()) incoming_.acknowledge_due(sink);
  for (int peer : peers_.take_losses()) {
    sink.lost(peer, peers_[peer].lost);
    ++*events;
  }
  if (*events > 0) naps_.shorten();
  return events;
}

bool OfiTransport::idle() const {
  return puts_.under_way() == 0 && !incoming_.owes_acknowledgement() &&
         std::ranges::all_of(rails_.all(), [](const auto& rail) { return rail->idle(); });
}

Status OfiTransport::flush(Deadline deadline) {
  DroppingSink sink;
  while (!idle() || incoming_.awaits_acknowledgement()) {
    Result<int> events = poll(sink);
    if (!events) return events.status();
    if (*events > 0) continue;
    if (deadline.passed() && idle()) break;
    if (deadline.passed())
      return fail(Code::timeout, "{}: {} puts and some messages have not left in time", describe(),
                  puts_.under_way());
    sched_yield();
  }
  return {};
}

bool OfiTransport::prepare_sleep() {
  if (incoming_.any() || peers_.any_loss()) return false;
  return naps_.prepare(messages_.refused() || puts_.any_unposted() || incoming_.owes_acknowledgement());
}

void OfiTransport::finish_sleep() {
  messages_.forget_refusals();
  naps_.finish();
}

}  // namespace weft::transport
