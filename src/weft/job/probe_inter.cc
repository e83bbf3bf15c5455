#include "job/probe_inter.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "transport/message_burst.h"

namespace weft::job {
namespace {

constexpr int kStreams = 2;  // congestion control may be slow at first
constexpr int64_t kStreamNs = 60'000'000;
constexpr size_t kStreamBytes = 64 << 20;  // at most
// What is exchanged at once: a slice, and more than sockets' buffers and caches hold.
constexpr size_t kExchangedSlice = 512 << 10, kExchangedRow = 8 << 20, kExchangedSpan = 16 << 20;

// Blocks after a pause. A gain of less than kLeastBurst of a block counts as noise.
constexpr int kBursts = 3;
constexpr double kLongestPauseUs = 50'000, kLeastBurst = 0.1;

constexpr double kFramingBytes = model::kHeaderBytes + model::kPacketBytes;

// Back-to-back messages, and how long their arrival may take: congestion control may need several round
// trips.
constexpr uint32_t kBehind = 4 * transport::tcp::kBeforeBurst, kBehindBursts = 4;
constexpr double kArrivalUs = 1000, kArrivalWays = 8, kLongestArrivalUs = 50'000;

constexpr double kMostOverhead = 2;                  // of a message, in times of sending
constexpr double kLeastPart = 0.2, kMostPart = 1.8;  // of a message's CPU time, at one end
constexpr double kSendingPart = 0.8;                 // of an exchange's time, at most

constexpr double kWorthPausing = 8, kWorthExchanging = 200;  // bytes/µs; slower links would take too long

double cpu_us() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

}  // namespace

Status InterProbe::receive_stream(Idle idle) {
  // The last block may arrive before earlier ones are answered.
  uint32_t end = 0;
  for (uint32_t answered = 0; end == 0 || answered < end; ++answered) {
    WEFT_TRY(wait(1, idle));
    if (end == 0) end = std::exchange(inbox_.phase_ends_, 0u);
    WEFT_TRY(send());
  }
  return {};
}

/// Puts the envelope's bytes from `from` to offset `to` of the peer's memory.
Status InterProbe::put(transport::Envelope envelope, const std::byte* from, size_t to, Puts* puts) {
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

void InterProbe::forget(const Puts& puts) {
  const engine::Lock lock = context_.lock();
  for (const auto& put : puts) transport_.forget(put.get(), put.get() + 1);
}

Result<InterProbe::Stream> InterProbe::send_stream(std::byte* memory, const Flow& flow) {
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
  // Buffers of the network take the first blocks at once.
  const size_t from = answered.size() / 4;
  const auto bytes = static_cast<double>(flow.block_bytes * (answered.size() - 1 - from));
  Stream stream;
  stream.bytes_per_us = bytes / std::max(static_cast<double>(answered.back() - answered[from]) / 1e3, 1e-3);
  stream.busy = std::clamp(worked_us / std::max(wall_us, 1e-3), 0.01, 1.0);
  return stream;
}

/// Waits until the puts have left: the peer's answer may come earlier.
Status InterProbe::wait_for_departure(const Puts& puts) {
  while (!std::all_of(puts.begin(), puts.end(), [](const auto& put) { return put->done; })) {
    if (deadline_.passed()) return fail(Code::timeout, "data for rank {} does not leave", peer_);
    const engine::Lock lock = context_.lock();
    WEFT_TRY(look());
  }
  return {};
}

/// Puts, and waits for a message of the peer.
Status InterProbe::put_and_wait(const transport::Envelope& envelope, const std::byte* from, size_t to) {
  Puts puts;
  Status status = put(envelope, from, to, &puts);
  if (status.ok()) status = wait(1);
  if (status.ok()) status = wait_for_departure(puts);
  if (!status.ok()) forget(puts);
  return status;
}

/// Returns the fastest of kStreams streams.
Result<InterProbe::Stream> InterProbe::stream(std::byte* memory, const Flow& flow) {
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

/// How long an exchange of pieces takes, with one piece sent while another arrives. Other work on the machine
/// makes exchanges slower, and nothing makes them faster. So the lower quartile counts.
Result<double> InterProbe::exchange_us(std::byte* memory, const Pieces& pieces) {
  const auto [bytes, span, times] = pieces;
  const transport::Envelope envelope = envelope_of(MessageKind::data, bytes);
  // The sent half lies before the received half.
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

/// Measures the CPU's part at both ends of a link that is faster than they are. A stream shows the cost of
/// sending. An exchange, in which both ranks send and receive, shows what receiving adds. An exchange of more
/// than the caches hold shows what memory adds.
Status InterProbe::measure_ends(model::Link* link) {
  Exposed memory(*this, 2 * kExchangedSpan);
  WEFT_TRY(memory.exchange());
  const Result<Stream> spun = stream(memory.data(), kBusy);
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
  // The time of one end for a byte. A stream may fill more caches than an exchange. Then the exchange takes
  // less than sending in a stream.
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

/// How many bytes an idle interface takes beyond its rate, `bytes_per_us`: from the time that a block takes
/// less after a pause.
Result<double> InterProbe::burst_bytes(std::byte* memory, double bytes_per_us, double one_way_us) {
  constexpr auto kBytes = static_cast<double>(kSparing.block_bytes);
  const transport::Envelope envelope = envelope_of(MessageKind::data, kSparing.block_bytes);
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

/// Measures the leader's CPU time for a message of a burst, and the peer's when all messages of the burst
/// have arrived. The first messages of a burst are written one by one. The least of kBehindBursts counts, in
/// which neither rank lost its core.
Status InterProbe::measure_burst(model::Link* link) {
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
      WEFT_TRY(send());  // the other messages wait for this write
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
  WEFT_TRY(meet());                                // the peer's next description would overwrite this one
  if (link == nullptr || sent_us <= 0) return {};  // the clock is too coarse
  // If congestion control sends a burst in several round trips, the burst does not show the CPU time.
  const double overhead_us = link->overhead_us > kMostOverhead * sent_us ? sent_us : link->overhead_us;
  link->alpha_us += 2 * (link->overhead_us - overhead_us);
  link->overhead_us = overhead_us;
  link->sending_us = std::clamp(sent_us, kLeastPart * link->overhead_us, kMostPart * link->overhead_us);
  link->behind_us = std::min(std::max(found_us, 0.001), model::receiving_us(*link));
  // Over other networks messages do not share writes.
  const bool gathers = context_.fabric().net() == transport::Net::tcp;
  link->gathered_us = gathers ? std::min(std::max(gathered_us, 0.001), link->sending_us) : 0;
  return {};
}

/// Sends what waits to be sent, and takes in what has arrived.
Status InterProbe::look() {
  const Result<int> events = context_.fabric().poll(context_.inbox(), true);
  return events.ok() ? Status() : events.status();
}

/// How long it takes to take in `messages` messages that have all arrived: the rank does not poll for
/// `arrival_us` before.
Result<double> InterProbe::find(uint32_t messages, double arrival_us) {
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

Status InterProbe::measure(model::Machine* machine) {
  model::Link* const link = machine ? &machine->inter : nullptr;
  WEFT_TRY(measure_messages(link, 200, 0.03));
  WEFT_TRY(measure_burst(link));
  Exposed memory(*this, kSparing.block_bytes);
  WEFT_TRY(memory.exchange());
  const Result<Stream> slept = stream(memory.data(), kSparing);
  if (!slept.ok()) return slept.status();
  const std::string transport = transport_.describe();
  const bool by_cpu =
      transport.find("efa") == std::string::npos && transport.find("verbs") == std::string::npos;
  // If the sender mostly sleeps, the stream's rate is the network's. If it works all the time, the network is
  // faster: then the stated rate of the interfaces counts, if it is higher.
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
