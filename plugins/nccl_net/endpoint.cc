#include "endpoint.h"

#include <sched.h>

#include <algorithm>

#include "base/log.h"
#include "base/settings.h"
#include "gpu.h"
#include "handle.h"
#include "report.h"
#include "seam.h"
#include "transport/ofi.h"
#include "transport/tcp_transport.h"
#include "wire.h"

namespace weft::nccl_net {
namespace {

// Peers of a libfabric endpoint, this one included: they share the 32 bits of immediate data with the window
// of puts to each, which is at its largest up to here.
constexpr int kMostPeers = 1 << 14;
constexpr int kSelf = 0;
constexpr int kExpectedPeers = 64;
constexpr size_t kBlindBytes = 256 << 10;  // over TCP; beyond, a clear costs little beside the message
constexpr int64_t kCoalescingNs = 2000;    // about what a write costs
constexpr size_t kCoalescedPutBytes = 512 << 10;
constexpr size_t kUncutBytes = 1 << 20;
constexpr uint32_t kLookEvery = 256;  // idle polls
// A receiver waits for a word of the sender's for kPatience_s; a sender that has not listened for this long
// asks before it writes.
constexpr int64_t kLongPauseNs = 250'000'000;
constexpr int kTellingPolls = 2;
constexpr double kTakeBack_s = 2, kLetOut_s = 1, kPatience_s = 0.5;

size_t wanted_eager() { return static_cast<size_t>(settings().eager_inter_bytes); }

}  // namespace

size_t Endpoint::tcp_blind_limit() { return wanted_eager() > 0 ? wanted_eager() : kBlindBytes; }

Result<std::shared_ptr<Endpoint>> Endpoint::over_tcp(int side, std::vector<UniqueFd> rails) {
  transport::TcpTransport::Options options;
  options.rails = static_cast<int>(rails.size());
  options.eager_bytes = std::max(options.eager_bytes, kLongestControl);
  options.coalescing = {.when = transport::tcp::Coalescing::When::after_writes,
                        .window_ns = kCoalescingNs,
                        .put_bytes = kCoalescedPutBytes};
  options.patient = true;  // the poller posts the next receive before it polls again
  // Where no other rail is to share a put, it need not be cut: nothing that is short is urgent beside it.
  if (rails.size() == 1) options.segment_bytes = kUncutBytes;
  auto tcp = transport::TcpTransport::create(
      side, 2,
      [](int, int rail, uint32_t, Deadline) -> Result<UniqueFd> {
        return fail(Code::internal_error, "rail {} was not part of the handshake", rail);
      },
      options);
  if (!tcp.ok()) return tcp.status();
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->tcp_ = tcp->get();
  endpoint->blind_limit_ = tcp_blind_limit();
  for (size_t rail = 0; rail < rails.size(); ++rail)
    WEFT_TRY(endpoint->tcp_->accept(1 - side, static_cast<uint32_t>(rail), std::move(rails[rail])));
  endpoint->transport_ = decorate(tcp.take());
  MemoryWatch::install();
  return endpoint;
}

Result<std::shared_ptr<Endpoint>> Endpoint::over_ofi(const Device& device) {
  transport::OfiTransport::Options options;
  options.provider = device.provider;
  options.interface = fmt::format("{}", fmt::join(device.rails, ","));
  options.rails = static_cast<int>(device.rails.size());
  options.expected_peers = kExpectedPeers;
  options.careful = true;
  options.ordered_writes = true;
  if (wanted_eager() > 0) options.eager_bytes = std::max(wanted_eager(), kLongestControl);
  const Result<device::cuda::Device*> gpu = gpu::wanted();
  if (gpu.ok()) options.cuda_device = (*gpu)->ordinal();
  auto ofi = transport::OfiTransport::create(kSelf, kMostPeers, options);
  if (!ofi.ok()) return ofi.status();
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->ofi_ = ofi->get();
  endpoint->gpu_wanted_ = gpu.status();
  endpoint->gpu_ = gpu.ok() ? *gpu : nullptr;
  endpoint->id_ = random_number();
  endpoint->polled_ns_ = now_ns();
  endpoint->blind_limit_ =
      wanted_eager() > 0 ? std::min(wanted_eager(), (*ofi)->eager_bytes()) : (*ofi)->eager_bytes();
  endpoint->transport_ = decorate(ofi.take());
  MemoryWatch::install();
  return endpoint;
}

Endpoint::~Endpoint() = default;

Result<transport::GpuDirect*> Endpoint::gpu_direct() {
  WEFT_TRY(Status(gpu_wanted_));
  transport::GpuDirect* const direct = transport_->gpu_direct();
  if (!direct)
    return weft::fail(Code::unsupported, "{} moves host memory only (WEFT_NET=ofi may do more)",
                      transport_->describe());
  WEFT_TRY(direct->gpu_direct_with(kSelf));
  return direct;
}

Status Endpoint::writes_in_order() const { return ofi_->rails().writes_in_order(); }

// ---- Who is there

Result<int> Endpoint::number_of(uint64_t endpoint) {
  if (const auto known = peers_.find(endpoint); known != peers_.end()) return known->second;
  if (next_peer_ >= kMostPeers)
    return weft::fail(Code::unsupported, "an endpoint has at most {} peers in its lifetime", kMostPeers - 1);
  return peers_[endpoint] = next_peer_++;
}

Status Endpoint::introduce(int peer, std::span<const std::byte> address, uint32_t known_as) {
  WEFT_TRY(status_);
  const auto known = known_as_.find(peer);
  if (known != known_as_.end() && known->second == known_as) return {};
  WEFT_TRY(ofi_->introduce(peer, address, known_as));
  known_as_[peer] = known_as;
  return {};
}

std::vector<std::byte> Endpoint::fabric_address() const { return ofi_->address(); }

uint32_t Endpoint::enter(Member& member, int peer) {
  static_assert(kFirstConnection == 1);
  routes_[++last_number_] = {&member, peer};
  return last_number_;
}

void Endpoint::leave(uint32_t connection) { routes_.erase(connection); }

// ---- Progress

uint32_t Endpoint::pauses() const { return pauses_ + (ofi_ && now_ns() - polled_ns_ > kLongPauseNs ? 1 : 0); }

Status Endpoint::poll() {
  WEFT_TRY(status_);
  if (ofi_) {
    pauses_ = pauses();
    polled_ns_ = now_ns();
  }
  const Touch touch(*this);
  const Result<int> events = transport_->poll(*this);
  look_for_lost_memory();
  if (!events.ok()) {
    break_down(events.status());
    return status_;
  }
  if (!losses_.empty()) fail_lost();
  for (const uint32_t number : std::exchange(restless_, {}))
    if (const auto found = routes_.find(number); found != routes_.end()) {
      found->second.member->pump();
      look_for_lost_memory();
    }
  events_ += static_cast<uint64_t>(*events);
  if (*events > 0) idle_polls_ = 0;
  else if (++idle_polls_ % kLookEvery == 0) look_at_peers();
  return status_;
}

const Endpoint::Route* Endpoint::route(int peer, const transport::Envelope& envelope) const {
  const auto found = routes_.find(envelope.comm);
  return found != routes_.end() && found->second.peer == peer ? &found->second : nullptr;
}

void* Endpoint::place(int peer, const transport::Envelope& envelope) {
  const Route* to = route(peer, envelope);
  return to ? to->member->place(envelope) : nullptr;
}

void Endpoint::arrived(int peer, const transport::Envelope& envelope, const void* payload) {
  if (const Route* to = route(peer, envelope)) to->member->arrived(envelope, payload);
}

bool Endpoint::expects(int peer, const transport::Envelope& envelope) const {
  const Route* to = route(peer, envelope);
  return !to || to->member->expects(envelope);
}

void Endpoint::lost(int peer, const Status& why) { losses_.emplace_back(peer, why); }

void Endpoint::fail_lost() {
  for (const auto& [peer, why] : std::exchange(losses_, {})) {
    log::info("a connection is lost: {}", why.message());
    std::erase_if(peers_, [lost = peer](const auto& entry) { return entry.second == lost; });
    for (const auto& [number, route] : routes_)
      if (route.peer == peer) route.member->fail(why);
  }
}

bool Endpoint::owns(const void* endpoint, const void* address) {
  const auto& routes = static_cast<const Endpoint*>(endpoint)->routes_;
  return std::any_of(routes.begin(), routes.end(),
                     [&](const auto& entry) { return entry.second.member->has_registered(address); });
}

void Endpoint::fail_lost_memory() {
  for (const auto& [number, route] : routes_) route.member->memory_lost();
  MemoryWatch::settle([](const MemoryWatch::Run&) {});
}

// Over libfabric nothing tells that a process has gone while nothing is sent to it; the socket of the
// handshake does.
void Endpoint::look_at_peers() {
  for (const auto& [number, route] : routes_) route.member->look_at_peer();
}

void Endpoint::break_down(Status why) {
  status_ = std::move(why);
  warn(status_.message());
  transport_.reset();
  ofi_ = nullptr;
  tcp_ = nullptr;
  for (const auto& [number, route] : routes_) route.member->fail(status_);
}

// ---- The end

void Endpoint::forget(transport::Completion& completion) {
  if (status_.ok()) transport_->forget(&completion, &completion + 1);
}

bool Endpoint::take_back(int peer, transport::Completion& completion, bool closed) {
  QuietDeadline deadline(kTakeBack_s);
  const auto wait_while = [&](auto busy) {
    while (status_.ok() && !deadline.passed(events_) && busy())
      if (poll().ok()) sched_yield();
  };
  if (ofi_ && !closed) wait_while([&] { return !completion.done && ofi_->puts().carries(completion); });
  if (completion.done) return true;
  forget(completion);
  if (!ofi_) return false;
  wait_while([&] { return ofi_->puts().reads_forgotten(peer); });
  if (status_.ok() && ofi_->puts().reads_forgotten(peer))
    break_down(
        weft::fail(Code::aborted,
                   "a buffer was taken away while it was being sent, and the network did not let go of "
                   "it within {} s in which nothing else happened: the connections of its device are closed",
                   kTakeBack_s));
  return false;
}

// Where nothing else shows that no write has begun, an answer that is missing costs all connections.
double Endpoint::patience_s(int peer) const {
  if (silent_.contains(peer)) return 0;
  return ofi_ && !ofi_->rails().announcements_come_first() ? kTakeBack_s : kPatience_s;
}

void Endpoint::answered(int peer, bool in_time) {
  if (in_time) silent_.erase(peer);
  else silent_.insert(peer);
}

bool Endpoint::exposed_elsewhere(const transport::RemoteBuffer& buffer) const {
  return ofi_ && ofi_->rails().exposed_elsewhere(buffer);
}

bool Endpoint::is_written(int peer, uint32_t connection) const {
  return ofi_ && ofi_->incoming().is_writing(peer, connection);
}

void Endpoint::finish_writes(int peer, uint32_t connection, bool reachable,
                             const std::function<bool()>& has_died) {
  if (!ofi_ || ended_.contains(peer)) return;
  QuietDeadline deadline(kTakeBack_s);
  const auto written = [&] { return status_.ok() && ofi_->incoming().may_be_writing(peer, connection); };
  // What is announced is known after a poll.
  for (int polls = 0; !reachable && status_.ok() && (polls < kTellingPolls || written()); ++polls) {
    if (deadline.passed(events_)) break;
    if (poll().ok()) sched_yield();
  }
  if (!status_.ok() || !(reachable || written())) return;
  // Over a network without order nothing shows that no write had begun. A dead process finishes none.
  if (!reachable && has_died()) return void(ended_.insert(peer));
  break_down(
      weft::fail(Code::aborted,
                 "a buffer was taken away while it was being received into, and the sender neither finished "
                 "nor said that it has stopped: the connections of its device are closed"));
}

void Endpoint::let_out(uint64_t ticket) {
  const Deadline deadline = Deadline::in_seconds(kLetOut_s);
  while (status_.ok() && !transport_->flushed(ticket) && !deadline.passed())
    if (poll().ok()) sched_yield();
  if (!status_.ok() || !tcp_) return;
  if (const Status flushed = tcp_->flush(deadline); !flushed.ok())
    log::info("closing a connection: {}", flushed.message());
}

}  // namespace weft::nccl_net
