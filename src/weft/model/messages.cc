#include "model/messages.h"

#include <algorithm>
#include <utility>

namespace weft::model {
namespace {

using plan::Step;
using plan::StepId;
using plan::StepKind;

/// If CPUs move the bytes, the kernel keeps so many written bytes that have not left: unsent_bytes of
/// transport/tcp_transport.h, unless the bytes on their way have a lower bound.
constexpr uint64_t kUnsentBytes = 256 << 10;
/// … of which an interface's queue holds no more at a time, so that connections share it (TCP small queues).
constexpr double kQueuedBytes = 32 << 10;

double kept_us(const Machine& machine, const topology::Layout& layout) {
  const uint64_t bound = flight_bytes(machine, layout);
  const uint64_t bytes = bound > 0 ? std::min(bound, kUnsentBytes) : kUnsentBytes;
  return static_cast<double>(bytes) / machine.nic_bytes_per_us;
}

/// Messages that go together have a packet's headers once, and each its own header.
double headers_of(uint32_t flight) {
  return flight == kGathered ? kHeaderBytes / (kHeaderBytes + kPacketBytes) : 1;
}

double payload(const Step& step) { return step.kind == StepKind::put ? static_cast<double>(step.bytes) : 0; }

}  // namespace

Messages::Messages(const Machine& machine, const topology::Layout& layout, const plan::Limits& limits,
                   Ranks& ranks, Network& network, Workers& workers, Agenda& agenda, bool streams)
    : machine_(machine),
      limits_(limits),
      before_(streams ? transport::tcp::MessageBurst::long_since() : transport::tcp::MessageBurst()),
      kept_us_(kept_us(machine, layout)),
      queued_us_(kQueuedBytes / machine.nic_bytes_per_us),
      ranks_(ranks),
      network_(network),
      workers_(workers),
      agenda_(agenda) {}

double Messages::send(RankState& rank, StepId id, double now) {
  const Step& step = rank.step(id);
  const bool inside = ranks_.same_node(rank, step);
  const Link& link = inside ? machine_.intra : machine_.inter;
  Traffic& traffic = inside ? intra_ : inter_;
  ++traffic.messages;
  if (step.kind == StepKind::put) traffic.bytes += step.bytes;
  const double moving = workers_.moving_us(rank.worker, step, inside, /*receives=*/false);
  const Sent sends = inside ? Sent{link.overhead_us, false} : sent(rank, step, now);
  const double handling = handling_us(sends.cpu_us, step);
  bool waits = false;
  if (!inside && moving > 0 && !sends.gathered) {
    Line& line = rank.line_to(step.peer);
    waits = !has_room(line, now);
    ++line.underway;
  }
  if (inside && !link.by_cpu && step.kind == StepKind::put) {
    const size_t to = ranks_.receiver_of(rank, step).worker;
    const Workers::Moved moved = workers_.move_inside(rank.worker, to, now, handling, payload(step));
    agenda_.push(moved.cpu.end_us, EventKind::ended, rank, id, moved.there_us);
    return moved.cpu.start_us;
  }
  const Workers::Span cpu = workers_.take_cpu(rank.worker, now, handling + (waits ? 0 : moving));
  if (inside) {
    agenda_.push(cpu.end_us, EventKind::ended, rank, id, cpu.end_us);
  } else {
    const double handed_over = cpu.start_us + handling * workers_.slowdown(rank.worker);
    const uint32_t flight = sends.gathered ? kGathered : waits ? kUnwritten : kNoFlight;
    agenda_.push({handed_over, 0, cpu.end_us, rank.rank, id, flight, 0, EventKind::inject, rank.call}, rank);
  }
  return cpu.start_us;
}

void Messages::leave(const Event& event) {
  const RankState& rank = ranks_.of(event);
  agenda_.push(std::max(event.at_us, event.floor_us) + machine_.intra.alpha_us, EventKind::land, rank,
               event.step);
  if (event.floor_us > event.at_us) agenda_.push(event.floor_us, EventKind::released, rank, event.step);
}

void Messages::inject(const Event& event) {
  RankState& rank = ranks_.of(event);
  const Step& step = rank.step(event.step);
  if (event.flight == kGathered || !machine_.inter.by_cpu || payload(step) == 0) return leave_node(event);
  Line& line = rank.line_to(step.peer);
  --line.underway;
  if (event.flight != kUnwritten) return leave_node(event);
  const bool first = !line.waits();
  line.waiting.push_back(event);
  if (first) wait_for_room(line, event.at_us);
}

void Messages::write(const Event& event) {
  RankState& rank = ranks_.of(event);
  if (const double free_us = workers_.free_us(rank.worker); free_us > event.at_us) {
    Event later = event;  // others may have the interface first
    later.at_us = free_us;
    return agenda_.push(later, rank);
  }
  const Step& step = rank.step(event.step);
  const double moving = workers_.moving_us(rank.worker, step, /*same_node=*/false, /*receives=*/false);
  const Workers::Span cpu = workers_.take_cpu(rank.worker, event.at_us, moving);
  Event written = event;
  written.floor_us = cpu.end_us;
  written.flight = kNoFlight;
  leave_node(written);
  Line& line = rank.line_to(step.peer);
  line.write_one();
  if (line.waits()) wait_for_room(line, event.at_us);
}

/// The first put that waits is written once there is room for it.
void Messages::wait_for_room(const Line& line, double now) {
  Event event = line.waiting[line.written];
  event.at_us = std::max(now, line.free_us - queued_us_);
  event.kind = EventKind::write;
  agenda_.push(event, ranks_.of(event));
}

/// … where the interfaces take it, in stripes.
void Messages::leave_node(const Event& event) {
  RankState& rank = ranks_.of(event);
  const Step& step = rank.step(event.step);
  const int peer_node = ranks_.node_of(ranks_.peer_of(rank, step));
  const int from = ranks_.simulated_node(rank.node), to = ranks_.simulated_node(peer_node);
  const int stripes = network_.stripes(payload(step), from, to);
  const double bytes = payload(step) / stripes;
  uint32_t flight = event.flight;
  const double headers = headers_of(flight);
  if (stripes > 1) flight = take_flight({stripes, bytes, 0});
  double released = event.floor_us, last = 0;
  for (int stripe = 0; stripe < stripes; ++stripe) {
    const int rail = network_.rail(from, to, rank.next_rail++);
    const Network::Passage out = network_.egress(from, rail, peer_node, event.at_us, bytes, headers);
    const double gone = std::max({out.end_us, out.start_us + flow_us(rank, bytes), event.floor_us});
    released = std::max(released, reusable_us(out, gone));
    last = std::max(last, out.end_us);
    const bool core = network_.through_core(from, to);
    const double way = core ? 0 : machine_.inter.alpha_us;
    agenda_.push({out.start_us + way, 0, gone + way, rank.rank, event.step, flight,
                  static_cast<uint16_t>(rail), core ? EventKind::core : EventKind::wire, rank.call},
                 rank);
  }
  const bool waits = released > workers_.free_us(rank.worker);
  agenda_.push(released, waits ? EventKind::released : EventKind::taken, rank, event.step);
  if (machine_.inter.by_cpu && bytes > 0) rank.line_to(step.peer).free_us = last;
}

void Messages::core(const Event& event) {
  const RankState& sender = ranks_.of(event);
  const Step& step = sender.step(event.step);
  const double bytes = flies(event) ? flights_[event.flight].bytes : payload(step);
  const Network::Passage up = network_.uplink(sender.node, event.at_us, bytes);
  const int to = ranks_.node_of(ranks_.peer_of(sender, step));
  const Network::Passage down = network_.downlink(to, up.start_us, bytes);
  Event next = event;
  next.kind = EventKind::wire;
  next.at_us = down.start_us + machine_.inter.alpha_us;
  next.floor_us = std::max({event.floor_us, up.end_us, down.end_us}) + machine_.inter.alpha_us;
  agenda_.push(next, sender);
}

void Messages::wire(const Event& event) {
  const RankState& sender = ranks_.of(event);
  const Step& step = sender.step(event.step);
  Flight* const flight = flies(event) ? &flights_[event.flight] : nullptr;
  const double bytes = flight == nullptr ? payload(step) : flight->bytes;
  const int peer = ranks_.peer_of(sender, step), to = ranks_.simulated_node(ranks_.node_of(peer));
  const int from = ranks_.node_of(ranks_.seen_from(peer, sender));
  const Network::Passage in =
      network_.ingress(to, event.rail, from, event.at_us, bytes, headers_of(event.flight));
  double last_byte = std::max({in.end_us, in.start_us + flow_us(sender, bytes), event.floor_us});
  if (flight != nullptr) {
    last_byte = flight->last_byte_us = std::max(flight->last_byte_us, last_byte);
    if (--flight->left > 0) return;
    free_flights_.push_back(event.flight);
  }
  const bool streams = machine_.inter.by_cpu;  // the receiver's CPU moves bytes while they come in
  agenda_.pass_on(event, streams ? in.start_us : last_byte, EventKind::land, last_byte);
}

void Messages::file(const Event& event, double from_us, EventKind then) {
  const RankState& sender = ranks_.of(event);
  const Step& step = sender.step(event.step);
  const int peer = ranks_.peer_of(sender, step);
  RankState& receiver = ranks_.state_of(peer);
  const bool inside = ranks_.same_node(sender, step);
  const Link& link = inside ? machine_.intra : machine_.inter;
  const bool together =
      link.behind_us > 0 && read_together(receiver, ranks_.seen_from(peer, sender), event, from_us);
  receiver.looked += !together;
  const double message_us = together ? link.behind_us : receiving_us(link);
  const double handling = handling_us(inside ? message_us : message_us * share(sender, receiver), step);
  const double moving = workers_.moving_us(receiver.worker, step, inside, /*receives=*/true);
  const Workers::Span cpu = workers_.take_cpu(receiver.worker, from_us, handling + moving);
  double there_us = std::max(event.floor_us, cpu.end_us);
  if (inside && is_staged(step)) there_us = workers_.bring_in(receiver.worker, there_us, payload(step));
  if (there_us > cpu.end_us) agenda_.pass_on(event, there_us, EventKind::came);
  else agenda_.pass_on(event, cpu.end_us, then);
}

/// Whether a put of GPU memory lands in host memory: one that asks for no address of its receiver.
bool Messages::is_staged(const Step& step) const {
  return machine_.engine_step_us > 0 && !machine_.intra.by_cpu && step.kind == StepKind::put &&
         step.bytes <= limits_.eager_bytes(/*same_node=*/true);
}

/// A CPU's part in a message at either end, without its payload. A handle is made, or looked up, besides.
double Messages::handling_us(double message_us, const Step& step) const {
  return machine_.step_us + message_us * (step.exposes != plan::Space::none ? 2 : 1);
}

/// The part of a message's cost that there is between these two.
double Messages::share(const RankState& from, const RankState& to) const {
  const Cores& cores = agenda_.cores();
  if (!machine_.nodes_share_cores() || !cores.shared(from.worker) || !cores.shared(to.worker)) return 1;
  return cores.core_of(from.worker) == cores.core_of(to.worker) ? kSameCore : 1;
}

/// Whether a message was there when its receiver last read from the same sender, because it shared a write
/// with earlier ones. Else the receiver reads it now, together with the messages behind it.
bool Messages::read_together(RankState& receiver, int from, const Event& message, double from_us) const {
  if (message.flight == kGathered) return true;
  const double at_us = std::max(from_us, workers_.free_us(receiver.worker));
  for (Look& look : receiver.looks) {
    if (look.from != from) continue;
    if (message.at_us <= look.at_us) return true;
    look.at_us = at_us;
    return false;
  }
  receiver.looks.push_back({from, at_us});
  return false;
}

/// The sender's CPU time for a message between nodes, without its bytes, and whether it shares a write and a
/// packet's headers. All waiting messages go with the next poll, after a while, or when they are enough. The
/// cost of such a write is spread over its messages.
Messages::Sent Messages::sent(RankState& rank, const Step& step, double now) const {
  const Link& link = machine_.inter;
  const double part_of_it = share(rank, ranks_.receiver_of(rank, step));
  const double alone_us = sending_us(link) * part_of_it, gathered_us = link.gathered_us * part_of_it;
  if (gathered_us <= 0) return {alone_us, false};
  const double at_us = std::max(now, workers_.free_us(rank.worker));
  auto known = std::find_if(rank.sent.begin(), rank.sent.end(),
                            [&](const SentMessages& sent) { return sent.to == step.peer; });
  if (known == rank.sent.end())
    known = rank.sent.insert(known, {step.peer, before_, rank.looked, at_us, rank.writing_us});
  SentMessages& last = *known;
  const bool looked = std::exchange(last.looked, rank.looked) != rank.looked;
  const double since_us = at_us - std::exchange(last.at_us, at_us);
  const double written_us = rank.writing_us - last.writing_us;
  double part = 1;  // of a write
  const bool gathered =
      last.burst.add(rank.looked) && !looked && payload(step) <= transport::tcp::kCoalescedBytes;
  if (gathered) {
    const double of_wait = (since_us - written_us) * 1e3 / transport::tcp::kBurstWaitNs;
    const double of_queue = (kHeaderBytes + payload(step)) / transport::tcp::kCoalescedWriteBytes;
    part = std::min(std::max(of_wait, of_queue), 1.0);
  }
  rank.writing_us += part * alone_us;
  last.writing_us = rank.writing_us;
  return {gathered ? std::min(gathered_us + part * alone_us, alone_us) : alone_us, gathered};
}

/// One connection's time for a stripe between nodes, when nobody else is there.
double Messages::flow_us(const RankState& rank, double bytes) const {
  return bytes / workers_.flow_rate(rank.worker);
}

/// Whether the interface takes what a rank writes at `now` at once: of several interfaces one has room.
bool Messages::has_room(const Line& line, double now) const {
  if (machine_.rails > 1) return true;
  return line.underway == 0 && !line.waits() && line.free_us - queued_us_ <= now;
}

/// When the source of a stripe may be reused that has left at `gone_us`: then, or once the kernel has taken
/// it.
double Messages::reusable_us(const Network::Passage& out, double gone_us) const {
  return machine_.inter.by_cpu ? out.end_us - kept_us_ : gone_us;
}

uint32_t Messages::take_flight(const Flight& flight) {
  if (free_flights_.empty()) {
    flights_.push_back(flight);
    return static_cast<uint32_t>(flights_.size() - 1);
  }
  const uint32_t number = free_flights_.back();
  free_flights_.pop_back();
  flights_[number] = flight;
  return number;
}

}  // namespace weft::model
