#include "job/gpu_tuning.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "engine/context/context.h"
#include "engine/run/communicator.h"
#include "job/tuning.h"
#include "topology/host.h"

namespace weft::job {
namespace {

using namespace engine;

constexpr uint64_t kShortBytes = 256 << 10, kLongBytes = 32 << 20, kStagedBytes = 4 << 20;
constexpr int kShortRounds = 50, kLongRounds = 5;
constexpr double kEnoughSeconds = 0.02;  // for one rate
constexpr double kLeastUs = 1e-2;        // what a clock tells apart
constexpr int64_t kLongNs = 100'000'000;
constexpr auto kBetweenLooks = std::chrono::microseconds(100);

/// GPU memory that goes when the measurement does: the executor's blocks would be kept.
class DeviceBytes {
 public:
  explicit DeviceBytes(cuda::Device& device) : device_(device) {}
  ~DeviceBytes() {
    if (pointer_) cuda::DeferredFree::instance().add_block(device_, cuda::BlockKind::device, data(), bytes_);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  Status allocate(size_t bytes) {
    const cuda::Scope scope(device_);
    bytes_ = bytes;
    return cuda::check((*cuda::driver())->mem_alloc(&pointer_, bytes),
                       fmt::format("{} bytes of GPU memory to measure with (cuMemAlloc)", bytes));
  }
  std::byte* data() const { return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pointer_)); }

 private:
  cuda::Device& device_;
  cuda::DevicePointer pointer_ = 0;
  size_t bytes_ = 0;
};

/// A block of the executor's that a neighbour measures with. Not memory of its own, which might be freed
/// while the neighbour has it mapped.
class LentBlock {
 public:
  LentBlock(DeviceExecutor& executor, Context& context) : executor_(executor), context_(context) {}
  ~LentBlock() {
    const Lock lock = context_.lock();
    executor_.device_blocks().give(block_);
  }
  LentBlock(const LentBlock&) = delete;
  LentBlock& operator=(const LentBlock&) = delete;

  /// Of no bytes where there is none to lend.
  cuda::SharedMemory describe(bool for_others) {
    const Lock lock = context_.lock();
    const cuda::Scope scope(executor_.device());
    if (auto block = executor_.device_blocks().take(kLongBytes)) block_ = *block;
    if (!block_.data) return {};
    auto described = executor_.exporter().describe(block_.data, kLongBytes, for_others);
    return described ? *described : cuda::SharedMemory();
  }

 private:
  DeviceExecutor& executor_;
  Context& context_;
  cuda::Block block_;
};

/// What one device does, in µs and bytes/µs.
struct Rates {
  double latency_us = 0;
  double step_us = 0;  // of it, the thread's
  double copy_short = 0, copy_long = 0;
  double reduce_short = 0, reduce_long = 0;  // of source bytes
  double to_host = 0, to_device = 0;
  double from_peer = 0;
};

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What tells whether two ranks share a device, or a process.
struct Residence {
  cuda::Uuid device{};
  uint64_t process = 0;
};

/// How many ranks of rank 0's node have its device, and how many have their steps done by its thread.
struct Sharing {
  int device_ranks = 1;
  int thread_ranks = 1;

  static Sharing of(const Communicator& comm, const std::vector<Residence>& residences) {
    const Residence& first = residences.front();
    Sharing sharing{0, 0};
    for (const int rank : comm.members().layout().on_node(comm.members().layout().node_of(0))) {
      const Residence& other = residences[static_cast<size_t>(rank)];
      sharing.device_ranks += std::memcmp(&first.device, &other.device, sizeof first.device) == 0;
      sharing.thread_ranks += first.process == other.process;
    }
    const int threads = std::max(settings().progress_threads, 1);
    sharing.thread_ranks = (sharing.thread_ranks + threads - 1) / threads;
    return sharing;
  }
};

/// Measures the device of rank 0, and its way to a neighbour's memory.
class Measurement {
 public:
  /// The device has `timeout_s` for all of it.
  Measurement(DeviceExecutor& executor, const model::Memory& host, bool shares, Lock& lock, double timeout_s)
      : executor_(executor),
        host_(host),
        shares_(shares),
        lock_(lock),
        timeout_s_(timeout_s),
        deadline_(Deadline::in_seconds(timeout_s)),
        queue_(executor.queue(0)),
        memory_(std::make_shared<DeviceBytes>(executor.device())) {}

  /// `neighbour`: kLongBytes of a rank of this node, or null if there is none that can be mapped. Errors:
  /// timeout, where the device does nothing any more; those of the driver.
  Status run(const cuda::SharedMemory* neighbour) WEFT_REQUIRES(context_lock);
  Rates rates;

 private:
  Status wait(const cuda::Ticket& ticket, int64_t* asked_ns = nullptr) WEFT_REQUIRES(context_lock);
  Result<double> median_us(int rounds, const std::function<Status()>& work) WEFT_REQUIRES(context_lock);
  Status rate(double& into, uint64_t bytes, int rounds, double latency_us,
              const std::function<Status()>& work) WEFT_REQUIRES(context_lock);
  Status measure(const cuda::SharedMemory* neighbour) WEFT_REQUIRES(context_lock);
  Status measure_calls() WEFT_REQUIRES(context_lock);
  Status measure_copies() WEFT_REQUIRES(context_lock);
  Status measure_reductions() WEFT_REQUIRES(context_lock);
  Status measure_peer(const cuda::SharedMemory* neighbour) WEFT_REQUIRES(context_lock);

  DeviceExecutor& executor_;
  const model::Memory& host_;
  const bool shares_;
  Lock& lock_;
  const double timeout_s_;
  const Deadline deadline_;
  cuda::Queue& queue_;
  const std::shared_ptr<DeviceBytes> memory_;
  cuda::Block staging_;  // host
  std::byte *into_ = nullptr, *first_ = nullptr, *second_ = nullptr;
};

/// `asked_ns`: when the question was put that the device answered with yes. Other threads get the lock where
/// the device takes longer than anything measured here.
Status Measurement::wait(const cuda::Ticket& ticket, int64_t* asked_ns) {
  const int64_t begin = now_ns();
  for (int64_t now = begin;; now = now_ns()) {
    if (asked_ns) *asked_ns = now;
    const auto done = ticket.done();
    if (!done || *done) return done.status();
    if (deadline_.passed())
      return fail(Code::timeout, "a copy or kernel that measures the device has not ended after {} s",
                  timeout_s_);
    if (now - begin > kLongNs) lock_.without([] { std::this_thread::sleep_for(kBetweenLooks); });
  }
}

/// Median duration of what `work` queues, after a first time that is not counted. Fewer rounds where they
/// take long.
Result<double> Measurement::median_us(int rounds, const std::function<Status()>& work) {
  std::vector<double> times;
  const Deadline enough = Deadline::in_seconds(kEnoughSeconds);
  for (int round = 0; round <= rounds && (round < 2 || !enough.passed()); ++round) {
    const int64_t begin = now_ns();
    WEFT_TRY(work());
    auto ticket = queue_.mark();
    if (!ticket) return ticket.status();
    WEFT_TRY(wait(*ticket));
    if (round > 0) times.push_back(static_cast<double>(now_ns() - begin) / 1e3);
  }
  return median(times);
}

Status Measurement::rate(double& into, uint64_t bytes, int rounds, double latency_us,
                         const std::function<Status()>& work) {
  auto took = median_us(rounds, work);
  if (!took) return took.status();
  into = static_cast<double>(bytes) / std::max(*took - latency_us, kLeastUs);
  return {};
}

Status Measurement::run(const cuda::SharedMemory* neighbour) {
  const cuda::Scope scope(executor_.device());
  const Status measured = measure(neighbour);
  if (measured.ok()) {
    executor_.host_blocks().give(staging_);
  } else {  // something may be under way
    PendingRelease release;
    release.memory.host.push_back(staging_);
    release.memory.other = memory_;
    executor_.leave(std::move(release));
  }
  return measured;
}

Status Measurement::measure(const cuda::SharedMemory* neighbour) {
  WEFT_TRY(memory_->allocate(3 * kLongBytes));
  into_ = memory_->data(), first_ = into_ + kLongBytes, second_ = first_ + kLongBytes;
  WEFT_TRY(measure_calls());
  WEFT_TRY(measure_copies());
  WEFT_TRY(measure_reductions());
  return measure_peer(neighbour);
}

Status Measurement::measure_calls() {
  std::vector<double> times;
  for (int round = 0; round < kShortRounds; ++round) {
    const int64_t begin = now_ns();
    WEFT_TRY(queue_.copy(into_, first_, sizeof(float)));
    auto ticket = queue_.mark();
    if (!ticket) return ticket.status();
    int64_t asked = now_ns();
    const int64_t queueing = asked - begin;
    WEFT_TRY(wait(*ticket, &asked));
    times.push_back(static_cast<double>(queueing + now_ns() - asked) / 1e3);
  }
  rates.step_us = median(times);
  return {};
}

Status Measurement::measure_copies() {
  auto latency = median_us(kShortRounds, [&] { return queue_.copy(into_, first_, sizeof(float)); });
  if (!latency) return latency.status();
  rates.latency_us = *latency;
  WEFT_TRY(rate(rates.copy_short, kShortBytes, kShortRounds, *latency,
                [&] { return queue_.copy(into_, first_, kShortBytes); }));
  WEFT_TRY(rate(rates.copy_long, kLongBytes, kLongRounds, *latency,
                [&] { return queue_.copy(into_, first_, kLongBytes); }));
  auto block = executor_.host_blocks().take(kStagedBytes);
  if (!block) return block.status();
  staging_ = *block;
  WEFT_TRY(rate(rates.to_host, kStagedBytes, kLongRounds, *latency,
                [&] { return queue_.copy(staging_.data, first_, kStagedBytes); }));
  return rate(rates.to_device, kStagedBytes, kLongRounds, *latency,
              [&] { return queue_.copy(into_, staging_.data, kStagedBytes); });
}

Status Measurement::measure_reductions() {
  if (!executor_.kernels()) {  // two sources to the host, their sum, and half as much back
    const auto on_host = [&](double adding) {
      return 1 / (1 / rates.to_host + 1 / adding + 0.5 / rates.to_device);
    };
    rates.reduce_short = on_host(host_.reduce_cached);
    rates.reduce_long = on_host(host_.reduce_large);
    return {};
  }
  const device::Reduction sum;
  const void* const sources[] = {first_, second_};
  const auto add = [&](uint64_t bytes) {
    return executor_.kernels()->reduce(queue_, sum, into_, sources, 2, bytes / sizeof(float));
  };
  WEFT_TRY(rate(rates.reduce_short, 2 * kShortBytes, kShortRounds, rates.latency_us,
                [&] { return add(kShortBytes); }));
  return rate(rates.reduce_long, 2 * kLongBytes, kLongRounds, rates.latency_us,
              [&] { return add(kLongBytes); });
}

Status Measurement::measure_peer(const cuda::SharedMemory* neighbour) {
  rates.from_peer = 1 / (1 / rates.to_host + 1 / rates.to_device);  // staged
  if (!shares_ || !neighbour) return {};
  auto reached = executor_.importer().reach(*neighbour);
  for (; reached && reached->closing && !deadline_.passed(); reached = executor_.importer().reach(*neighbour))
    lock_.without([] { std::this_thread::sleep_for(kBetweenLooks); });
  if (!reached || !reached->address) return reached ? reached->why : reached.status();
  return rate(rates.from_peer, kLongBytes, kLongRounds, rates.latency_us,
              [&, from = reached->address] { return queue_.copy(into_, from, kLongBytes); });
}

model::Machine machine_of(model::Machine machine, const Rates& rates, const Sharing& sharing, bool direct) {
  machine.engines = 1;
  machine.engine_us = rates.latency_us;
  machine.engine_step_us = std::min(rates.step_us, rates.latency_us);
  machine.device_ranks = sharing.device_ranks;
  machine.thread_ranks = sharing.thread_ranks;
  machine.cores = std::max(machine.cores, static_cast<double>(sharing.thread_ranks));  // no turns among them
  machine.memory.cache_bytes = 4 << 20;
  machine.memory.large_bytes = 0;
  machine.memory.copy_cached = rates.copy_short;
  machine.memory.copy_large = std::min(rates.copy_long, rates.copy_short);
  machine.memory.reduce_cached = rates.reduce_short;
  machine.memory.reduce_large = std::min(rates.reduce_long, rates.reduce_short);
  machine.intra.by_cpu = false;
  machine.intra.bytes_per_us = rates.from_peer;
  if (direct) return machine;
  const double slower = std::min(rates.to_host, rates.to_device);
  machine.inter.alpha_us += 2 * rates.latency_us;
  for (double* const rate :
       {&machine.inter.bytes_per_us, &machine.inter.received_bytes_per_us,
        &machine.inter.sent_large_bytes_per_us, &machine.inter.received_large_bytes_per_us})
    *rate = std::min(*rate, slower);
  machine.nic_bytes_per_us = std::min(machine.nic_bytes_per_us, slower);
  return machine;
}

model::Facts facts_for_gpu(const Communicator& comm, const DeviceExecutor& executor, const Sharing& sharing,
                           const topology::Host& host) {
  const Fabric& fabric = comm.context().fabric();
  model::Facts facts = facts_of(fabric, host);
  facts.host.emplace_back("gpu", executor.device().describe());
  facts.host.emplace_back(
      "gpu_use",
      fmt::format(
          "{} peers, {} between nodes, reductions by {}",
          comm.on_device().shares_memory ? "mapped" : "staged", comm.on_device().direct ? "direct" : "staged",
          executor.kernels() ? fmt::format("{} blocks", settings().cuda_blocks) : std::string("the CPU")));
  facts.host.emplace_back("gpu_sharing", fmt::format("{} ranks of a device, {} of a thread",
                                                     sharing.device_ranks, sharing.thread_ranks));
  return facts;
}

/// A collective on host memory among the communicator's ranks.
Status exchange(Communicator& comm, plan::Collective collective, const void* send, void* recv, size_t bytes) {
  Call call;
  call.collective = collective;
  call.send = send;
  call.recv = recv;
  call.count = bytes;
  call.type = device::DataType::uint8;
  return comm.run(call);
}

}  // namespace

Result<model::Machine> machine_for_gpu(Communicator& comm, DeviceExecutor& executor) {
  const Result<topology::Host>& host = topology::discover_host();
  Context& context = comm.context();
  const bool leads = comm.rank() == 0;
  const Residence here{executor.device().uuid(), cuda::process_number()};
  std::vector<Residence> residences(static_cast<size_t>(comm.size()));
  WEFT_TRY(exchange(comm, plan::Collective::all_gather, &here, residences.data(), sizeof here));
  const Sharing sharing = Sharing::of(comm, residences);
  MachineDecision decision{.measure = true, .machine = context.machine().machine};
  model::Facts facts;
  if (leads) {
    if (host.ok()) facts = facts_for_gpu(comm, executor, sharing, *host);
    auto known = host.ok() ? known_machine(facts) : context.machine().machine;
    decision.measure = !known;
    if (known) decision.machine = *known;
  }
  std::vector<std::byte> bytes = decision.packed();
  WEFT_TRY(exchange(comm, plan::Collective::broadcast, bytes.data(), bytes.data(), bytes.size()));
  decision = MachineDecision::unpack(bytes);
  if (!decision.measure) return decision.machine;

  // The neighbour lends a block until rank 0 has told the result. Rank 0 keeps it mapped, as any block.
  const auto& node = comm.members().layout().on_node(comm.members().layout().node_of(0));
  const int neighbour = node.size() > 1 ? node[1] : -1;
  LentBlock lent(executor, context);
  cuda::SharedMemory mine;
  if (comm.rank() == neighbour) mine = lent.describe(comm.on_device().shares_memory);
  std::vector<cuda::SharedMemory> offers(static_cast<size_t>(comm.size()));
  WEFT_TRY(exchange(comm, plan::Collective::all_gather, &mine, offers.data(), sizeof mine));
  if (leads) {
    Rates rates;
    Status measured;
    {
      Lock lock = context.lock();
      Measurement measurement(executor, context.machine().machine.memory, comm.on_device().shares_memory,
                              lock, comm.options().timeout_s);
      const bool offered = neighbour >= 0 && offers[static_cast<size_t>(neighbour)].bytes > 0;
      measured = measurement.run(offered ? &offers[static_cast<size_t>(neighbour)] : nullptr);
      rates = measurement.rates;
      (void)context.device_operations().settle_releases();
    }
    if (measured.code() == Code::timeout) return measured.in(executor.device().describe());
    if (measured.ok()) {
      decision.machine =
          machine_of(context.machine().machine, rates, sharing, comm.on_device().direct != nullptr);
      keep_machine(facts, decision.machine, true, context.machine().doubt);
    } else {
      log::warn(
          "{} could not be measured ({}): this run chooses algorithms as for host memory, which is right but "
          "may be slower; the next run measures again, WEFT_TUNE=off never does",
          executor.device().describe(), measured.message());
    }
    bytes = MachineDecision{.machine = decision.machine}.packed();
  }
  WEFT_TRY(exchange(comm, plan::Collective::broadcast, bytes.data(), bytes.data(), bytes.size()));
  return MachineDecision::unpack(bytes).machine;
}

}  // namespace weft::job
