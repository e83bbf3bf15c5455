#include "model/workers.h"

#include <algorithm>

#include "transport/helped.h"

namespace weft::model {
namespace {

using plan::Plan;
using plan::Step;
using plan::StepKind;

/// The length of a piece of a peer's memory that the engine reads and reduces.
constexpr uint64_t kReducedPieceBytes = 128 << 10;

/// The machine of a rank that shares its core. Some of its local peers are on that core, and what they hand
/// each other stays in its cache.
Machine crowded(const Machine& machine, const Turns& turns) {
  if (turns.crowd() <= 1) return machine;
  const double here = (turns.crowd() - 1) / (turns.ranks - 1);  // of the node-mates
  Machine seen = machine;
  for (double* rate : {&seen.intra.bytes_per_us, &seen.memory.mapped_near, &seen.memory.mapped_cached,
                       &seen.memory.mapped_large, &seen.memory.peer_cached, &seen.memory.peer_written})
    if (*rate > 0) *rate = 1 / ((1 - here) / *rate + here / std::max(*rate, machine.memory.copy_cached));
  return seen;
}

}  // namespace

void Workers::add(int node, int ranks, const Turns& turns, double speed, const Buffers& buffers) {
  const Machine seen = crowded(machine_, turns);
  const Memory& memory = seen.memory;
  // The ranks of a core use its caches in turn, and leave nothing there for each other. Scratch is used as
  // soon as it has been filled.
  const double crowd = turns.crowd();
  const auto in_caches = [crowd](uint64_t bytes) {
    return static_cast<uint64_t>(static_cast<double>(bytes) * crowd);
  };
  const uint64_t working_set_bytes = in_caches(buffers.working_set_bytes);
  Worker worker{.node = node};
  const bool shares_cores = machine_.shares_cores(ranks);
  worker.part_of_a_core = shares_cores && turns.cores == 0;
  worker.speed = speed;
  // A rank that takes no turns has a slower CPU: ranks that are not simulated have it meanwhile.
  worker.slowdown = (worker.part_of_a_core ? ranks / machine_.cores : 1.0) / speed;
  worker.large_share = large_share(memory, working_set_bytes);
  worker.rates.copy = rate_for(memory, working_set_bytes, memory.copy_cached, memory.copy_large);
  worker.rates.reduce = rate_for(memory, working_set_bytes, memory.reduce_cached, memory.reduce_large);
  worker.rates.peer = rate_for(memory, working_set_bytes, memory.peer_cached, memory.peer_large);
  worker.rates.peer_reduced = rate_for(memory, working_set_bytes, memory.peer_cached, memory.peer_reduced);
  const uint64_t scratch_set_bytes = std::min(2 * buffers.scratch_bytes, working_set_bytes);
  worker.rates.scratch_reduce =
      rate_for(memory, scratch_set_bytes, memory.reduce_cached, memory.reduce_large);
  // The data of peers is in the cache by then, but other ranks of the core have used the cache meanwhile.
  worker.rates.brought_reduce = crowd > 1 ? worker.rates.reduce : memory.reduce_cached;
  worker.rates.mapped = mapped_rate(memory, in_caches(buffers.handed_over.scratch_bytes));
  worker.rates.written =
      std::min(worker.rates.peer, written_rate(memory, in_caches(buffers.handed_over.output_bytes)));
  // Helping takes as long as putting into mapped scratch, where half of a copy happens in the cache. Half of
  // the copy of the reader that takes it happens in the cache, too.
  const uint64_t ahead = transport::help_ahead_bytes(static_cast<uint64_t>(std::max(ranks - 1, 1)));
  const double handed_us = 1 / mapped_rate(memory, ahead / HandedOver::kTakenSooner);
  worker.rates.helped = shares_cores ? 0 : 1 / (handed_us + 1 / worker.rates.copy);
  worker.rates.helped_reduced = shares_cores ? 0 : 1 / (handed_us + uncached_us(worker) / 2);
  worker.rates.slot = seen.intra.bytes_per_us;
  // Through the kernel's buffers, which all ranks of a core share: the core's other ranks change little.
  worker.rates.sent = sent_rate(machine_.inter, buffers.working_set_bytes);
  worker.rates.received = received_rate(machine_.inter, buffers.working_set_bytes);
  worker.rates.received_scratch =
      received_rate(machine_.inter, std::min(2 * buffers.scratch_bytes, buffers.working_set_bytes));
  nodes_.resize(std::max(nodes_.size(), static_cast<size_t>(node) + 1));
  Node& on = nodes_[static_cast<size_t>(node)];
  const auto begin_group = [local = on.ranks++](int group_ranks, std::vector<double>& free_us,
                                                size_t& group) {
    if (local % group_ranks != 0) return;
    group = free_us.size();
    free_us.push_back(0);
  };
  begin_group(machine_.thread_ranks, cpu_free_us_, on.thread);
  begin_group(machine_.device_ranks, device_free_us_, on.device);
  worker.thread = on.thread;
  worker.device = on.device;
  workers_.push_back(worker);
  engines_.resize(workers_.size() * static_cast<size_t>(machine_.engines), 0);
}

Workers::Span Workers::work(size_t rank, const Plan& plan, const Step& step, double now_us) {
  if (machine_.engines > 0) return work_on_engine(rank, plan, step, now_us);
  Worker& worker = workers_[rank];
  const bool reduces = step.kind == StepKind::reduce;
  const auto bytes = static_cast<double>(step.bytes), sources = static_cast<double>(step.source_count);
  // By counts, so that the order of sources does not show in the last bit.
  double own = 0, scratch = 0, peers = 0, mapped = 0, written = 0;
  for (const plan::Region& source : plan.sources_of(step)) {
    const bool is_scratch = source.space == plan::Space::scratch;
    if (source.rank == plan.rank) (is_scratch ? scratch : own) += 1;
    else (is_scratch ? mapped : peers) += 1;
    written += source.rank != plan.rank && source.space == plan::Space::output;
  }
  double service = machine_.step_us + mapped * bytes / worker.rates.mapped;
  if (reduces) {
    // The data of peers is in the cache by then.
    if (peers > 0)
      service += peers * read_us(plan, step, kReducedPieceBytes, worker.rates.peer_reduced,
                                 worker.rates.helped_reduced);
    service += own * bytes / worker.rates.reduce + scratch * bytes / worker.rates.scratch_reduce +
               (peers + mapped) * bytes / worker.rates.brought_reduce;
  } else {
    const double rate = written > 0 ? worker.rates.written : worker.rates.peer;
    if (peers > 0) service += peers * read_us(plan, step, step.bytes, rate, worker.rates.helped);
    service += (own + scratch) * bytes / worker.rates.copy;
  }
  const Span span = take_cpu(rank, now_us, service);
  if (machine_.memory.node_bytes_per_us > 0 && worker.large_share > 0) {
    double& free = nodes_[static_cast<size_t>(worker.node)].memory_free_us;
    const double rate = machine_.memory.node_bytes_per_us * worker.speed;
    free = std::max(free, span.start_us) + bytes * sources * worker.large_share / rate;
    double& cpu = cpu_free_us_[worker.thread];
    cpu = std::max(cpu, free);
  }
  return {span.start_us, free_us(rank)};
}

/// By the engine that is free first. It reads from peers while it works.
Workers::Span Workers::work_on_engine(size_t rank, const Plan& plan, const Step& step, double now_us) {
  Worker& worker = workers_[rank];
  const auto bytes = static_cast<double>(step.bytes);
  const Span told = take_cpu(rank, now_us, machine_.step_us + machine_.engine_step_us);
  const auto own = engines_.begin() + static_cast<ptrdiff_t>(rank) * machine_.engines;
  double& engine = *std::min_element(own, own + machine_.engines);
  const bool reduces = step.kind == StepKind::reduce;
  if (!reduces && machine_.device_ranks > 1 && all_on_device(rank, plan, step))
    return {told.start_us, take_device(rank, told.end_us + latency_us(), bytes)};
  const double begin = std::max(told.end_us + latency_us(), engine);
  double fetched = begin;
  for (const plan::Region& source : plan.sources_of(step)) {
    if (source.rank == plan.rank) continue;
    const size_t owner = owner_of(rank, plan, source);
    if (!shares_device(rank, owner)) fetched = take_links(owner, rank, fetched, bytes);
  }
  const double rate = reduces ? worker.rates.reduce / step.source_count : worker.rates.copy;
  engine = std::max(fetched, begin + bytes / (rate * worker.speed));
  return {told.start_us, engine};
}

Workers::Moved Workers::move_inside(size_t from, size_t to, double now_us, double cpu_us, double bytes) {
  const Span cpu = take_cpu(from, now_us, cpu_us + machine_.engine_step_us);
  const double begin = cpu.end_us + latency_us();
  return {cpu,
          shares_device(from, to) ? take_device(from, begin, bytes) : take_links(from, to, begin, bytes)};
}

double Workers::bring_in(size_t rank, double now_us, double bytes) {
  const double told = take_cpu(rank, now_us, machine_.engine_step_us).end_us;
  return told + latency_us() + bytes / workers_[rank].rates.copy;
}

bool Workers::all_on_device(size_t rank, const Plan& plan, const Step& step) const {
  const auto sources = plan.sources_of(step);
  return std::all_of(sources.begin(), sources.end(), [&](const plan::Region& source) {
    return shares_device(rank, owner_of(rank, plan, source));
  });
}

/// The device's copies take turns: they share its memory's bandwidth.
double Workers::take_device(size_t rank, double at_us, double bytes) {
  Worker& worker = workers_[rank];
  double& free = device_free_us_[worker.device];
  return free = std::max(at_us, free) + bytes / (worker.rates.copy * worker.speed);
}

/// A step's bytes read from a peer of the same node, or written to it, in pieces.
double Workers::single_copy_us(const Step& step, uint64_t piece_bytes, double rate) const {
  const auto pieces = static_cast<double>(step.bytes > piece_bytes ? (step.bytes - 1) / piece_bytes + 1 : 1);
  return pieces * machine_.memory.peer_us + static_cast<double>(step.bytes) / rate;
}

/// The same of a peer, which helps if that is quicker.
double Workers::read_us(const Plan& plan, const Step& step, uint64_t piece_bytes, double rate,
                        double helped_rate) const {
  const double alone_us = single_copy_us(step, piece_bytes, rate);
  const bool helped = transport::is_helped(step.bytes, plan::has_root(plan.request.collective));
  return helped && helped_rate > 0 ? std::min(alone_us, static_cast<double>(step.bytes) / helped_rate)
                                   : alone_us;
}

/// Bytes over the links of `from` and `to`, once both are free; returns when they are there.
double Workers::take_links(size_t from, size_t to, double at_us, double bytes) {
  Worker &source = workers_[from], &target = workers_[to];
  const double rate = machine_.intra.bytes_per_us * source.speed;
  const double end = std::max({at_us, source.out_free_us, target.in_free_us}) + bytes / rate;
  source.out_free_us = target.in_free_us = end;
  return end;
}

double Workers::moving_us(size_t rank, const Step& step, bool same_node, bool receives) const {
  const Link& link = same_node ? machine_.intra : machine_.inter;
  if (!link.by_cpu || step.kind != StepKind::put) return 0;
  const auto bytes = static_cast<double>(step.bytes);
  if (!same_node && !receives) return bytes / workers_[rank].rates.sent;
  if (!same_node) {
    const bool scratch = step.dst.space == plan::Space::scratch;
    return bytes / (scratch ? workers_[rank].rates.received_scratch : workers_[rank].rates.received);
  }
  if (step.bytes <= limits_.eager_bytes(same_node))
    return bytes / workers_[rank].rates.slot;  // into a slot, out of it
  if (receives) return 0;                      // the sender writes it there
  if (step.dst.space == plan::Space::scratch)  // and the source may have to come from memory
    return bytes / workers_[rank].rates.mapped + bytes * uncached_us(workers_[rank]);
  return single_copy_us(step, step.bytes, workers_[rank].rates.peer);
}

}  // namespace weft::model
