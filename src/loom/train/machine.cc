// A few products, the best of which counts, and messages and collectives, of which medians count.
#include "train/machine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <set>
#include <thread>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "engine/arena.h"
#include "engine/tier.h"
#include "engine/weft_call.h"
#include "ops/operators.h"
#include "train/kernel_rates.h"
#include "train/rate_cache.h"
#include "train/threads.h"

namespace loom::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<Status()>& action, Status& status) {
  const auto begin = Clock::now();
  if (status.ok()) status = action();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A machine on which a byte takes a microsecond, and a message nothing besides.
program::Machine unit_machine(int ranks_per_node) {
  program::Machine unit;
  unit.ranks_per_node = ranks_per_node;
  unit.intra_bandwidth = unit.inter_bandwidth = 1e6;
  unit.intra_latency_us = unit.inter_latency_us = 0;
  return unit;
}

/// Bytes that the simulator sends over the slowest link in one such collective, of unit 0 or, between tensor
/// ranks, of `bytes` in all.
double simulated_bytes(const program::Job& job, program::Op op, int ranks_per_node, int64_t bytes) {
  program::Program one;
  const program::BufferId rows = one.add("rows", program::Category::activations, bytes);
  one.instructions.push_back({op, 0, -1, 1, {{program::Role::exchanged, rows, false, true}}, {}});
  program::Job fp32 = job;  // what is measured
  fp32.precision = program::Precision::fp32;
  return program::simulate(fp32, one, unit_machine(ranks_per_node)).intervals[0].end_us;
}

/// The same of one transfer to the next stage; all stages are there, and only the first two do anything.
double simulated_transfer(const program::Job& job, int ranks_per_node) {
  std::vector<program::Program> programs(static_cast<size_t>(job.pipeline_degree));
  for (int stage = 0; stage < job.pipeline_degree; ++stage)
    programs[static_cast<size_t>(stage)].stage = stage;
  programs[0].instructions.push_back({program::Op::send, 0, 0, 1, {}, {}, 1});
  programs[1].instructions.push_back({program::Op::receive, 0, 0, 1, {}, {}, 0});
  return program::simulate(job, programs, unit_machine(ranks_per_node)).stages[0].intervals[0].end_us;
}

constexpr int kRepeats = 7;  // of a link's measurement, of which the first opens connections

struct Link {
  double bandwidth = 0, latency_us = 0;
};

/// Medians of what a small and a large message take, in seconds: the best time of a link is one that a step
/// does not see again.
struct Times {
  double small = 0, large = 0;
  /// What the large one takes for its bytes; all of its time where noise has made the small one the longer.
  double of_bytes() const { return large > small ? large - small : large; }
};

double median(std::array<double, kRepeats>& times) {
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  return times[kRepeats / 2];
}

Times measured_times(const std::function<double()>& small, const std::function<double()>& large) {
  std::array<double, kRepeats> of_small{}, of_large{};
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    of_small[static_cast<size_t>(repeat)] = small();
    of_large[static_cast<size_t>(repeat)] = large();
  }
  return {median(of_small), median(of_large)};
}

constexpr int kRow = 3;  // large collectives that are timed together

constexpr size_t kShard = 256 << 10;  // elements of fp32 that a rank sends, or gives to a collective: 1 MiB

/// `run(elements)` does a collective of `comm`, of `hops` hops; that of `large` elements sends `bytes` over
/// its slowest link. It takes as long as the slowest rank says (by `told`), because a rank that comes late
/// finds the others' data there. All groups begin together, because a group alone on a link would measure
/// more of it than it will have. Large ones are back-to-back: a link that has rested lets some bytes through
/// at once (a cloud's burst credit, a token bucket), which a step that keeps it busy does not see.
Result<Link> measure_link(double bytes, size_t large, int hops, const engine::Groups& groups, weftComm_t comm,
                          double* told, const std::function<Status(size_t)>& run) {
  Status status;
  const auto slowest = [&](size_t elements) {
    if (status.ok()) status = groups.barrier();
    const int calls = elements == large ? kRow : 1;
    if (status.ok() && calls > 1) status = run(elements);
    *told = 0;
    for (int call = 0; call < calls; ++call) *told += seconds_of([&] { return run(elements); }, status);
    *told /= calls;
    if (status.ok())
      status = engine::from_weft(weftAllReduce(told, told, 1, weftFloat64, weftMax, comm, nullptr));
    return *told;
  };
  const Times times = measured_times([&] { return slowest(16); }, [&] { return slowest(large); });
  LOOM_TRY(status);
  return Link{bytes / times.of_bytes(), times.small * 1e6 / hops};
}

/// There and back between stages 2k and 2k + 1, all pairs at once: what a send takes by itself says little,
/// since it is over when the network has taken it. The last of an odd number of stages has nobody.
Result<Link> measure_transfer(const program::Job& job, const engine::Groups& groups, int ranks_per_node,
                              std::span<float> data) {
  const int stage = groups.coordinates().stage, peer = stage ^ 1;
  if (peer >= job.pipeline_degree) return Link{};
  const auto there_and_back = [&](size_t n) {
    for (const bool sends : {stage<peer, stage> peer})
      LOOM_TRY_WEFT(sends ? weftSend(data.data(), n, weftFloat32, peer, groups.pipeline(), nullptr)
                          : weftRecv(data.data(), n, weftFloat32, peer, groups.pipeline(), nullptr));
    return Status();
  };
  Status status;
  const auto one_way = [&](size_t n) { return seconds_of([&] { return there_and_back(n); }, status) / 2; };
  const Times times = measured_times([&] { return one_way(16); }, [&] { return one_way(data.size()); });
  LOOM_TRY(status);
  const double own = static_cast<double>(job.rows() * job.spec.width * job.element_bytes());
  const double bytes = simulated_transfer(job, ranks_per_node) * 4 * static_cast<double>(data.size()) / own;
  return Link{bytes / times.of_bytes(), times.small * 1e6};
}

/// How long a call on a stream holds its caller, of a message that it leaves to the progress thread, which
/// sleeps. Of all ranks, since there is always that group.
Result<double> measure_call(const engine::Groups& groups, std::span<float> data) {
  constexpr size_t kElements = 32 << 10;
  weftStream_t stream = nullptr;
  LOOM_TRY_WEFT(weftStreamCreate(&stream));
  Status status;
  std::array<double, kRepeats> seconds{};
  for (double& one : seconds) {
    if (status.ok()) status = groups.barrier();
    one = seconds_of(
        [&] {
          return engine::from_weft(weftAllReduce(data.data(), data.data(), kElements, weftFloat32, weftSum,
                                                 groups.world(), stream));
        },
        status);
    if (status.ok()) status = engine::from_weft(weftStreamSynchronize(stream));
  }
  const Status destroyed = engine::from_weft(weftStreamDestroy(stream));
  LOOM_TRY(status);
  LOOM_TRY(destroyed);
  return median(seconds) * 1e6;
}

/// What the groups of each kind reach, as the rate of the links that they go over, inside nodes or between
/// them. Where several kinds go over the same, the last one counts: tensor ranks', which computing waits for.
Status measure_links(const program::Job& job, const engine::Groups& groups, program::Machine& machine) {
  using program::GroupKind;
  if (groups.world() == nullptr) return {};
  const program::Layout layout = job.layout();
  const int node = machine.ranks_per_node;
  const auto take = [&](bool between_nodes, const Link& link) {
    (between_nodes ? machine.inter_bandwidth : machine.intra_bandwidth) = link.bandwidth;
    (between_nodes ? machine.inter_latency_us : machine.intra_latency_us) = link.latency_us;
  };
  const auto gathered = static_cast<size_t>(gathered_to_measure(job.degree)),
             exchanged = static_cast<size_t>(gathered_to_measure(job.tensor_degree));
  const auto degree = static_cast<size_t>(job.degree), tensors = static_cast<size_t>(job.tensor_degree);
  // Registered, as a step's memory is.
  const size_t elements = kShard + std::max(gathered * degree, exchanged * tensors);
  const auto comms = groups.communicators();
  constexpr size_t kTold = 64 / sizeof(float);  // in front, for a number
  const Result<engine::Arena> arena =
      engine::Arena::create(static_cast<int64_t>((kTold + elements) * sizeof(float)), comms);
  LOOM_TRY(groups.agree(arena.status()));
  const std::span<float> all(arena->as<float>() + kTold, elements);
  std::fill(all.begin(), all.end(), 0.0f);
  const std::span<float> shard = all.first(kShard), whole = all.subspan(kShard);
  const Result<double> call_us = measure_call(groups, shard);
  LOOM_TRY(call_us.status());
  machine.call_us = *call_us;
  if (groups.pipeline() != nullptr) {
    const Result<Link> link = measure_transfer(job, groups, node, shard);
    LOOM_TRY(link.status());
    program::Coordinates peer = groups.coordinates();
    peer.stage ^= 1;
    if (link->bandwidth > 0) take(layout.place(peer) / node != groups.place() / node, *link);
  }
  const auto collective = [&](GroupKind kind, double bytes, size_t large, int hops) -> Status {
    const weftComm_t comm = groups.of(kind);
    const Result<Link> link =
        measure_link(bytes, large, hops, groups, comm, arena->as<double>(), [&](size_t n) {
          return engine::from_weft(
              kind == GroupKind::replication
                  ? weftAllReduce(shard.data(), shard.data(), n, weftFloat32, weftSum, comm, nullptr)
                  : weftAllGather(shard.data(), whole.data(), n, weftFloat32, comm, nullptr));
        });
    LOOM_TRY(link.status());
    take(layout.spans_nodes(kind, groups.place(), node), *link);
    return {};
  };
  // Of unit 0's shard to what is measured with.
  const auto part = [&](size_t some) {
    return static_cast<double>(some) / static_cast<double>(job.shard(job.held_units()[0]));
  };
  if (groups.of(program::GroupKind::replication) != nullptr) {
    const double bytes = part(kShard) * simulated_bytes(job, program::Op::all_reduce, node, 0);
    LOOM_TRY(collective(GroupKind::replication, bytes, kShard, 2));
  }
  if (groups.partition() != nullptr) {
    const double bytes = part(gathered) * simulated_bytes(job, program::Op::gather, node, 0);
    LOOM_TRY(collective(GroupKind::partition, bytes, gathered, 1));
  }
  if (groups.tensor() != nullptr) {
    const auto all = static_cast<int64_t>(exchanged * tensors * sizeof(float));
    const double bytes = simulated_bytes(job, program::Op::tensor_gather, node, all);
    LOOM_TRY(collective(GroupKind::tensor, bytes, exchanged, 1));
  }
  return {};
}

/// What was measured with must not stay with the process, which is about to take its arena.
void give_back() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

int64_t gathered_to_measure(int ranks) {
  constexpr int64_t kAll = 8 << 20;  // elements: 32 MiB, as much as memory is measured with
  return std::min<int64_t>(kShard, kAll / ranks);
}

double measured_peak(int threads, program::Precision precision) {
  constexpr int64_t kRows = 1024, kWidth = 768;
  Workers workers(threads);
  return program::with_type(precision, [&]<typename T>(T) {
    const auto filled = [](int64_t elements, float value) {
      std::vector<T> values(static_cast<size_t>(elements));
      for (T& each : values) store(each, value);
      return values;
    };
    const std::vector<T> x = filled(kRows * kWidth, 0.5f), w = filled(kWidth * kWidth, 0.25f);
    std::vector<T> y(x.size());
    double best = 0;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto begin = Clock::now();
      ops::operators<T>().linear_forward(workers, x.data(), w.data(), nullptr, y.data(), kRows, kWidth,
                                         kWidth);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      best = std::max(best, 2.0 * kRows * kWidth * kWidth / seconds);
    }
    return best;
  });
}

Result<double> measured_tier_bandwidth(const std::string& folder, int64_t bytes) {
  constexpr int64_t kPiece = 4 << 20;  // like what a block leaves
  const int64_t pieces = std::max<int64_t>(1, bytes / kPiece);
  Result<std::unique_ptr<engine::Tier>> tier = engine::Tier::create(folder, pieces * kPiece);
  LOOM_TRY(tier.status());
  std::vector<std::byte> memory(kPiece, std::byte{1});
  const auto there_and_back = [&] {
    uint64_t last = 0;
    for (int64_t i = 0; i < pieces; ++i) last = (*tier)->store(i * kPiece, memory.data(), kPiece);
    for (int64_t i = pieces; i-- > 0;) last = (*tier)->load(i * kPiece, memory.data(), kPiece);
    return (*tier)->wait(last);
  };
  Status status;
  double best = 1e9;
  for (int repeat = 0; repeat < 2; ++repeat) best = std::min(best, seconds_of(there_and_back, status));
  LOOM_TRY(status);
  return 2.0 * static_cast<double>(pieces * kPiece) / std::max(1e-9, best);
}

namespace {

/// The cores that the ranks of this rank's machine may run on, or that its control group has, and who shares
/// them.
Result<program::SharedCores> find_shared_cores(const engine::Groups& groups, int threads) {
  struct Rank {
    uint64_t machine, set;
    int64_t cpus;
  };
  const AllowedCpus allowed = allowed_cpus();
  const Result<std::vector<Rank>> all = groups.gather(Rank{machine_id(), allowed.set, allowed.count});
  LOOM_TRY(all.status());
  program::SharedCores shared{0, 0, threads};
  std::set<uint64_t> counted;
  for (const Rank& rank : *all) {
    if (rank.machine != machine_id()) continue;
    ++shared.ranks;
    if (counted.insert(rank.set).second) shared.cores += static_cast<double>(rank.cpus);
  }
  shared.cores = std::min(shared.cores, static_cast<double>(std::thread::hardware_concurrency()));
  if (const GroupLimit quota = cpu_limit(); quota.limited)
    shared.cores = std::min(shared.cores, quota.amount);
  return shared;
}

/// Whether all ranks have rates: one that has none must not measure while the others go on.
Result<bool> all_have(bool own, const engine::Groups& groups) {
  const Result<int64_t> lacking = groups.most(own ? 0 : 1);
  LOOM_TRY(lacking.status());
  return *lacking == 0;
}

}  // namespace

Result<program::Machine> measure_machine(const program::Job& job, const engine::Groups& groups, int threads,
                                         const std::string& tier_folder, RateCache* cache) {
  program::Machine machine;
  machine.ranks_per_node = std::max(1, groups.ranks() / groups.nodes());
  const Result<program::SharedCores> shared = find_shared_cores(groups, threads);
  LOOM_TRY(shared.status());
  const format::Json facts = rate_facts(job, *shared, tier_folder);
  const Result<bool> known =
      all_have(cache != nullptr && !cache->remeasure && read_rates(cache->folder, facts, machine), groups);
  LOOM_TRY(known.status());
  if (!*known) {  // all at once: ranks share memory's bandwidth, and the disk's
    LOOM_TRY(groups.barrier());
    {
      Workers workers(threads);
      LOOM_TRY(groups.agree(workers.started()));
      measure_kernels(workers, job, machine);
    }
    if (job.offload) {
      const Result<double> bandwidth = measured_tier_bandwidth(tier_folder, kTierBytes);
      LOOM_TRY(groups.agree(bandwidth.status()));
      machine.tier_bandwidth = *bandwidth;
    }
    if (cache != nullptr) cache->kept = keep_rates(cache->folder, facts, machine);
  }
  machine.shared = *shared;
  // Inside a node cores move the bytes: where all of them compute, what they move holds up computing.
  if (groups.nodes() == 1 && shared->ranks * shared->threads >= shared->cores) machine.traffic.hidden = 0;
  LOOM_TRY(measure_links(job, groups, machine));
  give_back();
  return machine;
}

}  // namespace loom::train
