#include "engine/probe.h"

#include <sched.h>
#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/communicator.h"

namespace weft::engine {
namespace {

// Longer than ranks that do not take part go on yielding before they sleep (WEFT_YIELD_US), so that these two
// have their cores.
constexpr double kWarmUpSeconds = 0.005;
constexpr size_t kEagerProbe = 16 << 10;
constexpr int kRows = 4, kSleepingRounds = 10;
constexpr double kSlowestSharedMemory = 10;  // times what is usual
constexpr int kBurst = 32;                   // messages; a FIFO takes them without a look from the other side
// Reads of a peer's memory: what tells the system call from the bytes, and memory beyond the caches.
constexpr size_t kShortRead = 64, kCachedRead = 256 << 10, kLargeRead = 16 << 20, kReducedPiece = 128 << 10;
constexpr size_t kMappedPiece = 512 << 10;  // a slice
constexpr size_t kStreamBlock = 256 << 10;
constexpr int kStreamWindow = 4;  // blocks on their way
constexpr int kStreams = 2;       // for congestion control that has misjudged the line is slow for a while
constexpr int64_t kStreamNs = 60'000'000;
constexpr size_t kStreamBytes = 64 << 20;  // at most

double us_since(int64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) / 1e3; }

double cpu_us() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

}  // namespace

ProbeInbox::ProbeInbox(Context& context) : context_(context), landing_(kStreamBlock) {
  const Lock lock = context_.lock();
  context_.set_probe(this);
}

ProbeInbox::~ProbeInbox() {
  const Lock lock = context_.lock();
  context_.set_probe(nullptr);
}

void* ProbeInbox::place(const transport::Envelope& envelope) {
  const bool fits = envelope.offset == 0 && envelope.bytes <= landing_.size();
  return fits && static_cast<MessageKind>(envelope.kind) == MessageKind::data ? landing_.data() : nullptr;
}

void ProbeInbox::arrived(int peer, const transport::Envelope& envelope, const void* payload) {
  if (peer_ >= 0 && peer != peer_) return;  // late, from a probe that failed
  if (static_cast<MessageKind>(envelope.kind) == MessageKind::expose) {
    if (payload && envelope.bytes == sizeof exposed_) std::memcpy(&exposed_, payload, sizeof exposed_);
  } else if (payload && envelope.bytes <= landing_.size()) {
    std::memcpy(landing_.data(), payload, envelope.bytes);
  }
  last_ = last_ || envelope.tag() != 0;  // messages may overtake each other
  ++count_;
}

Probe::Probe(Context& context, ProbeInbox& inbox, uint32_t comm, int peer, Deadline deadline)
    : context_(context),
      inbox_(inbox),
      comm_(comm),
      peer_(peer),
      leads_(context.rank() == 0),
      transport_(*context.fabric().route(peer)),
      door_(transport_.same_process(peer) ? Door::find({context.job(), comm, peer}) : nullptr),
      network_(!context.fabric().is_local(peer)),
      deadline_(deadline) {
  if (!leads_) return;  // its leader's first messages may be there
  const Lock lock = context_.lock();
  inbox_.peer_ = peer_;
  inbox_.count_ = 0;
}

// ---- messages

transport::Envelope Probe::envelope_of(MessageKind kind, size_t bytes) const {
  transport::Envelope envelope;
  envelope.comm = comm_;
  envelope.op = kProbeNumber;
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
    Lock lock = context_.lock();
    const Result<transport::Progress> sent = transport_.send(peer_, envelope, payload);
    if (!sent) return sent.status();
    if (*sent == transport::Progress::accepted) return {};
    context_.turn();
    if (deadline_.passed()) return fail(Code::timeout, "rank {} takes no messages", peer_);
  }
}

/// Returns when so many more messages have come.
Status Probe::wait(uint32_t messages, Idle idle) {
  taken_ += messages;
  Fabric& fabric = context_.fabric();
  for (uint32_t turns = 1;; ++turns) {
    {
      Lock lock = context_.lock();
      // Inside a node only shared memory is looked at: a look at the network costs more than a message.
      const Result<int> events = fabric.poll(context_, network_ || turns % 64 == 0);
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

/// `rounds` round trips, or fewer where they take longer than `seconds`.
Result<Probe::Row> Probe::row_us(size_t bytes, int rounds, double seconds, Idle idle) {
  const std::vector<std::byte> payload(bytes);
  Row row;
  if (!leads_) {
    do {
      WEFT_TRY(wait(1, idle));
      const bool last = std::exchange(inbox_.last_, false);
      WEFT_TRY(send(false, payload.data(), bytes));
      if (last) return row;
    } while (true);
  }
  const Deadline enough = Deadline::in_seconds(seconds);
  for (int round = 0;; ++round) {
    const bool last = round > rounds || (round > 3 && enough.passed());
    const int64_t begin = now_ns();
    WEFT_TRY(send(last, payload.data(), bytes));
    WEFT_TRY(wait(1, idle));
    if (round > 0) row.push_back(us_since(begin) / 2);  // the first opens connections
    if (last) return row;
  }
}

/// Half a round trip of all these, in rows. Sleeping ranks find a core when spinning ones share one, and
/// leave the scheduler time to find another.
Result<double> Probe::one_way_us(size_t bytes, int rounds, double seconds) {
  std::vector<Row> spun, slept;
  for (int pair = 0; pair < kRows; ++pair) {
    Result<Row> row = row_us(bytes, rounds / kRows, seconds / kRows, Idle::spin);
    if (!row.ok()) return row.status();
    spun.push_back(row.take());
    row = row_us(bytes, kSleepingRounds, seconds / kRows, Idle::sleep);
    if (!row.ok()) return row.status();
    slept.push_back(row.take());
  }
  const model::Latency latency = model::agree(spun, slept, context_.fabric().cpus_on_machine() < 2);
  if (doubt_.empty()) doubt_ = latency.doubt;
  return latency.us;
}

/// CPU time of a message at the busier end: what more of them in a row cost. Fewer than `rounds` where they
/// take longer than `seconds`.
Result<double> Probe::overhead_us(int rounds, double seconds) {
  if (!leads_) {
    for (int round = 0;; ++round) {
      WEFT_TRY(wait(round % 2 == 0 ? 1 : kBurst + 1));
      const bool last = std::exchange(inbox_.last_, false);
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
    for (int more = alone ? 0 : kBurst; more > 0; --more) WEFT_TRY(send());
    WEFT_TRY(send(last));
    WEFT_TRY(wait(1));
    (alone ? single : burst).push_back(us_since(begin));
    if (last) return std::max(model::median(burst) - model::median(single), 0.0) / kBurst;
  }
}

Status Probe::measure_messages(model::Link* link, int rounds, double seconds) {
  const Result<double> one_way = one_way_us(0, rounds, seconds);
  if (!one_way.ok()) return one_way.status();
  const Result<double> overhead = overhead_us(15, seconds);
  if (!overhead.ok()) return overhead.status();
  if (link == nullptr) return {};
  // Shared memory that seems slow is a rank that had no core.
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
  const Lock lock = probe_.context_.lock();
  if (Result<ScratchPool::Block> block = probe_.context_.scratch().take(bytes); block.ok()) {
    window_ = *block;
    data_ = window_.data;
  }
}

Probe::Exposed::~Exposed() {
  const Lock lock = probe_.context_.lock();
  ScratchPool& scratch = probe_.context_.scratch();
  if (window_.data != nullptr && buffer_) scratch.retire(window_, now_ns());
  else if (window_.data != nullptr) scratch.give(window_);
  else if (buffer_) probe_.context_.keep(std::move(memory_));
}

void Probe::Exposed::take_back() {
  const Lock lock = probe_.context_.lock();
  probe_.transport_.unexpose(*buffer_);
  buffer_.reset();
}

Status Probe::Exposed::exchange() {
  {
    const Lock lock = probe_.context_.lock();
    const Result<transport::RemoteBuffer> own = probe_.transport_.expose(data_, bytes_);
    if (!own) return own.status();
    buffer_ = *own;
  }
  return probe_.swap(*buffer_);
}

/// Each rank sends the other a description, and has its in the inbox then.
Status Probe::swap(const transport::RemoteBuffer& mine) {
  WEFT_TRY(send(envelope_of(MessageKind::expose, sizeof mine), &mine));
  return wait(1);
}

// ---- inside a node

/// Returns when the other has called it, too.
Status Probe::meet() {
  if (leads_) WEFT_TRY(send());
  WEFT_TRY(wait(1));
  return leads_ ? Status() : send();
}

/// Median duration of reading from the peer's memory while it reads ours.
Result<double> Probe::read_us(std::byte* into, const Reads& reads) {
  WEFT_TRY(meet());
  std::vector<double> durations;
  for (int i = 0; i <= reads.times; ++i) {
    if (reads.fresh != nullptr) {
      std::memset(reads.fresh, i, reads.bytes);
      WEFT_TRY(meet());
    }
    const int64_t begin = now_ns();
    {
      Lock lock = context_.lock();
      const size_t at = reads.span_bytes == 0 ? 0 : static_cast<size_t>(i) * reads.bytes % reads.span_bytes;
      const Visit visit(context_.visitor());
      if (!visit.admitted(door_.get())) return fail(Code::remote_error, "rank {} has given up", peer_);
      WEFT_TRY(transport_.read(peer_, inbox_.exposed_, at, into, reads.bytes));
    }
    if (i > 0) durations.push_back(us_since(begin));
    if (reads.fresh != nullptr) WEFT_TRY(meet());
  }
  return std::max(model::median(durations), 1e-3);
}

Status Probe::measure_reads(model::Memory* memory) {
  if (!transport_.reads_peers()) {
    // Long data is staged in windows that peers map: copied in, and out again.
    if (memory != nullptr) {
      memory->peer_cached = memory->copy_cached / 2;
      memory->peer_large = memory->copy_large / 2;
      memory->peer_reduced = memory->peer_large;
      memory->peer_us = 0.1;
    }
    return {};
  }
  Exposed ours(*this, kLargeRead);
  std::vector<std::byte> theirs(kLargeRead, std::byte{2});
  WEFT_TRY(ours.exchange());
  const Result<double> little = read_us(theirs.data(), {.bytes = kShortRead, .times = 60});
  if (!little.ok()) return little.status();
  const Result<double> cached =
      read_us(theirs.data(), {.bytes = kCachedRead, .times = 30, .fresh = ours.data()});
  if (!cached.ok()) return cached.status();
  const Result<double> large = read_us(theirs.data(), {.bytes = kLargeRead, .times = 3});
  if (!large.ok()) return large.status();
  const Result<double> pieces =
      read_us(theirs.data(), {.bytes = kReducedPiece, .times = 60, .span_bytes = kLargeRead});
  if (!pieces.ok()) return pieces.status();
  // Neither goes on and frees its memory while the other reads.
  WEFT_TRY(meet());
  ours.take_back();
  if (memory == nullptr) return {};
  const model::Memory stated = *memory;
  const double rate = kCachedRead / std::max(*cached - *little, 1e-3);
  memory->peer_cached = model::plausible(rate, stated.peer_cached);
  memory->peer_us = std::clamp(*little, 0.1, 50.0);
  memory->peer_large =
      std::min(model::plausible(kLargeRead / *large, stated.peer_large), memory->peer_cached);
  memory->peer_reduced =
      std::clamp(model::plausible(kReducedPiece / std::max(*pieces - *little, 1e-3), stated.peer_reduced),
                 memory->peer_large, memory->peer_cached);
  return {};
}

/// Whether both ranks can go on; each says of itself.
Result<bool> Probe::both(bool mine) {
  WEFT_TRY(swap({.bytes = mine}));
  return mine && inbox_.exposed_.bytes != 0;
}

/// Median of what it costs both ranks together to hand a piece over through mapped memory: one writes it into
/// `theirs`, the other's window, and that copies it out of there. They do so at once, in both directions.
Result<double> Probe::hand_over_us(std::byte* window, std::byte* theirs, const Handover& handover) {
  const auto [bytes, span, times] = handover;
  std::vector<std::byte> from(span, std::byte{1}), into(span, std::byte{2});
  const int warm = static_cast<int>(span / bytes);  // scratch is used again and again: its pages are there
  std::vector<double> durations;
  for (int i = 0; i < warm + times; ++i) {
    const size_t at = static_cast<size_t>(i) * bytes % span;
    if (span == bytes) std::memset(from.data(), i, bytes);  // as fresh as what programs send
    WEFT_TRY(meet());
    const int64_t begin = now_ns();
    {
      const Lock lock = context_.lock();
      const Visit visit(context_.visitor());
      if (!visit.admitted(door_.get())) return fail(Code::remote_error, "rank {} has given up", peer_);
      std::memcpy(theirs + at, from.data() + at, bytes);
    }
    const double putting_us = us_since(begin);
    WEFT_TRY(meet());
    const int64_t there = now_ns();
    std::memcpy(into.data() + at, window + at, bytes);
    if (i >= warm) durations.push_back(putting_us + us_since(there));
  }
  return std::max(model::median(durations), 1e-3);
}

/// Without memory for it, or where a rank cannot map the other's, what is stated stays.
Status Probe::measure_mapped(model::Memory* memory) {
  Exposed ours(*this, kLargeRead, Exposed::In::window);
  Result<bool> can = both(ours.data() != nullptr);
  if (!can.ok() || !*can) return can.status();
  WEFT_TRY(ours.exchange());
  transport::MappedBuffer theirs;
  {
    const Lock lock = context_.lock();
    theirs = transport_.map(peer_, inbox_.exposed_);
  }
  can = both(theirs.address != nullptr);
  if (!can.ok()) return can.status();
  if (*can) WEFT_TRY(measure_slices(ours.data(), theirs.address, memory));
  WEFT_TRY(meet());
  ours.take_back();
  return {};
}

Status Probe::measure_slices(std::byte* window, std::byte* theirs, model::Memory* memory) {
  Handover slices{.piece_bytes = kMappedPiece, .span_bytes = kMappedPiece, .times = 31};
  const Result<double> cached = hand_over_us(window, theirs, slices);
  if (!cached.ok()) return cached.status();
  slices.span_bytes = kLargeRead;
  const Result<double> large = hand_over_us(window, theirs, slices);
  if (!large.ok()) return large.status();
  if (memory == nullptr) return {};
  const model::Memory stated = *memory;
  // The owner's copy out of its own memory is charged as such.
  const auto rate = [](double us, double copied) {
    return kMappedPiece / std::max(us - kMappedPiece / copied, us / 3);
  };
  memory->mapped_cached = model::plausible(rate(*cached, memory->copy_cached), stated.mapped_cached);
  memory->mapped_large = std::min(model::plausible(rate(*large, memory->copy_large), stated.mapped_large),
                                  memory->mapped_cached);
  return {};
}

Status Probe::measure_intra(model::Machine* machine) {
  model::Link* const link = machine ? &machine->intra : nullptr;
  if (const Result<Row> warm = row_us(0, 100'000, kWarmUpSeconds, Idle::spin); !warm.ok())
    return warm.status();
  WEFT_TRY(measure_messages(link, 2000, 0.02));
  const size_t bytes = std::min(kEagerProbe, transport_.eager_bytes());
  const Result<double> one_way = one_way_us(bytes, 500, 0.02);
  if (!one_way.ok()) return one_way.status();
  if (link != nullptr) {
    // Copied into the FIFO and out of it.
    const double moving = std::max(*one_way - link->alpha_us - 2 * link->overhead_us, 1e-3);
    link->bytes_per_us = model::plausible(2 * static_cast<double>(bytes) / moving, link->bytes_per_us);
  }
  WEFT_TRY(measure_reads(machine ? &machine->memory : nullptr));
  return measure_mapped(machine ? &machine->memory : nullptr);
}

// ---- between nodes

Status Probe::receive_stream() {
  for (bool last = false; !last;) {
    WEFT_TRY(wait(1, Idle::sleep));
    last = std::exchange(inbox_.last_, false);
    WEFT_TRY(send());
  }
  return {};
}

Result<Probe::Stream> Probe::send_stream(std::byte* memory) {
  transport::Envelope envelope = envelope_of(MessageKind::data, kStreamBlock);
  const Deadline enough = Deadline::in_seconds(kStreamNs / 1e9);
  Puts puts;
  std::vector<int64_t> answered;
  Status status;
  bool last = false;
  const int64_t begin = now_ns();
  const double cpu_begin = cpu_us();
  while (status.ok() && answered.size() < puts.size() + !last) {
    if (!last && puts.size() < answered.size() + kStreamWindow) {
      last = puts.size() >= 8 && (enough.passed() || puts.size() * kStreamBlock >= kStreamBytes);
      envelope.set_tag(last);
      puts.push_back(std::make_unique<transport::Completion>());
      Lock lock = context_.lock();
      Result<transport::Progress> put = transport::Progress::busy;
      while (
          (put = transport_.put(peer_, envelope, memory, kStreamBlock, inbox_.exposed_, 0, puts.back().get()))
              .ok() &&
          *put == transport::Progress::busy && !deadline_.passed())
        context_.turn();
      if (!put.ok()) status = put.status();
      else if (*put == transport::Progress::busy)
        status = fail(Code::timeout, "rank {} takes no data", peer_);
      continue;
    }
    status = wait(1, Idle::sleep);
    answered.push_back(now_ns());
  }
  const double wall_us = us_since(begin), worked_us = cpu_us() - cpu_begin;
  if (status.ok()) status = wait_for_departure(puts);
  if (!status.ok()) {
    Lock lock = context_.lock();
    for (const auto& put : puts) transport_.forget(put.get(), put.get() + 1);
    return status;
  }
  // Buffers on the way take the first blocks in at once.
  const size_t from = answered.size() / 4;
  const auto bytes = static_cast<double>(kStreamBlock * (answered.size() - 1 - from));
  Stream stream;
  stream.bytes_per_us = bytes / std::max(static_cast<double>(answered.back() - answered[from]) / 1e3, 1e-3);
  stream.busy = std::clamp(worked_us / std::max(wall_us, 1e-3), 0.01, 1.0);
  return stream;
}

/// The peer may have answered a put before it is known here to have left.
Status Probe::wait_for_departure(const Puts& puts) {
  while (!std::all_of(puts.begin(), puts.end(), [](const auto& put) { return put->done; })) {
    if (deadline_.passed()) return fail(Code::timeout, "data for rank {} does not leave", peer_);
    Lock lock = context_.lock();
    const Result<int> polled = context_.fabric().poll(context_, true);
    if (!polled) return polled.status();
  }
  return {};
}

Status Probe::measure_inter(model::Machine* machine) {
  model::Link* const link = machine ? &machine->inter : nullptr;
  if (const Result<Row> warm = row_us(0, 100'000, kWarmUpSeconds, Idle::spin); !warm.ok())
    return warm.status();
  WEFT_TRY(measure_messages(link, 200, 0.03));
  Exposed memory(*this, kStreamBlock);
  WEFT_TRY(memory.exchange());
  Stream fastest;
  for (int stream = 0; stream < kStreams; ++stream) {
    if (!leads_) {
      WEFT_TRY(receive_stream());
      continue;
    }
    const Result<Stream> streamed = send_stream(memory.data());
    if (!streamed.ok()) return streamed.status();
    if (streamed->bytes_per_us > fastest.bytes_per_us) fastest = *streamed;
  }
  memory.take_back();
  if (machine == nullptr) return {};
  const std::string transport = transport_.describe();
  link->by_cpu = transport.find("efa") == std::string::npos && transport.find("verbs") == std::string::npos;
  const double rate = std::clamp(fastest.bytes_per_us, 0.01, 1e6);
  // A sender that mostly sleeps is held up by the network. One that works all the time is slower than it:
  // there what the interfaces state stands, if it is more.
  const bool network_bound = !link->by_cpu || fastest.busy < 0.6;
  const bool loopback = context_.fabric().one_machine();
  machine->nic_bytes_per_us = network_bound || loopback
                                  ? rate / machine->rails
                                  : std::max(rate / machine->rails, machine->nic_bytes_per_us);
  link->bytes_per_us =
      network_bound && link->by_cpu ? std::max(rate, std::min(rate / fastest.busy, 20000.0)) : rate;
  return {};
}

}  // namespace weft::engine
