#include "job/tuning.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "base/thread.h"
#include "engine/context/context.h"
#include "engine/run/communicator.h"
#include "job/probe_inter.h"
#include "job/probe_intra.h"
#include "model/calibrate.h"
#include "model/cores.h"
#include "model/machine_cache.h"
#include "model/measure.h"
#include "topology/host.h"

namespace weft::job {
namespace {

using engine::Call;
using engine::Lock;

// The longest measurement of a link that works.
#if defined(__SANITIZE_THREAD__)
constexpr double kProbeSeconds = 20;  // two threads that wait for each other take ten times as long
#else
constexpr double kProbeSeconds = 2;
#endif
// Calls by one algorithm in which all ranks wait for all. One takes a few µs for each rank, and milliseconds
// where ranks share cores with other programs.
constexpr int kRow = 5, kMostRows = 21, kFewestRows = 3, kMeetingsOfOneRank = 400;
constexpr int kMostPasses = 5, kPassesOfOneRank = 64;
constexpr int kLargeJob = 32;  // ranks
// Back-to-back Broadcasts: in the longer streaks, and in the shorter ones.
constexpr int kBroadcasts = 512, kFewBroadcasts = 128;
constexpr int kStreaksBetweenNodes = 5, kSomeCalls = 16;
constexpr const char *kRing = "ring", *kStar = "one_hop";
constexpr const char* kReading = "direct";
// Lengths beyond the caches, and inside them.
constexpr size_t kMedium = 256 << 10, kLongest = 4 << 20;
constexpr int kLongRows = 7;
constexpr int kMostOfACore = 4;  // ranks on a core; more would take too long

/// Whether ranks share cores: up to kMostOfACore on one, or more.
enum class Crowd : uint8_t { none, small, large };

/// What this process has measured, by the name of the cache's file: `refresh` measures once.
ForkSafeMutex measured_mutex;
std::map<std::string, model::Machine>& measured() WEFT_REQUIRES(measured_mutex) {
  static std::map<std::string, model::Machine> machines;
  return machines;
}

int local_ranks(const Fabric& fabric) { return static_cast<int>(fabric.layout().on_node(0).size()); }

int usable_cores(const Fabric& fabric, const topology::Host& host) {
  const auto cpus = static_cast<double>(fabric.cpus_on_machine());
  return std::max(static_cast<int>(host.cpu_quota > 0 ? std::min(cpus, host.cpu_quota) : cpus), 1);
}

/// The cores that the node's ranks may use. Pretended nodes of a machine share them.
void share_cores(model::Machine& machine, const Fabric& fabric, const topology::Host& host) {
  machine.cores = std::max(static_cast<double>(usable_cores(fabric, host)) * local_ranks(fabric) /
                               std::max(fabric.ranks_on_machine(), 1),
                           0.01);
}

/// Whether the rank's first local peer, with which links are measured, is a thread of its process.
bool has_threads(const Fabric& fabric) {
  for (int rank = 0; rank < fabric.layout().ranks(); ++rank) {
    transport::Transport* const route = fabric.route(rank);
    if (route != nullptr && route == fabric.local()) return transport::in_same_process(*route, rank);
  }
  return false;
}

model::Machine stated_machine(const Fabric& fabric, const topology::Host& host) {
  model::Machine machine = model::machine_of(host, fabric.one_machine() ? fabric.layout().nodes() : 1);
  machine.net = fabric.net();
  share_cores(machine, fabric, host);
  return machine;
}

/// The smallest AllReduce, of `word`.
Call meeting(int32_t& word) {
  return {.collective = plan::Collective::all_reduce,
          .send = &word,
          .recv = &word,
          .count = 1,
          .type = device::DataType::int32};
}

void wait_for_all(Communicator& comm, Status& status) {
  int32_t word = 1;
  if (status.ok()) status = comm.run(meeting(word));
}

struct Rows {
  int rows, calls;  // of each
};

Rows short_rows(const Communicator& comm) {
  return {std::clamp(kMeetingsOfOneRank / kRow / comm.size(), kFewestRows, kMostRows), kRow};
}

/// How long a call by `algorithm` takes in which all ranks wait for all. It is the median of several series,
/// since reading the clock takes a good part of a short call. A collective.
model::Observation observe(Communicator& comm, const Call& call, const char* algorithm, Rows rows,
                           Status& status) {
  comm.pin(*model::parse_pins(fmt::format("{}={}", plan::name_of(call.collective), algorithm)));
  std::vector<double> times;
  for (int row = -1; row < rows.rows && status.ok(); ++row) {  // the first opens connections
    const int64_t begin = now_ns();
    for (int i = 0; i < rows.calls && status.ok(); ++i) status = comm.run(call);
    if (row >= 0) times.push_back(static_cast<double>(now_ns() - begin) / 1e3 / rows.calls);
  }
  const double took_us = status.ok() ? model::median(times) : 0;
  log::trace("{} of {} elements by {} took {:.2f} us", plan::name_of(call.collective), call.count, algorithm,
             took_us);
  return {took_us, [&comm, call, algorithm](const model::Machine& candidate) {
            return comm.plans().streak_us_on(candidate, comm.plans().request_for(call), algorithm);
          }};
}

/// The smallest AllGather, of `word` into `words`.
Call gathering(int32_t& word, std::vector<int32_t>& words) {
  Call call = meeting(word);
  call.collective = plan::Collective::all_gather;
  call.recv = words.data();
  return call;
}

/// The smallest Broadcast, of `word`.
Call message(int32_t& word) {
  Call call = meeting(word);
  call.collective = plan::Collective::broadcast;
  return call;
}

/// How long a Broadcast by `algorithm` takes in a long streak, in which its root soon waits for room: by the
/// difference between long and short streaks, since all ranks meet after each. The median of `streaks`. A
/// collective.
void observe_streak(Communicator& comm, const Call& call, const char* algorithm, int streaks,
                    std::vector<model::Observation>& observations, Status& status) {
  comm.pin(*model::parse_pins(fmt::format("broadcast={}", algorithm)));
  const auto time_us = [&](int calls) {
    const int64_t begin = now_ns();
    for (int i = 0; i < calls && status.ok(); ++i) status = comm.run(call);
    wait_for_all(comm, status);
    return static_cast<double>(now_ns() - begin) / 1e3;
  };
  std::vector<double> longer, shorter;
  for (int streak = -1; streak < streaks && status.ok(); ++streak) {  // the first opens connections
    const double long_us = time_us(kBroadcasts), short_us = time_us(kFewBroadcasts);
    if (streak < 0) continue;
    longer.push_back(long_us);
    shorter.push_back(short_us);
  }
  if (!status.ok()) return;
  const double took_us = (model::median(longer) - model::median(shorter)) / (kBroadcasts - kFewBroadcasts);
  log::trace("a Broadcast of a streak by {} took {:.3f} us", algorithm, took_us);
  if (took_us <= 0) return;
  observations.push_back({took_us, [&comm, call, algorithm](const model::Machine& candidate) {
                            return comm.plans().streak_us_on(candidate, comm.plans().request_for(call),
                                                             algorithm);
                          }});
}

/// The time of a call at the root of back-to-back Broadcasts down a chain. The root waits for no rank, and
/// its messages share writes. The median of several calls together. A collective.
double root_us(Communicator& comm, const Call& call, Status& status) {
  comm.pin(*model::parse_pins(fmt::format("broadcast={}", kRing)));
  std::vector<double> times;
  for (int streak = 0; streak < kStreaksBetweenNodes && status.ok(); ++streak) {
    for (int some = 0; some < kBroadcasts / kSomeCalls && status.ok(); ++some) {
      const int64_t begin = now_ns();
      for (int i = 0; i < kSomeCalls && status.ok(); ++i) status = comm.run(call);
      times.push_back(us_since(begin) / kSomeCalls);
    }
    wait_for_all(comm, status);
  }
  return status.ok() ? model::median(times) : 0;
}

/// Sets whether messages of bursts share writes, until its end.
class WriteSharing {
 public:
  WriteSharing(Context& context, bool gathers) : context_(context) { set(gathers); }
  ~WriteSharing() { set(true); }
  WriteSharing(const WriteSharing&) = delete;
  WriteSharing& operator=(const WriteSharing&) = delete;

 private:
  void set(bool gathers) {
    const Lock lock = context_.lock();
    transport::Transport* const network = context_.fabric().between_nodes();
    if (network && network->connection_control()) network->connection_control()->share_writes(gathers);
  }
  Context& context_;
};

/// Calls that move long data. They show how much of the caches is left to ranks that share cores, and what
/// reads from each other and handing over cost there. A collective.
model::LongObservations observe_long(Communicator& comm, Status& status) {
  model::LongObservations observations;
  const auto ranks = static_cast<size_t>(comm.size());
  std::vector<int32_t> all(kLongest / sizeof(int32_t), 1), share(all.size() / ranks);
  const auto add = [&](std::vector<model::Observation>& to, const Call& call, const char* algorithm) {
    if (status.ok() && comm.plans().can(comm.plans().request_for(call), algorithm))
      to.push_back(observe(comm, call, algorithm, {.rows = kLongRows, .calls = 1}, status));
  };
  for (const size_t bytes : {kMedium, kLongest}) {
    Call gather{.collective = plan::Collective::all_gather, .send = share.data(), .recv = all.data()};
    Call scatter{.collective = plan::Collective::reduce_scatter, .send = all.data(), .recv = share.data()};
    gather.count = scatter.count = bytes / sizeof(int32_t) / ranks;
    gather.type = scatter.type = device::DataType::int32;
    add(observations.read, gather, kReading);
    add(observations.reduced, scatter, kReading);
    add(observations.handed_over, scatter, kRing);
  }
  return observations;
}

/// Derives the costs of calls, waits, messages and reads of peers' memory from the times of whole operations.
/// A collective; `machine` is null on all ranks but rank 0.
void measure_operations(Communicator& comm, Crowd crowd, bool slow_network, model::Machine* machine,
                        Status& status) {
  int32_t word = 1;
  const bool crowded = crowd != Crowd::none;
  const bool one_machine = comm.context().fabric().ranks_on_machine() == comm.size();
  const bool small_job = comm.size() <= kLargeJob;
  const bool small_node = one_machine && small_job && comm.members().layout().nodes() == 1;
  const bool shares_cores = crowded && one_machine && small_job;
  // Times depend on which ranks share a core. Each rank goes to the core that the model assumes.
  const int core =
      shares_cores && settings().pin
          ? model::core_of(comm.context().machine().machine, comm.members().layout(), comm.context().rank())
          : -1;
  std::optional<KeptOnCpu> kept(std::in_place, core, comm.context().fabric().cpus_on_machine());
  const Rows rows = short_rows(comm);

  // In large jobs such calls and their simulation take long, and messages are a small part of them. Where
  // ranks share cores, one-way hops take more turns for each message than exchanges.
  std::vector<const char*> algorithms{"recursive_doubling"};
  if (small_job) algorithms.emplace_back("one_hop");
  if (small_job && crowded)
    for (const char* one_way : {"double_tree", "all_to_all"}) algorithms.emplace_back(one_way);
  const Call meets = meeting(word);
  std::vector<model::Observation> meetings;
  std::erase_if(algorithms, [&](const char* name) {
    return !comm.plans().can(comm.plans().request_for(meets), name);
  });  // for example in strict order
  // Where ranks share cores, times stay alike for some milliseconds and then change.
  const int passes = crowded ? std::clamp(kPassesOfOneRank / comm.size(), 1, kMostPasses) : 1;
  std::vector<std::vector<double>> took(algorithms.size());
  for (int pass = 0; pass < passes; ++pass) {
    meetings.clear();
    for (size_t i = 0; i < algorithms.size(); ++i) {
      meetings.push_back(observe(comm, meets, algorithms[i], rows, status));
      took[i].push_back(meetings[i].measured_us);
      meetings[i].measured_us = model::median(took[i]);
    }
  }
  // In a chain all ranks do the same; in a star the root does the most. On a network that is slower than its
  // ranks, the messages of a streak queue up in front of it and show nothing.
  std::vector<model::Observation> told, gathered;
  const bool rows_count =
      !meetings.empty() && comm.plans().can(comm.plans().request_for(message(word)), kRing);
  const auto tell = [&](const char* algorithm, int row, std::vector<model::Observation>& to) {
    if (rows_count && comm.plans().can(comm.plans().request_for(message(word)), algorithm))
      observe_streak(comm, message(word), algorithm, row, to, status);
  };
  const bool between_nodes = comm.members().layout().nodes() > 1;
  double call_us = 0;
  if (between_nodes && rows_count && small_job && local_ranks(comm.context().fabric()) == 1)
    call_us = root_us(comm, message(word), status);
  if (small_node) {
    tell(kRing, kMostRows, told);
  } else if (shares_cores && crowd == Crowd::small && !slow_network) {
    for (const char* algorithm : {kRing, kStar}) tell(algorithm, kStreaksBetweenNodes, gathered);
    const WriteSharing each_by_itself(comm.context(), false);
    for (const char* algorithm : {kRing, kStar}) tell(algorithm, kStreaksBetweenNodes, told);
    for (model::Observation& seen : told)
      seen.predicted_us = [predicted_us = seen.predicted_us](model::Machine candidate) {
        candidate.inter.gathered_us = 0;
        return predicted_us(candidate);
      };
  }
  std::optional<model::Observation> read;
  std::vector<int32_t> words(static_cast<size_t>(comm.size()));
  if (const Call reads = gathering(word, words);
      small_node && comm.plans().can(comm.plans().request_for(reads), kReading))
    read = observe(comm, reads, kReading, rows, status);
  model::LongObservations longer;
  if (small_node && crowd == Crowd::small) longer = observe_long(comm, status);
  kept.reset();

  if (machine == nullptr || !status.ok()) return;
  model::Link model::Machine::*const link = between_nodes ? &model::Machine::inter : &model::Machine::intra;
  if (call_us > 0) {
    const model::Link& network = machine->inter;
    const double message_us = network.gathered_us > 0 ? network.gathered_us : model::sending_us(network);
    machine->call_us = std::max(call_us - message_us, model::kLeastCallUs);
  }
  if (crowded) *machine = model::calibrate_crowd(*machine, link, meetings, told);
  else if (call_us > 0) *machine = model::calibrate_receiving(*machine, meetings);
  else *machine = model::calibrate_call(*machine, meetings, told);
  *machine = model::calibrate_gathered(*machine, gathered);
  if (read) *machine = model::calibrate_reads(*machine, *read);
  *machine = model::calibrate_memory(*machine, longer);
}

/// Rank 0 and one peer measure the link between them; both call it. `into` is null on the peer.
Status measure_link(Context& context, ProbeInbox& inbox, uint32_t comm, int peer, bool intra,
                    model::Machine* into, std::string& doubt) {
  const auto measure = [&](auto probe, std::string_view where) {
    Status measured = probe.measure(into);
    if (doubt.empty() && !probe.doubt().empty()) doubt = fmt::format("{} {}", where, probe.doubt());
    return measured;
  };
  const Deadline deadline = Deadline::in_seconds(kProbeSeconds);
  return intra ? measure(IntraProbe(context, inbox, comm, peer, deadline), "inside a node")
               : measure(InterProbe(context, inbox, comm, peer, deadline), "between nodes");
}

}  // namespace

model::Facts facts_of(const Fabric& fabric, const topology::Host& host) {
  model::Facts facts;
  facts.host = model::host_facts(host);
  facts.active = std::min(local_ranks(fabric), usable_cores(fabric, host));
  facts.crowding = std::max(1.0, static_cast<double>(fabric.ranks_on_machine()) / usable_cores(fabric, host));
  if (auto* local = fabric.local()) {
    facts.intra = fmt::format("{}, {}", local->describe(),
                              local->peer_mapping()->reads_peers() ? "single copy" : "two copies");
    facts.threads = has_threads(fabric);
  }
  if (const auto* net = fabric.between_nodes()) facts.inter = net->describe();
  facts.one_machine = fabric.one_machine();
  return facts;
}

std::optional<model::Machine> known_machine(const model::Facts& facts) {
  {
    const MutexLock lock(measured_mutex);
    if (auto found = measured().find(model::cache_file("", facts)); found != measured().end())
      return found->second;
  }
  const std::string directory = model::cache_directory();
  if (settings().tune == "refresh" || directory.empty()) return std::nullopt;
  const Result<std::optional<model::Cached>> cached = model::find_cached(directory, facts);
  if (!cached.ok()) {
    log::warn("{}; measuring anew", cached.status().message());
    return std::nullopt;
  }
  if (!cached->has_value()) return std::nullopt;
  log::info("measured machine from {}", (*cached)->path);
  return (*cached)->machine;
}

void keep_machine(const model::Facts& facts, const model::Machine& machine, bool complete,
                  const std::string& doubt) {
  const std::string directory = model::cache_directory();
  {
    const MutexLock lock(measured_mutex);
    measured()[model::cache_file("", facts)] = machine;
  }
  if (directory.empty() || !complete) return;
  const Status kept = model::keep(directory, facts, machine, doubt);
  if (kept.ok() && !doubt.empty()) {
    log::info(
        "measured this machine for the choice of algorithms, but {}, as where a rank loses its core to "
        "another program: the next job measures again",
        doubt);
  } else if (kept.ok()) {
    log::info("measured this machine for the choice of algorithms; kept in {}",
              model::cache_file(directory, facts));
  } else {
    log::warn(
        "tuning cache: {}; this machine will be measured again next time (WEFT_TUNE_CACHE names another "
        "directory)",
        kept.message());
  }
}

std::vector<std::byte> MachineDecision::packed() const {
  std::vector<float> numbers = model::to_numbers(machine);
  numbers.push_back(measure ? 1 : 0);
  numbers.push_back(tunes ? 1 : 0);
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

MachineDecision MachineDecision::unpack(std::span<const std::byte> bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
  MachineDecision decision;
  if (numbers.size() < 2) return decision;
  decision.tunes = numbers.back() != 0;
  numbers.pop_back();
  decision.measure = numbers.back() != 0;
  numbers.pop_back();
  if (auto machine = model::from_numbers(numbers); machine.ok()) decision.machine = machine.take();
  else
    log::warn(
        "what rank 0 says of this machine is refused ({}): this run chooses algorithms as for the default "
        "machine, which is right but may be slower",
        machine.status().message());
  return decision;
}

MachineDecision decide_machine(const Fabric& fabric) {
  MachineDecision decision;
  const Result<topology::Host>& host = topology::discover_host();
  if (!host.ok() || fabric.layout().ranks() == 1) return decision;
  decision.machine = stated_machine(fabric, *host);
  const std::string& tune = settings().tune;
  if (tune == "off") return decision;
  decision.tunes = true;
  if (auto known = known_machine(facts_of(fabric, *host))) {
    decision.machine = *known;
    share_cores(decision.machine, fabric, *host);
  } else {
    decision.measure = true;
  }
  return decision;
}

void set_machine(Context& context, model::Machine machine) {
  context.machine().machine = std::move(machine);
  const auto lock = context.lock();
  transport::Transport* const network = context.fabric().between_nodes();
  if (network && network->connection_control())
    network->connection_control()->bound_flight(
        model::flight_bytes(context.machine().machine, context.fabric().layout()));
}

Status measure_machine(Context& context, Communicator& comm) {
  const Fabric& fabric = context.fabric();
  const topology::Layout& layout = fabric.layout();
  const int rank = context.rank();
  const bool leads = rank == 0;
  const Result<topology::Host>& host = topology::discover_host();
  const int64_t begin = now_ns();
  model::Machine machine = context.machine().machine;
  ProbeInbox inbox(context);  // before the first probe: a peer may be ahead

  Status met;
  wait_for_all(comm, met);
  const int cores = host.ok() ? usable_cores(fabric, *host) : 1;
  if (layout.node_of(rank) == 0 && layout.local_index(rank) < cores)
    machine.memory = model::measure_memory(machine.memory);
  wait_for_all(comm, met);
  bool complete = true;
  std::string doubt;
  const auto probe = [&](int peer, bool intra) {
    if (!met.ok() || (!leads && rank != peer)) return;
    const Status measured =
        measure_link(context, inbox, comm.id(), leads ? peer : 0, intra, leads ? &machine : nullptr, doubt);
    complete = complete && measured.ok();
    if (!measured.ok() && leads)
      log::warn(
          "the link to rank {} could not be measured ({}): this run chooses algorithms by what the host "
          "states of itself, which is right but may be slower; the next run measures again, WEFT_TUNE=off "
          "never does",
          peer, measured.message());
  };
  // All ranks must agree on what all take part in.
  const auto agree = [&](bool mine) {
    int32_t word = mine ? 1 : 0;
    if (met.ok()) met = comm.run(meeting(word));
    return word > 0;
  };
  if (local_ranks(fabric) > 1) probe(layout.on_node(0)[1], true);
  // The next link is measured when this one is done, so that no rank takes another's core.
  const bool crowded = agree(fabric.oversubscribed());
  const bool large = agree(fabric.ranks_on_machine() > kMostOfACore * fabric.cpus_on_machine());
  if (layout.nodes() > 1) probe(layout.on_node(1)[0], false);
  const bool slow_network = agree(leads && layout.nodes() > 1 && model::flight_bytes(machine, layout) > 0);
  const Crowd crowd = large ? Crowd::large : crowded ? Crowd::small : Crowd::none;

  if (leads && host.ok()) share_cores(machine, fabric, *host);
  if (met.ok()) measure_operations(comm, crowd, slow_network, leads ? &machine : nullptr, met);

  if (leads && met.ok() && host.ok()) {
    keep_machine(facts_of(fabric, *host), machine, complete, doubt);
    context.machine().doubt = doubt;
    log::info("measuring took {:.0f} ms", static_cast<double>(now_ns() - begin) / 1e6);
  }
  std::vector<std::byte> bytes = MachineDecision{.machine = machine}.packed();
  Call call;
  call.collective = plan::Collective::broadcast;
  call.send = call.recv = bytes.data();
  call.count = bytes.size();
  call.type = device::DataType::uint8;
  if (met.ok()) met = comm.run(call);
  if (!met.ok()) return met.in("measuring this machine");
  set_machine(context, MachineDecision::unpack(bytes).machine);
  return {};
}

}  // namespace weft::job
