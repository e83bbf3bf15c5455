// What a probe measures between nodes: messages, a stream, and where that is as fast as the CPUs can make it,
// what either end has to do for it.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "job/probe.h"
#include "transport/message_burst.h"

namespace weft::job {
namespace {

constexpr int kStreams = 2;  // for congestion control that has misjudged the line is slow for a while
constexpr int64_t kStreamNs = 60'000'000;
constexpr size_t kStreamBytes = 64 << 20;  // at most
/// Leaves the CPUs idle as often as the network allows it.
constexpr Probe::Flow kSparingFlow{.block_bytes = 256 << 10, .window = 4, .idle = Probe::Idle::sleep};
/// Keeps them busy.
constexpr Probe::Flow kBusyFlow{.block_bytes = 512 << 10, .window = 8, .idle = Probe::Idle::spin};
// What is exchanged at once: a slice, and so much that it fills sockets' buffers and no cache holds it.
constexpr size_t kExchangedSlice = 512 << 10, kExchangedRow = 8 << 20, kExchangedSpan = 16 << 20;

// Blocks after a pause; what is less than a part of one is taken for noise.
constexpr int kBursts = 3;
constexpr double kLongestPauseUs = 50'000, kLeastBurst = 0.1;

constexpr double kFramingBytes = model::kHeaderBytes + model::kPacketBytes;

// Messages one behind the other, and how long they have to arrive all: congestion control may let them go in
// several round trips.
constexpr uint32_t kBehind = 4 * transport::tcp::kBeforeBurst, kBehindBursts = 4;
constexpr double kArrivalUs = 1000, kArrivalWays = 8, kLongestArrivalUs = 50'000;

constexpr double kMostOverhead = 2;                  // times what sending takes
constexpr double kLeastPart = 0.2, kMostPart = 1.8;  // of a message's CPU time, that an end takes
constexpr double kSendingPart = 0.8;                 // of an exchange's time, at most

constexpr double kWorthPausing = 8, kWorthExchanging = 200;  // bytes/µs: below that it takes too long

double cpu_us() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

}  // namespace

Status Probe::receive_stream(Idle idle) {
  // The last one may be there before others have been answered.
  uint32_t end = 0;
  for (uint32_t answered = 0; end == 0 || answered < end; ++answered) {
    WEFT_TRY(wait(1, idle));
    if (end == 0) end = std::exchange(inbox_.phase_ends_, 0u);
    WEFT_TRY(send());
  }
  return {};
}

/// The envelope's bytes at `from`, to `to` in the peer's memory.
Status Probe::put(transport::Envelope envelope, const std::byte* from, size_t to, Puts* puts) {
  envelope.offset = to;
  puts->push_back(std::make_unique<transport::Completion>());
  const engine::Lock lock = context_.lock();
  for (;;) {
    const Result<transport::Progress> put =
        transport_.put(peer_, envelope, from, envelope.bytes, inbox_.exposed_, to, puts->back().get());
    if (!put) return put.status();
    if (*put == transport::Progress::accepted) return {};
    if (deadline_.passed()) return fail(Code::timeout, "rank {} takes no data", peer_);
    context_.turn();
  }
}

void Probe::forget(const Puts& puts) {
  const engine::Lock lock = context_.lock();
  for (const auto& put : puts) transport_.forget(put.get(), put.get() + 1);
}

Result<Probe::Stream> Probe::send_stream(std::byte* memory, const Flow& flow) {
  transport::Envelope envelope = envelope_of(MessageKind::data, flow.block_bytes);
  const Deadline enough = Deadline::in_seconds(kStreamNs / 1e9);
  Puts puts;
  std::vector<int64_t> answered;
  Status status;
  bool last = false;
  const int64_t begin = now_ns();
  const double cpu_begin = cpu_us();
  while (status.ok() && answered.size() < puts.size() + !last) {
    if (!last && puts.size() < answered.size() + flow.window) {
      last = puts.size() >= 8 && (enough.passed() || puts.size() * flow.block_bytes >= kStreamBytes);
      envelope.set_tag(last ? static_cast<uint32_t>(puts.size() + 1) : 0);
      status = put(envelope, memory, 0, &puts);
      continue;
    }
    status = wait(1, flow.idle);
    answered.push_back(now_ns());
  }
  const double wall_us = us_since(begin), worked_us = cpu_us() - cpu_begin;
  if (status.ok()) status = wait_for_departure(puts);
  if (!status.ok()) {
    forget(puts);
    return status;
  }
  // Buffers on the way take the first blocks in at once.
  const size_t from = answered.size() / 4;
  const auto bytes = static_cast<double>(flow.block_bytes * (answered.size() - 1 - from));
  Stream stream;
  stream.bytes_per_us = bytes / std::max(static_cast<double>(answered.back() - answered[from]) / 1e3, 1e-3);
  stream.busy = std::clamp(worked_us / std::max(wall_us, 1e-3), 0.01, 1.0);
  return stream;
}

/// The peer may have answered a put before it is known here to have left.
Status Probe::wait_for_departure(const Puts& puts) {
  while (!std::all_of(puts.begin(), puts.end(), [](const auto& put) { return put->done; })) {
    if (deadline_.passed()) return fail(Code::timeout, "data for rank {} does not leave", peer_);
    const engine::Lock lock = context_.lock();
    WEFT_TRY(look());
  }
  return {};
}

/// A put, until something has come from the peer, too.
Status Probe::put_and_wait(const transport::Envelope& envelope, const std::byte* from, size_t to) {
  Puts puts;
  Status status = put(envelope, from, to, &puts);
  if (status.ok()) status = wait(1);
  if (status.ok()) status = wait_for_departure(puts);
  if (!status.ok()) forget(puts);
  return status;
}

/// The fastest of some streams.
Result<Probe::Stream> Probe::stream(std::byte* memory, const Flow& flow) {
  Stream fastest;
  for (int stream = 0; stream < kStreams; ++stream) {
    if (!leads_) {
      WEFT_TRY(receive_stream(flow.idle));
      continue;
    }
    const Result<Stream> streamed = send_stream(memory, flow);
    if (!streamed.ok()) return streamed.status();
    if (streamed->bytes_per_us > fastest.bytes_per_us) fastest = *streamed;
  }
  return fastest;
}

/// What it takes until a piece of `memory` has gone to the peer while one of its has come from there.
/// Whatever else a machine does slows some of them, and nothing makes them faster, so the lower quartile
/// counts.
Result<double> Probe::exchange_us(std::byte* memory, const Pieces& pieces) {
  const auto [bytes, span, times] = pieces;
  const transport::Envelope envelope = envelope_of(MessageKind::data, bytes);
  // What is sent lies before what is received.
  const int warm = static_cast<int>(span / bytes);
  std::vector<double> durations;
  for (int i = 0; i < warm + times; ++i) {
    const size_t at = static_cast<size_t>(i) * bytes % span;
    const int64_t begin = now_ns();
    WEFT_TRY(put_and_wait(envelope, memory + at, span + at));
    if (i >= warm) durations.push_back(us_since(begin));
  }
  const auto quartile = durations.begin() + times / 4;
  std::nth_element(durations.begin(), quartile, durations.end());
  return std::max(*quartile, 1e-3);
}

/// What the CPUs at both ends of a link do that is faster than they are: a stream tells what sending costs,
/// an exchange, in which both send and receive, what receiving costs besides, and memory beyond the caches
/// what both pay for that.
Status Probe::measure_ends(model::Link* link) {
  Exposed memory(*this, 2 * kExchangedSpan);
  WEFT_TRY(memory.exchange());
  const Result<Stream> spun = stream(memory.data(), kBusyFlow);
  if (!spun.ok()) return spun.status();
  const Result<double> cached =
      exchange_us(memory.data(), {.bytes = kExchangedSlice, .span_bytes = kExchangedSlice, .times = 31});
  if (!cached.ok()) return cached.status();
  const Result<double> large =
      exchange_us(memory.data(), {.bytes = kExchangedRow, .span_bytes = kExchangedSpan, .times = 9});
  if (!large.ok()) return large.status();
  WEFT_TRY(meet());
  memory.take_back();
  if (link == nullptr) return {};
  link->bytes_per_us = std::clamp(spun->bytes_per_us, link->bytes_per_us, 1e6);
  // An end's time for a byte. What a stream has under way may fill more caches than an exchange, which then
  // takes less than sending in a stream does.
  const double latency_us = model::way_us(*link);
  const double both = std::max((*cached - latency_us) / kExchangedSlice, 1e-6);
  const double sent = std::min(1 / link->bytes_per_us, kSendingPart * both);
  const double received = std::min(both - sent, 2 * sent);
  link->bytes_per_us = 1 / sent;
  const double missed =
      std::clamp(((*large - latency_us) / kExchangedRow - sent - received) / 2, 0.0, 4 * sent);
  link->received_bytes_per_us = 1 / received;
  link->sent_large_bytes_per_us = 1 / (sent + missed);
  link->received_large_bytes_per_us = 1 / (received + missed);
  return {};
}

/// What an interface that had nothing to do carries beyond `bytes_per_us`, its rate: what a block that
/// follows on a pause takes less.
Result<double> Probe::burst_bytes(std::byte* memory, double bytes_per_us, double one_way_us) {
  constexpr auto kBytes = static_cast<double>(kSparingFlow.block_bytes);
  const transport::Envelope envelope = envelope_of(MessageKind::data, kSparingFlow.block_bytes);
  std::vector<double> ahead;
  for (int i = 0; i < kBursts; ++i) {
    if (!leads_) {
      WEFT_TRY(wait(1));
      WEFT_TRY(send());
      continue;
    }
    const double pause_us = std::min(2 * kBytes / bytes_per_us, kLongestPauseUs);
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(pause_us));
    const int64_t begin = now_ns();
    WEFT_TRY(put_and_wait(envelope, memory, 0));
    ahead.push_back(kBytes - (us_since(begin) - 2 * one_way_us) * bytes_per_us);
  }
  const double burst = model::median(ahead);
  return burst < kLeastBurst * kBytes ? 0.0 : std::min(burst, kBytes);
}

/// Measures the CPU time that the leader takes for each message of a burst, the first of which go by
/// themselves, and the time that its peer takes for each when it finds all of them. The least of a few bursts
/// counts, in which neither rank lost its core.
Status Probe::measure_burst(model::Link* link) {
  double sent_us = 1e9, gathered_us = 1e9, found_us = 1e9;
  const double one_way_us = link ? model::way_us(*link) : 0;
  WEFT_TRY(swap({.bytes = static_cast<uint64_t>(one_way_us * 1e3)}));  // in ns
  const double arrival_us = std::min(
      kArrivalUs + kArrivalWays * static_cast<double>(inbox_.exposed_.bytes) / 1e3, kLongestArrivalUs);
  constexpr uint32_t kFirst = transport::tcp::kBeforeBurst, kOthers = kBehind - kFirst - 1;
  for (uint32_t burst = 0; burst < kBehindBursts; ++burst) {
    WEFT_TRY(meet());
    if (leads_) {
      const double begin = cpu_us();
      for (uint32_t i = 0; i < kFirst; ++i) WEFT_TRY(send());
      const double between = cpu_us();
      WEFT_TRY(send());  // behind its write others wait
      const double written = cpu_us();
      for (uint32_t i = 0; i < kOthers; ++i) WEFT_TRY(send());
      const double end = cpu_us();
      const engine::Lock lock = context_.lock();
      WEFT_TRY(look());
      sent_us = std::min(sent_us, (between - begin) / kFirst);
      gathered_us = std::min(gathered_us, (end - written) / kOthers);
    } else {
      const Result<double> took_us = find(kBehind, arrival_us);
      if (!took_us.ok()) return took_us.status();
      found_us = std::min(found_us, *took_us / kBehind);
    }
  }
  WEFT_TRY(swap({.bytes = static_cast<uint64_t>(found_us * 1e3)}));
  found_us = static_cast<double>(inbox_.exposed_.bytes) / 1e3;
  WEFT_TRY(meet());  // the peer's next description would take the place of this one
  if (link == nullptr || sent_us <= 0) return {};  // a clock that ticks too seldom tells nothing
  // A burst that congestion control lets go in several round trips seems to cost CPUs that time, and says
  // nothing of what it does cost them.
  const double overhead_us = link->overhead_us > kMostOverhead * sent_us ? sent_us : link->overhead_us;
  link->alpha_us += 2 * (link->overhead_us - overhead_us);
  link->overhead_us = overhead_us;
  link->sending_us = std::clamp(sent_us, kLeastPart * link->overhead_us, kMostPart * link->overhead_us);
  link->behind_us = std::min(std::max(found_us, 0.001), model::receiving_us(*link));
  // Nowhere else do messages share writes.
  const bool gathers = context_.fabric().net() == transport::Net::tcp;
  link->gathered_us = gathers ? std::min(std::max(gathered_us, 0.001), link->sending_us) : 0;
  return {};
}

/// What has been sent goes out, and what has come is taken in.
Status Probe::look() {
  const Result<int> events = context_.fabric().poll(context_.inbox(), true);
  return events.ok() ? Status() : events.status();
}

/// How long it takes to take in so many messages that are all there after a while, in which nobody looks.
Result<double> Probe::find(uint32_t messages, double arrival_us) {
  int64_t begin = 0;
  {
    const engine::Lock lock = context_.lock();
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(arrival_us));
    begin = now_ns();
    WEFT_TRY(look());
  }
  WEFT_TRY(wait(messages));
  return us_since(begin);
}

Status Probe::measure_inter(model::Machine* machine) {
  model::Link* const link = machine ? &machine->inter : nullptr;
  WEFT_TRY(measure_messages(link, 200, 0.03));
  WEFT_TRY(measure_burst(link));
  Exposed memory(*this, kSparingFlow.block_bytes);
  WEFT_TRY(memory.exchange());
  const Result<Stream> slept = stream(memory.data(), kSparingFlow);
  if (!slept.ok()) return slept.status();
  const std::string transport = transport_.describe();
  const bool by_cpu =
      transport.find("efa") == std::string::npos && transport.find("verbs") == std::string::npos;
  // A sender that mostly sleeps is held up by the network. One that works all the time is slower than it:
  // there what the interfaces state stands, if it is more.
  const bool network_bound = !by_cpu || slept->busy < 0.6;
  const double rate = std::clamp(slept->bytes_per_us, 0.01, 1e6);
  if (link != nullptr) {
    link->by_cpu = by_cpu;
    link->bytes_per_us =
        network_bound && by_cpu ? std::max(rate, std::min(rate / slept->busy, 20000.0)) : rate;
  }
  const bool stated = !network_bound && !context_.fabric().one_machine();
  const auto set_interface = [&](double bytes_per_us) {
    machine->nic_bytes_per_us =
        std::max(bytes_per_us / machine->rails, stated ? machine->nic_bytes_per_us : 0.0);
  };
  if (machine != nullptr) set_interface(rate);
  const Result<bool> has_bursts = decided(network_bound && by_cpu && rate >= kWorthPausing);
  if (!has_bursts.ok()) return has_bursts.status();
  if (*has_bursts) {
    const double one_way_us = link ? model::way_us(*link) : 0;
    const Result<double> burst = burst_bytes(memory.data(), rate, one_way_us);
    if (!burst.ok()) return burst.status();
    if (machine != nullptr) {
      machine->burst_bytes = *burst / machine->rails;
      machine->nic_message_us = kFramingBytes / machine->nic_bytes_per_us;
    }
  }
  memory.take_back();
  const Result<bool> cpu_bound = decided(!network_bound && rate >= kWorthExchanging);
  if (!cpu_bound.ok() || !*cpu_bound) return cpu_bound.status();
  WEFT_TRY(measure_ends(link));
  if (machine != nullptr) set_interface(link->bytes_per_us);
  return {};
}

}  // namespace weft::job
