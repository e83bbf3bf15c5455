#include "info/explain.h"

#include <algorithm>

#include "base/clock.h"
#include "base/read_file.h"
#include "base/settings.h"
#include "engine/context/fabric.h"
#include "engine/gpu/plan_choice.h"
#include "engine/gpu/plan_path.h"
#include "engine/run/call_streak.h"
#include "model/cluster.h"
#include "model/gpu_paths.h"
#include "model/known_clusters.h"
#include "model/machine_cache.h"
#include "model/tuner.h"
#include "plan/staged_copies.h"
#include "topology/host.h"

namespace weft::info {
namespace {

using Json = nlohmann::ordered_json;

/// Whole simulations of more ranks take seconds and gigabytes.
constexpr int kMostSimulatedRanks = 256;
constexpr int kMostRanks = 65536;

/// Blocks of ranks, as even as possible.
topology::Layout layout_of(int ranks, int nodes) {
  std::vector<int> node_of;
  for (int node = 0; node < nodes; ++node) {
    node_of.insert(node_of.end(), ranks / nodes + (node < ranks % nodes ? 1 : 0), node);
  }
  return topology::Layout(node_of);
}

Status check(const Question& q) {
  const auto range = [](std::string_view option, int value, int first, int last) {
    return value >= first && value <= last
               ? Status()
               : fail(Code::invalid_argument, "{} is {}, must be in [{}, {}]", option, value, first, last);
  };
  WEFT_TRY(range("-n", q.ranks, 1, kMostRanks));
  WEFT_TRY(range("--nodes", q.nodes, 1, q.ranks));
  WEFT_TRY(range("--root", q.root, 0, q.ranks - 1));
  WEFT_TRY(range("--rank", q.rank, 0, q.ranks - 1));
  return range("--element-bytes", q.element_bytes, 1, 8);
}

Result<plan::Request> request_of(const Question& q) {
  const Result<plan::Collective> collective = model::parse_collective(q.collective);
  if (!collective.ok()) return collective.status();
  const Result<uint64_t> size = model::parse_bytes(q.size);
  if (!size.ok()) return size.status();
  plan::Request request{
      .collective = *collective, .count = 1, .element_bytes = 1, .root = q.root, .strict = q.strict};
  const uint64_t parts = model::message_bytes(request, q.ranks);  // of one byte each
  request.element_bytes = static_cast<uint32_t>(q.element_bytes);
  request.count = *size / parts / request.element_bytes;
  if (request.count == 0 && *size > 0) {
    return fail(Code::invalid_argument,
                "{} of {} bytes is less than an element of {} byte{} for each of {} ranks",
                plan::name_of(*collective), *size, q.element_bytes, q.element_bytes == 1 ? "" : "s", q.ranks);
  }
  return request;
}

/// What is known of a measured host under a name; "" if nothing is.
std::string fact(const model::Facts& facts, std::string_view name) {
  for (const auto& [known, value] : facts.host)
    if (known == name) return value;
  return "";
}

/// The latest measurement without a doubt of this host that fits the question, over `net`, of ranks that are
/// processes; null if there is none. What a job would look for: engine::facts_of(), as far as it is known
/// before there is one.
const model::Cached* find_measured(const Question& q, const topology::Host& host, transport::Net net,
                                   const std::vector<model::Cached>& measured) {
  const int per_node = (q.ranks + q.nodes - 1) / q.nodes;
  const bool one_machine = q.nodes == 1 || q.one_machine;
  const auto allowed = static_cast<double>(host.allowed_cpus().size());
  const int cpus =
      std::max(static_cast<int>(host.cpu_quota > 0 ? std::min(allowed, host.cpu_quota) : allowed), 1);
  const int active = std::min(per_node, cpus);
  const double crowding = std::max(1.0, static_cast<double>(one_machine ? q.ranks : per_node) / cpus);
  const auto fits = [&](const model::Cached& cached) {
    const model::Facts& facts = cached.facts;
    // Ranks of GPU memory are often threads of one process.
    return cached.doubt.empty() && facts.one_machine == one_machine && (q.cuda || !facts.threads) &&
           !fact(facts, "gpu").empty() == q.cuda && facts.active == active && facts.crowding == crowding &&
           facts.intra.empty() == (per_node == 1) && facts.inter.empty() == (q.nodes == 1) &&
           (q.nodes == 1 || cached.machine.net == net);
  };
  const auto found = std::find_if(measured.begin(), measured.end(), fits);
  return found == measured.end() ? nullptr : &*found;
}

/// What nodes the answer is about, where there is a choice: a clause.
std::string nodes_text(const Question& q) {
  if (q.nodes == 1) return "";
  return q.one_machine ? ", for nodes that are pretended on this one machine"
                       : ", for nodes that are machines of their own like this host";
}

struct Described {
  model::Machine machine;
  std::string source;  // where it comes from, a clause
  std::string path;    // how GPU memory is moved and reduced there; "": host memory
};

/// The path of operations on GPU memory, on a machine that was measured with these facts.
std::string path_of(const model::Facts& facts) {
  if (fact(facts, "gpu").empty()) return "";
  return fmt::format("copy engines and kernels of {}: {}; {}", fact(facts, "gpu"), fact(facts, "gpu_use"),
                     fact(facts, "gpu_sharing"));
}

/// … and on one that somebody has described.
std::string path_of(const model::Machine& machine) {
  if (machine.engines == 0) return "";
  return fmt::format("copy engines and kernels; {} ranks of a device, {} of a thread", machine.device_ranks,
                     machine.thread_ranks);
}

/// From a file that describes one, or a cluster of such, or from one of the tuning cache.
Result<Described> read_described(const std::string& name) {
  const Result<std::string> path = model::find_description(name);
  if (!path.ok()) return path.status();
  const Result<std::string> text = read_file(*path);
  if (!text.ok()) return text.status();
  if (model::is_cached(*text)) {
    const Result<std::optional<model::Cached>> cached = model::read_cache(*path);
    if (!cached.ok()) return cached.status();
    if (!cached->has_value()) return fail(Code::system_error, "{} is gone", *path);
    return Described{(*cached)->machine,
                     fmt::format("measured {}, read from {}", (*cached)->measured_at, *path),
                     path_of((*cached)->facts)};
  }
  if (!model::describes_cluster(*text)) {
    Result<model::Machine> machine = model::machine_from_json(*text);
    if (!machine.ok()) return machine.status().in(*path);
    return Described{*machine, fmt::format("read from {}", *path), path_of(*machine)};
  }
  const Result<model::Cluster> cluster = model::cluster_from_json(*text);
  if (!cluster.ok()) return cluster.status().in(*path);
  return Described{
      cluster->machine,
      fmt::format("a node of the cluster {}, read from {}; how many nodes there are is --nodes, and "
                  "its fabric, slow nodes, slow rails and incast are weft_sim's matter",
                  cluster->name, *path),
      path_of(cluster->machine)};
}

Result<Described> machine_of(const Question& q) {
  if (!q.machine_file.empty()) return read_described(q.machine_file);
  const Result<topology::Host>& host = topology::discover_host();
  if (!host.ok()) return host.status();
  Described stated{model::machine_of(*host, q.one_machine ? q.nodes : 1),
                   fmt::format("as this host states{}; such a job would measure it first", nodes_text(q)),
                   ""};
  if (q.nodes > 1) {
    const Result<transport::Net> net = engine::Fabric::net_here();
    if (!net.ok()) return net.status();
    stated.machine.net = *net;
  }
  if (settings().tune == "off")
    stated.source = fmt::format("as this host states{}; measuring is off (WEFT_TUNE)", nodes_text(q));
  const std::string directory = model::cache_directory();
  const bool kept = settings().tune != "off" && !directory.empty();
  const std::vector<model::Cached> measured =
      kept ? model::list_cached(directory, *host) : std::vector<model::Cached>();
  const model::Cached* const found = find_measured(q, *host, stated.machine.net, measured);
  if (found == nullptr && q.cuda)
    return fail(
        Code::invalid_argument,
        "no GPU was measured for {} ranks on {} node{}: run such a job, or name a machine or a cluster "
        "(--machine)",
        q.ranks, q.nodes, q.nodes == 1 ? "" : "s");
  if (!kept) return stated;
  if (found == nullptr) {
    Question other = q;
    other.one_machine = !q.one_machine;
    if (q.nodes > 1 && find_measured(other, *host, stated.machine.net, measured) != nullptr) {
      stated.source += q.one_machine ? " (measured were nodes of their own: without --one-machine)"
                                     : " (measured were nodes pretended on this machine: --one-machine)";
    }
    return stated;
  }
  Described result{found->machine,
                   fmt::format("measured {}{}, kept in {}", found->measured_at, nodes_text(q), found->path),
                   path_of(found->facts)};
  if (!q.cuda) result.machine.cores = stated.machine.cores;  // the cache has those of its job's nodes
  return result;
}

/// What calls use after so many of a row.
struct InRow {
  int past;  // calls before it
  model::Choice choice;
};

/// A way of doing a call on GPU memory.
struct Path {
  std::string name;
  Status why_not;           // ok: it could
  double predicted_us = 0;  // if it could
};

struct Answer {
  plan::Request request;
  topology::Layout layout;
  model::Machine machine;
  std::string machine_source, path;
  model::Choice choice;
  std::vector<InRow> in_row;      // with a root
  std::vector<plan::Plan> plans;  // all ranks', or only the one to be listed
  std::optional<model::Simulation> simulation;
  double chosen_in_ms = 0;
  std::vector<Path> paths;  // of GPU memory: the first that can is taken
};

/// How a communicator with this process's settings on every rank would do it: as it decides itself
/// (engine/gpu/stream_path.h), if its ranks reach each other's memory.
std::vector<Path> paths_of(const Question& q, const Answer& a) {
  if (!q.cuda) return {};
  const auto steps_us = [&a] { return a.choice.predicted_us; };
  const auto apart = [&](const char* name, bool on, const char* off, const auto& price) {
    Path path{name, {}};
    if (path.why_not.ok() && !settings().algo.empty())
      path.why_not = fail(Code::unsupported, "WEFT_ALGO pins algorithms");
    if (path.why_not.ok()) path.why_not = price(path.predicted_us);
    if (path.why_not.ok() && !on) path.why_not = fail(Code::unsupported, "{}", off);
    return path;
  };
  std::string by;
  Path kernel = apart(q.nodes == 1 ? "one kernel" : "one kernel, and a proxy", settings().cuda_kernel,
                      "WEFT_CUDA_KERNEL is off", [&](double& us) -> Status {
                        // Half of an H100's multiprocessors, for the ranks that share it.
                        const auto blocks = static_cast<uint32_t>(std::max(1, 66 / a.machine.device_ranks));
                        const bool one_process = a.machine.thread_ranks >= (q.ranks + q.nodes - 1) / q.nodes;
                        const auto chosen = engine::choose_kernel_plan(
                            a.request, false, 0,
                            engine::PlanPath::reach_of(a.layout, std::min(blocks, 64u), one_process,
                                                       a.choice.limits.eager_inter_bytes),
                            &a.machine);
                        if (!chosen) return chosen.status();
                        us = chosen->predicted_us;
                        by = fmt::format(" ({})", chosen->algorithm);
                        return model::plan_kernel_pays(us, steps_us);
                      });
  constexpr uint64_t kUsual = 64 << 20;  // bytes of staging
  const auto staging = static_cast<uint64_t>(settings().cuda_copy_bytes);
  const Path copies =
      apart("copies on the stream", staging > 0, "WEFT_CUDA_COPY_BYTES is 0", [&](double& us) -> Status {
        const uint64_t bytes = staging > 0 ? staging : kUsual;
        if (q.nodes > 1) return fail(Code::unsupported, "the ranks are on {} nodes", q.nodes);
        WEFT_TRY(plan::staged_copies_fit(a.request, q.ranks, bytes));
        us = model::staged_copies_us(a.machine, a.request, q.ranks, bytes);
        return model::staged_copies_pay(a.request, q.ranks, static_cast<uint64_t>(settings().cuda_copy_from),
                                        us, steps_us);
      });
  kernel.name += by;
  return {kernel, copies, {"step by step", {}, a.choice.predicted_us}};
}

Result<Answer> answer(const Question& q) {
  WEFT_TRY(check(q));
  WEFT_TRY(settings_status());
  const Result<plan::Request> request = request_of(q);
  if (!request.ok()) return request.status();
  const Result<Described> described = machine_of(q);
  if (!described.ok()) return described.status();
  const model::Machine& machine = described->machine;
  Result<model::Pins> pins = model::parse_pins(settings().algo);
  if (!pins.ok()) return pins.status();
  pins->slice_bytes = static_cast<uint64_t>(settings().slice_bytes);
  topology::Layout layout = layout_of(q.ranks, q.nodes);
  const int64_t before_ns = now_ns();
  const plan::Limits limits = model::limits_for(machine);
  model::Estimates known;
  Result<model::Choice> choice = model::choose(machine, *request, layout, limits, *pins, 1, &known);
  const double chosen_in_ms = static_cast<double>(now_ns() - before_ns) / 1e6;
  if (!choice.ok()) return choice.status();
  Answer result{
      *request, std::move(layout), machine, described->source, described->path, choice.take(), {}, {},
      {},       chosen_in_ms,      {}};
  result.paths = paths_of(q, result);
  for (const int past : engine::CallStreak::kPast) {
    if (!plan::has_root(request->collective)) continue;
    Result<model::Choice> later = model::choose(machine, *request, result.layout, limits, *pins,
                                                engine::CallStreak::more(past), &known);
    if (!later.ok()) return later.status();
    result.in_row.push_back({past, later.take()});
  }
  const bool all = q.ranks <= kMostSimulatedRanks && !plan::is_transfer(request->collective);
  for (int rank = all ? 0 : q.rank; rank < (all ? q.ranks : q.rank + 1); ++rank) {
    result.plans.push_back(
        result.choice.algorithm->make(*request, result.layout, result.choice.limits, rank));
  }
  if (!all) return result;
  Result<model::Simulation> simulation =
      model::simulate(result.plans, result.layout, result.machine, result.choice.limits,
                      {.keep_steps = true, .in_place = model::mostly_in_place(request->collective)});
  if (!simulation.ok()) return simulation.status();
  result.simulation = simulation.take();
  return result;
}

std::string machine_text(const model::Machine& m) {
  const auto link = [](const model::Link& l) {
    return fmt::format("{:g} µs + bytes / {:.1f} GB/s{}", l.alpha_us + 2 * l.overhead_us,
                       l.bytes_per_us / 1000, l.by_cpu ? ", moved by CPUs" : "");
  };
  return fmt::format(
      "machine {}: inside a node {}; between nodes {}; {} interface{} of {:.1f} GB/s and {:g} core{} a "
      "node\n",
      m.name, link(m.intra), link(m.inter), m.rails, m.rails == 1 ? "" : "s", m.nic_bytes_per_us / 1000,
      m.cores, m.cores == 1 ? "" : "s");
}

std::string candidates_text(const Answer& a) {
  const model::Choice& choice = a.choice;
  const auto bytes = static_cast<double>(model::message_bytes(a.request, a.layout.ranks()));
  std::string text =
      fmt::format("  {:>12} {:>8}  {:<20} {:>8}  {}\n", "predicted µs", "GB/s", "algorithm", "slices", "how");
  bool marked = false;
  for (const model::Candidate& candidate : choice.candidates) {
    if (!candidate.unfit.ok()) {
      text += fmt::format("  {:>12} {:>8}  {:<20} {:>8}  {}\n", "-", "-", candidate.algorithm->name, "-",
                          candidate.unfit.message());
      continue;
    }
    const bool used = !marked && candidate.algorithm == choice.algorithm &&
                      candidate.limits.slice_bytes == choice.limits.slice_bytes;
    marked = marked || used;
    text += fmt::format("{} {:>12.2f} {:>8.3f}  {:<20} {:>8}  {}\n", used ? ">" : " ", candidate.predicted.us,
                        candidate.predicted.us > 0 ? bytes / candidate.predicted.us / 1000 : 0.0,
                        candidate.algorithm->name, model::bytes_text(candidate.limits.slice_bytes),
                        model::method_of(candidate.predicted));
  }
  return text;
}

std::string text_of(const Question& q, const Answer& a) {
  const model::Choice& choice = a.choice;
  std::string text =
      fmt::format("{} on {}\n", model::to_string(a.request, a.layout.ranks()), a.layout.to_string());
  text += machine_text(a.machine);
  text += fmt::format("the machine is {}\n", a.machine_source);
  if (q.cuda && !a.path.empty()) text += fmt::format("path: {}\n", a.path);
  text += model::eager_text(choice.limits, a.machine) + "\n\n";
  text += candidates_text(a);
  text += fmt::format("\nused: {} ({}; chosen in {:.1f} ms)\n  {}\n", choice.algorithm->name, choice.why,
                      a.chosen_in_ms, choice.algorithm->sentence);
  if (!a.paths.empty()) text += "paths of one call, the first that can is taken:\n";
  for (const Path& path : a.paths)
    text += fmt::format("  {:>12}  {:<20} {}\n",
                        path.predicted_us > 0 ? fmt::format("{:.2f} µs", path.predicted_us) : "-", path.name,
                        path.why_not.ok() ? "" : "no: " + std::string(path.why_not.message()));
  for (const InRow& row : a.in_row) {
    text += fmt::format("  in a row, from the {}th call on: {}, predicted {:.2f} µs each\n", row.past + 1,
                        row.choice.algorithm->name, row.choice.predicted_us);
  }
  if (a.simulation) {
    const model::Simulation& s = *a.simulation;
    text += fmt::format("  critical path: {}\n", model::to_string(s.critical));
    text += fmt::format("  traffic: {} in {} messages between nodes, {} in {} inside\n",
                        model::bytes_text(s.inter.bytes), s.inter.messages, model::bytes_text(s.intra.bytes),
                        s.intra.messages);
  }
  if (q.steps)
    text += fmt::format("\n{}", plan::to_string(a.plans.size() == 1 ? a.plans.front() : a.plans[q.rank]));
  return text;
}

Json json_of(const Question& q, const Answer& a) {
  const model::Choice& choice = a.choice;
  Json json{{"request", model::to_string(a.request, a.layout.ranks())},
            {"layout", a.layout.to_string()},
            {"machine", Json::parse(model::to_json(a.machine))},
            {"machine_source", a.machine_source},
            {"path", a.path},
            {"eager_intra_bytes", choice.limits.eager_intra_bytes},
            {"eager_inter_bytes", choice.limits.eager_inter_bytes},
            {"used",
             {{"algorithm", choice.algorithm->name},
              {"slice_bytes", choice.limits.slice_bytes},
              {"predicted_us", choice.predicted_us},
              {"why", choice.why},
              {"chosen_in_ms", a.chosen_in_ms}}}};
  for (const model::Candidate& candidate : choice.candidates) {
    Json row{{"algorithm", candidate.algorithm->name}};
    if (candidate.unfit.ok()) {
      row["slice_bytes"] = candidate.limits.slice_bytes;
      row["predicted_us"] = candidate.predicted.us;
      row["how"] = model::method_of(candidate.predicted);
    } else row["unfit"] = candidate.unfit.message();
    json["candidates"].push_back(row);
  }
  for (const Path& path : a.paths) {
    Json row{{"path", path.name}, {"predicted_us", path.predicted_us}};
    if (!path.why_not.ok()) row["why_not"] = path.why_not.message();
    json["paths"].push_back(row);
  }
  for (const InRow& row : a.in_row) {
    json["in_a_row"].push_back({{"from_call", row.past + 1},
                                {"algorithm", row.choice.algorithm->name},
                                {"slice_bytes", row.choice.limits.slice_bytes},
                                {"predicted_us", row.choice.predicted_us}});
  }
  if (a.simulation) {
    const model::Simulation& s = *a.simulation;
    json["simulation"] = {{"total_us", s.total_us},
                          {"inter_us", s.critical.inter_us},
                          {"intra_us", s.critical.intra_us},
                          {"copy_us", s.critical.copy_us},
                          {"reduce_us", s.critical.reduce_us},
                          {"queued_us", s.critical.queued_us},
                          {"inter_bytes", s.inter.bytes},
                          {"intra_bytes", s.intra.bytes}};
  }
  if (q.steps) json["plan"] = plan::to_string(a.plans.size() == 1 ? a.plans.front() : a.plans[q.rank]);
  return json;
}

}  // namespace

Result<Section> explain(const Question& question) {
  const Result<Answer> found = answer(question);
  if (!found.ok()) return found.status();
  return Section{"explain", text_of(question, *found), json_of(question, *found)};
}

}  // namespace weft::info
