#include "job/probe.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/run/communicator.h"
#include "transport/message_burst.h"

namespace weft::job {
namespace {

// Ranks that take no part yield for WEFT_YIELD_US before they sleep. Warming up takes longer, so that the two
// ranks have their cores.
constexpr double kWarmUpSeconds = 0.005;
constexpr double kSlowestSharedMemory = 10;  // times what is usual
constexpr int kRows = 4, kSleepingRounds = 10;
constexpr int kTogether = 8;  // rounds of an exchange that are timed as one
constexpr int kBurst = 32;    // messages; a FIFO has room for them
constexpr size_t kLanding = 256 << 10;

}  // namespace

ProbeInbox::ProbeInbox(Context& context) : context_(context), landing_(kLanding) {
  const engine::Lock lock = context_.lock();
  context_.inbox().set_handler(this);
}

ProbeInbox::~ProbeInbox() {
  const engine::Lock lock = context_.lock();
  context_.inbox().set_handler(nullptr);
}

void* ProbeInbox::place(const transport::Envelope& envelope) {
  if (static_cast<MessageKind>(envelope.kind) != MessageKind::data) return nullptr;
  if (envelope.offset == 0 && envelope.bytes <= landing_.size()) return landing_.data();
  const bool fits = envelope.offset <= own_.size() && envelope.bytes <= own_.size() - envelope.offset;
  return fits ? own_.data() + envelope.offset : nullptr;
}

void ProbeInbox::arrived(int peer, const transport::Envelope& envelope, const void* payload) {
  if (peer_ >= 0 && peer != peer_) return;  // late, from a probe that failed
  if (static_cast<MessageKind>(envelope.kind) == MessageKind::expose) {
    if (payload && envelope.bytes == sizeof exposed_) std::memcpy(&exposed_, payload, sizeof exposed_);
  } else if (payload && envelope.bytes <= landing_.size()) {
    std::memcpy(landing_.data(), payload, envelope.bytes);
  }
  if (envelope.tag() != 0) phase_ends_ = envelope.tag();
  ++count_;
}

Probe::Probe(Context& context, ProbeInbox& inbox, uint32_t comm, int peer, Deadline deadline)
    : context_(context),
      inbox_(inbox),
      comm_(comm),
      peer_(peer),
      leads_(context.rank() == 0),
      transport_(*context.fabric().route(peer)),
      gate_(transport::in_same_process(transport_, peer)
                ? engine::AccessGate::find({context.job(), comm, peer})
                : nullptr),
      network_(!context.fabric().is_local(peer)),
      deadline_(deadline) {
  if (!leads_) return;  // the leader's first messages may have come
  const engine::Lock lock = context_.lock();
  inbox_.peer_ = peer_;
  inbox_.count_ = 0;
}

// ---- messages

transport::Envelope Probe::envelope_of(MessageKind kind, size_t bytes) const {
  transport::Envelope envelope;
  envelope.comm = comm_;
  envelope.op = engine::kProbeNumber;
  envelope.kind = static_cast<uint8_t>(kind);
  envelope.bytes = static_cast<uint32_t>(bytes);
  return envelope;
}

Status Probe::send(bool last, const void* payload, size_t bytes) {
  transport::Envelope envelope = envelope_of(MessageKind::data, bytes);
  envelope.set_tag(last);
  return send(envelope, payload);
}

Status Probe::send(const transport::Envelope& envelope, const void* payload) {
  for (;;) {
    engine::Lock lock = context_.lock();
    const Result<transport::Progress> sent = transport_.send(peer_, envelope, payload);
    if (!sent) return sent.status();
    if (*sent == transport::Progress::accepted) return {};
    context_.turn();
    if (deadline_.passed()) return fail(Code::timeout, "rank {} takes no messages", peer_);
  }
}

/// Waits until so many more messages have come.
Status Probe::wait(uint32_t messages, Idle idle) {
  taken_ += messages;
  engine::Fabric& fabric = context_.fabric();
  for (uint32_t turns = 1;; ++turns) {
    {
      engine::Lock lock = context_.lock();
      // Inside a node a poll of the network would cost more than a message.
      const Result<int> events = fabric.poll(context_.inbox(), network_ || turns % 64 == 0);
      if (!events) return events.status();
      if (static_cast<int32_t>(inbox_.count_ - taken_) >= 0) return {};
      if (idle == Idle::sleep && *events == 0 && fabric.prepare_sleep()) {
        epoll_event event;
        epoll_wait(fabric.epoll_fd(), &event, 1, 1);
        fabric.finish_sleep();
      }
    }
    if (turns % 256 == 0) {
      if (deadline_.passed()) return fail(Code::timeout, "rank {} does not answer", peer_);
      sched_yield();
    }
  }
}

/// Times a series of `rounds` messages, or fewer if they take longer than `seconds`. In both directions a
/// rank may be a message ahead. A poll delivers one message of a probe, so the rank does not take the next
/// message for the current one.
Result<Probe::Row> Probe::row_us(size_t bytes, int rounds, double seconds, Idle idle, Way way) {
  const std::vector<std::byte> payload(bytes);
  Row row;
  if (!leads_) {
    do {
      if (way == Way::both) WEFT_TRY(send(false, payload.data(), bytes));
      WEFT_TRY(wait(1, idle));
      const bool last = std::exchange(inbox_.phase_ends_, 0u) != 0;
      if (way == Way::one) WEFT_TRY(send(false, payload.data(), bytes));
      if (last) return row;
    } while (true);
  }
  // A single exchange is short or long, depending on which rank is ahead. So several are timed together.
  const int together = way == Way::one ? 1 : kTogether;
  const Deadline enough = Deadline::in_seconds(seconds);
  int64_t begin = now_ns();
  for (int round = 0;; ++round) {
    const bool last = round > rounds || (round > 3 * together && enough.passed());
    WEFT_TRY(send(last, payload.data(), bytes));
    WEFT_TRY(wait(1, idle));
    const bool counts = round >= together;  // the first opens connections
    if (counts && round % together == 0) row.push_back(us_since(begin) / (way == Way::one ? 2 : together));
    if (round % together == 0) begin = now_ns();
    if (last) return row;
  }
}

/// How long a message takes, from several series. Half of the series are taken by ranks that sleep: the
/// scheduler then moves ranks that share a core to other cores.
Result<double> Probe::message_us(size_t bytes, int rounds, double seconds, Way way) {
  std::vector<Row> spun, slept;
  for (int pair = 0; pair < kRows; ++pair) {
    Result<Row> row = row_us(bytes, rounds / kRows, seconds / kRows, Idle::spin, way);
    if (!row.ok()) return row.status();
    spun.push_back(row.take());
    row = row_us(bytes, kSleepingRounds, seconds / kRows, Idle::sleep, way);
    if (!row.ok()) return row.status();
    slept.push_back(row.take());
  }
  const model::Latency latency = model::agree(spun, slept, context_.fabric().cpus_on_machine() < 2);
  if (doubt_.empty()) doubt_ = latency.doubt;
  return latency.us;
}

/// The CPU time of a message at the busier end: what each further message of a burst costs. Fewer than
/// `rounds` bursts if they take longer than `seconds`.
Result<double> Probe::overhead_us(int rounds, double seconds) {
  // Over TCP so few messages do not share writes (message_burst.h).
  const bool gathers = network_ && context_.fabric().net() == transport::Net::tcp;
  const int burst_messages = gathers ? static_cast<int>(transport::tcp::kBeforeBurst) - 1 : kBurst;
  if (!leads_) {
    for (int round = 0;; ++round) {
      WEFT_TRY(wait(round % 2 == 0 ? 1 : burst_messages + 1));
      const bool last = std::exchange(inbox_.phase_ends_, 0u) != 0;
      WEFT_TRY(send());
      if (last) return 0.0;
    }
  }
  std::vector<double> single, burst;
  const Deadline enough = Deadline::in_seconds(seconds);
  for (int round = 0;; ++round) {
    const bool alone = round % 2 == 0;
    const bool last = !alone && (round / 2 >= rounds || (round / 2 > 1 && enough.passed()));
    const int64_t begin = now_ns();
    for (int more = alone ? 0 : burst_messages; more > 0; --more) WEFT_TRY(send());
    WEFT_TRY(send(last));
    WEFT_TRY(wait(1));
    (alone ? single : burst).push_back(us_since(begin));
    if (last) return std::max(model::median(burst) - model::median(single), 0.0) / burst_messages;
  }
}

Status Probe::measure_messages(model::Link* link, int rounds, double seconds) {
  const Result<Row> warm = row_us(0, 100'000, kWarmUpSeconds, Idle::spin);
  if (!warm.ok()) return warm.status();
  const Result<double> one_way = message_us(0, rounds, seconds);
  if (!one_way.ok()) return one_way.status();
  const Result<double> overhead = overhead_us(15, seconds);
  if (!overhead.ok()) return overhead.status();
  if (link == nullptr) return {};
  // A rank without a core makes shared memory seem slow.
  const double most = network_ ? 1e6 : kSlowestSharedMemory;
  const model::Link stated = *link;
  link->overhead_us = std::clamp(*overhead, 0.005, *one_way / 3);
  link->alpha_us = model::plausible(std::max(*one_way - 2 * link->overhead_us, 0.01), stated.alpha_us, most);
  return {};
}

Probe::Exposed::Exposed(Probe& probe, size_t bytes, In in) : probe_(probe), bytes_(bytes) {
  if (in == In::plain) {
    memory_.assign(bytes, std::byte{1});
    data_ = memory_.data();
    return;
  }
  const engine::Lock lock = probe_.context_.lock();
  if (Result<ScratchPool::Block> block = probe_.context_.workspace().scratch().take(bytes); block.ok()) {
    window_ = *block;
    data_ = window_.data;
  }
}

Probe::Exposed::~Exposed() {
  const engine::Lock lock = probe_.context_.lock();
  probe_.inbox_.own_ = {};
  ScratchPool& scratch = probe_.context_.workspace().scratch();
  if (window_.data != nullptr && buffer_) scratch.retire(window_, now_ns());
  else if (window_.data != nullptr) scratch.give(window_);
  else if (buffer_) probe_.context_.workspace().keep(std::move(memory_));
}

void Probe::Exposed::take_back() {
  const engine::Lock lock = probe_.context_.lock();
  probe_.transport_.unexpose(*buffer_);
  buffer_.reset();
}

Status Probe::Exposed::exchange() {
  {
    const engine::Lock lock = probe_.context_.lock();
    const Result<transport::RemoteBuffer> own = probe_.transport_.expose(data_, bytes_);
    if (!own) return own.status();
    buffer_ = *own;
    probe_.inbox_.own_ = {data_, bytes_};
  }
  return probe_.swap(*buffer_);
}

/// Both ranks send each other a description of memory. The peer's is in the inbox afterwards.
Status Probe::swap(const transport::RemoteBuffer& mine) {
  WEFT_TRY(send(envelope_of(MessageKind::expose, sizeof mine), &mine));
  return wait(1);
}

/// Tells the peer what the leader has decided, and returns it on both.
Result<bool> Probe::decided(bool decision) {
  if (leads_) WEFT_TRY(send(decision));
  WEFT_TRY(wait(1));
  if (leads_) return decision;
  decision = std::exchange(inbox_.phase_ends_, 0u) != 0;
  WEFT_TRY(send());
  return decision;
}

/// Waits until both ranks have called it.
Status Probe::meet() { return decided(false).status(); }

/// Whether both ranks can go on: `mine` of both is true.
Result<bool> Probe::both(bool mine) {
  WEFT_TRY(swap({.bytes = mine}));
  return mine && inbox_.exposed_.bytes != 0;
}

}  // namespace weft::job
