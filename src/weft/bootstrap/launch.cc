// Reading launchers' environments.
#include "bootstrap/launch.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "base/cancellation.h"
#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/id_exchange.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/socket.h"
#include "bootstrap/unique_id.h"

namespace weft::bootstrap {
namespace {

constexpr int kFirstSlurmPort = 20000, kSlurmPorts = 10000;  // below the ports that Linux hands out by itself

class Environment {
 public:
  explicit Environment(const std::vector<std::string>& entries) {
    for (const std::string& entry : entries) {
      const size_t equals = entry.find('=');
      if (equals != std::string::npos) values_.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
  }
  bool has(const std::string& name) const { return !text(name).empty(); }
  std::string text(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }

 private:
  std::map<std::string, std::string> values_;
};

/// The variables by which a launcher tells ranks who they are.
struct Names {
  std::string launcher, rank, size, local_rank, local_size;
};
const Names kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
const Names kMpich = {"mpiexec (MPICH)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
const Names kOpenMpi = {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
// Slurm's own count of local tasks is a list over nodes.
const Names kSlurm = {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""};

Status require(const Environment& env, const Names& names, const std::string& name,
               const std::string& cause) {
  if (env.has(name)) return {};
  return fail(Code::invalid_setting,
              "{} is set, so this process seems to be started by {}, but {} is missing", cause,
              names.launcher, name);
}

template <typename Number>
Status read_number(const Environment& env, const std::string& name, Number min, Number max, Number* out) {
  const std::string text = env.text(name);
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *out);
  if (error == std::errc() && at == end && *out >= min && *out <= max) return {};
  return fail(Code::invalid_setting, "{} is '{}', must be an integer from {} to {}", name, text, min, max);
}

/// Rank and size, required; local rank and size, where told.
Result<LaunchInfo> read_places(const Environment& env, const Names& names) {
  LaunchInfo info;
  info.launcher = names.launcher;
  WEFT_TRY(require(env, names, names.size, names.rank));
  WEFT_TRY(read_number(env, names.size, 1, INT32_MAX, &info.size));
  WEFT_TRY(read_number(env, names.rank, 0, info.size - 1, &info.rank));
  if (env.has(names.local_rank))
    WEFT_TRY(read_number(env, names.local_rank, 0, info.size - 1, &info.local_rank));
  if (env.has(names.local_size)) WEFT_TRY(read_number(env, names.local_size, 1, info.size, &info.local_size));
  return info;
}

/// A derived id: where, and what the secret is made of if the user gave none.
Status derive(LaunchInfo* info, const Settings& settings, std::string host, int port,
              std::string_view known) {
  info->exchange = IdExchange::derived;
  info->root_host = std::move(host);
  info->root_port = port;
  info->secret_is_public = settings.job_secret.empty();
  info->secret = fmt::format("{} {} {}", settings.job_secret, info->size, known);
  return {};
}

/// An address without the interface that a link-local one names ("%eth0"). Each host has a name of its own
/// for it, so that it can be no part of the secret.
std::string without_scope(const std::string& address) {
  const size_t percent = std::min(address.find('%'), address.size());
  return address.substr(0, percent) + address.substr(std::min(address.find(']', percent), address.size()));
}

/// WEFT_ROOT as meeting point.
Status derive_from_root(LaunchInfo* info, const Settings& settings) {
  const std::string& root = settings.root;
  const size_t colon = root.rfind(':');
  int port = 0;
  if (colon != std::string::npos) std::from_chars(root.data() + colon + 1, root.data() + root.size(), port);
  if (colon == 0 || port < 1 || port > 65535 || root.substr(colon + 1) != std::to_string(port)) {
    return fail(
        Code::invalid_setting,
        "WEFT_ROOT is '{}', must be host:port, such as node1:4711 or [fd00::1]:4711, with a port from 1 to "
        "65535",
        root);
  }
  std::string host = root.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return derive(info, settings, host, port, without_scope(root));
}

Result<LaunchInfo> from_settings(const Settings& settings) {
  const bool has_rank = settings.rank >= 0, has_size = settings.world_size >= 0;
  if (!has_rank || !has_size) {
    return fail(Code::invalid_setting, "{} is set, but {} is missing: a launched rank needs both",
                has_rank ? "WEFT_RANK" : "WEFT_WORLD_SIZE", has_rank ? "WEFT_WORLD_SIZE" : "WEFT_RANK");
  }
  if (settings.rank >= settings.world_size) {
    return fail(Code::invalid_setting, "WEFT_RANK is {}, must be less than WEFT_WORLD_SIZE, {}",
                settings.rank, settings.world_size);
  }
  LaunchInfo info;
  info.launcher = "weft_run";
  info.rank = settings.rank, info.size = settings.world_size;
  info.local_rank = settings.local_rank, info.local_size = settings.local_size;
  if (info.size == 1) return info;
  if (settings.root.empty()) {
    return fail(Code::invalid_setting,
                "WEFT_RANK and WEFT_WORLD_SIZE are set, but WEFT_ROOT is missing: the host:port where rank 0 "
                "listens");
  }
  WEFT_TRY(derive_from_root(&info, settings));
  return info;
}

Status place_torchrun(LaunchInfo* info, const Environment& env, const Settings& settings) {
  WEFT_TRY(require(env, kTorchrun, "MASTER_ADDR", "RANK"));
  WEFT_TRY(require(env, kTorchrun, "MASTER_PORT", "RANK"));
  int port = 0;
  WEFT_TRY(read_number(env, "MASTER_PORT", 1, 65535, &port));
  const std::string known =
      fmt::format("torchrun {} {} {} {}", without_scope(env.text("MASTER_ADDR")), port,
                  env.text("TORCHELASTIC_RUN_ID"), env.text("TORCHELASTIC_RESTART_COUNT"));
  return derive(info, settings, env.text("MASTER_ADDR"), port == 65535 ? port - 1 : port + 1, known);
}

Status place_mpich(LaunchInfo* info, const Environment& env) {
  WEFT_TRY(require(env, kMpich, "PMI_FD", "PMI_RANK"));
  info->exchange = IdExchange::pmi;
  return read_number(env, "PMI_FD", 0, INT32_MAX, &info->pmi_fd);
}

Status place_slurm(LaunchInfo* info, const Environment& env, const Settings& settings) {
  if (env.has("PMIX_NAMESPACE")) {
    info->exchange = IdExchange::pmix;
    return {};
  }
  uint64_t job = 0, step = 0;
  WEFT_TRY(require(env, kSlurm, "SLURM_STEP_NODELIST", "SLURM_PROCID"));
  WEFT_TRY(require(env, kSlurm, "SLURM_JOB_ID", "SLURM_PROCID"));
  WEFT_TRY(read_number<uint64_t>(env, "SLURM_JOB_ID", 0, UINT32_MAX, &job));
  WEFT_TRY(read_number<uint64_t>(env, "SLURM_STEP_ID", 0, UINT32_MAX, &step));
  const auto offset = static_cast<int>((64 * job + step) % kSlurmPorts);
  return derive(info, settings, first_host(env.text("SLURM_STEP_NODELIST")), kFirstSlurmPort + offset,
                fmt::format("slurm {} {} {}", job, step, env.text("SLURM_JOB_UID")));
}

Result<LaunchInfo> from_launcher(const Environment& env, const Settings& settings, Names names) {
  if (names.launcher == kSlurm.launcher && env.has("SLURM_STEP_NUM_TASKS"))
    names.size = "SLURM_STEP_NUM_TASKS";
  Result<LaunchInfo> info = read_places(env, names);
  if (!info.ok() || info->size == 1) return info;
  Status placed;
  if (!settings.root.empty()) {
    placed = derive_from_root(&*info, settings);
  } else if (names.launcher == kTorchrun.launcher) {
    placed = place_torchrun(&*info, env, settings);
  } else if (names.launcher == kMpich.launcher) {
    placed = place_mpich(&*info, env);
  } else if (names.launcher == kSlurm.launcher) {
    placed = place_slurm(&*info, env, settings);
  } else {
    info->exchange = IdExchange::pmix;
  }
  if (!placed.ok()) return placed;
  return info;
}

/// Slurm tells a batch script, too, that it is process 0 of all the job's tasks. It is one process: only what
/// srun starts belongs to a step.
bool is_launched_by(const Environment& env, const Names& names) {
  return env.has(names.rank) && (names.launcher != kSlurm.launcher || env.has("SLURM_STEP_ID"));
}

Result<LaunchInfo> detect(const Environment& env, const Settings& settings) {
  if (settings.rank >= 0 || settings.world_size >= 0) return from_settings(settings);
  for (const Names& names : {kTorchrun, kMpich, kOpenMpi, kSlurm}) {
    if (is_launched_by(env, names)) return from_launcher(env, settings, names);
  }
  // Job scripts export WORLD_SIZE and the like and leave the rank to the launcher; without one it is what is
  // missing.
  for (const Names& names : {kTorchrun, kMpich, kOpenMpi}) {
    if (env.has(names.size) && env.text(names.size) != "1") {
      return require(env, names, names.rank, names.size);
    }
  }
  if (!settings.root.empty()) {
    return fail(
        Code::invalid_setting,
        "WEFT_ROOT is set, but nothing says which rank this is: set WEFT_RANK and WEFT_WORLD_SIZE, or "
        "use a launcher");
  }
  LaunchInfo alone;
  alone.launcher = "none";
  alone.local_rank = 0, alone.local_size = 1;
  return alone;
}

/// The refusal of a root whose host is not found, with what a user can do about it.
Status not_found(const LaunchInfo& launch, const Status& why) {
  const Status status = why.in("the job's root");
  if (launch.launcher != kSlurm.launcher || !settings().root.empty()) return status;
  return fail(status.code(),
              "{}; the name is Slurm's: srun --mpi=pmix or --mpi=pmi2 needs no names, or set "
              "WEFT_ROOT=host:port with an address of rank 0's node",
              status.message());
}

/// Names of pods come up with the pods, and name servers fail at times: tries again until the deadline.
Result<SocketAddress> resolve_root(const LaunchInfo& launch, Deadline deadline) {
  const std::string& host = launch.root_host;
  for (bool said = false;;) {
    Result<SocketAddress> found = SocketAddress::resolve(host, static_cast<uint16_t>(launch.root_port));
    const bool name = host.find_first_of(":%") == std::string::npos;
    if (found.ok() || !name || Cancellation::ends(deadline)) return found;
    if (!std::exchange(said, true))
      log::warn("{}; trying again for up to {:.0f} s", not_found(launch, found.status()).message(),
                deadline.remaining_ms(INT32_MAX - 1) / 1e3);
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(deadline.remaining_ms(250), 250)));
  }
}

/// The root's host, as this rank reaches it. Hosts are often told to call themselves 127.0.1.1 (in
/// /etc/hosts): a rank that met the root there would tell the others that address for its own.
Result<std::string> reached_root_host(const LaunchInfo& launch, Deadline deadline) {
  const std::string& host = launch.root_host;
  Result<SocketAddress> found = resolve_root(launch, deadline);
  if (!found.ok()) return found.status();
  const bool meant = SocketAddress::is_numeric(host) || host.find("localhost") != std::string::npos;
  if (meant || !found->loopback()) return host;
  Result<SocketAddress> own = host_address(settings().socket_ifname);
  if (!own.ok()) return own.status();
  log::info("the root's host, {}, is this one, which calls itself {}: meeting at {}", host,
            found->to_string(false), own->to_string(false));
  return own->to_string(false);
}

Result<UniqueId> derived_id(const LaunchInfo& launch, Deadline deadline) {
  Result<std::string> host = reached_root_host(launch, deadline);
  if (!host.ok()) return not_found(launch, host.status());
  Result<UniqueId> id = unique_id_for(*host, launch.root_port, launch.secret);
  if (!id.ok()) return id.status().in("the job's root");
  if (launch.rank != 0) return id;
  if (static bool warned = false; launch.secret_is_public && !std::exchange(warned, true)) {
    log::warn(
        "the job's secret is derived from its root's address and the launcher's numbers, which others may "
        "know; set "
        "WEFT_JOB_SECRET to the same random text on all ranks to keep them out");
  }
  if (const Result<Job> job = read_unique_id(*id); job.ok() && !is_of_this_host(job->root))
    log::warn(
        "{} ({}) is no address of this host, where rank 0 runs: no rank will find the root there unless "
        "something forwards it; WEFT_ROOT or MASTER_ADDR must name this host, as the other ranks reach it",
        launch.root_host, job->root.to_string());
  WEFT_TRY(serve_unique_id(*id));
  return id;
}

}  // namespace

std::string first_host(std::string_view node_list) {
  std::string host;
  for (size_t at = 0; at < node_list.size() && node_list[at] != ','; ++at) {
    if (node_list[at] != '[') {
      host += node_list[at];
      continue;
    }
    const size_t end = std::min(node_list.find(']', at), node_list.size());
    const std::string_view numbers = node_list.substr(at + 1, end - at - 1);
    host += numbers.substr(0, numbers.find_first_of(",-"));
    at = end;
  }
  return host;
}

Result<LaunchInfo> detect_launch() {
  WEFT_TRY(settings_status());
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) entries.emplace_back(*entry);
  const Environment env(entries);
  Result<LaunchInfo> info = detect(env, settings());
  const std::string tasks = env.text(kSlurm.size);
  if (static bool said = false; info.ok() && info->launcher == "none" && env.has(kSlurm.rank) &&
                                !tasks.empty() && tasks != "1" && !std::exchange(said, true))
    log::warn("this job of Slurm has {} tasks, and srun starts them: what its batch script runs is one rank",
              tasks);
  return info;
}

Result<LaunchInfo> detect_launch(const std::vector<std::string>& environment) {
  Result<Settings> settings = parse_settings(environment);
  if (!settings.ok()) return settings.status();
  return detect(Environment(environment), *settings);
}

Result<UniqueId> launch_unique_id(const LaunchInfo& launch, Deadline deadline) {
  switch (launch.exchange) {
    case IdExchange::alone: return create_unique_id("127.0.0.1");
    case IdExchange::derived: return derived_id(launch, deadline);
    case IdExchange::pmi: return exchange_over_pmi(launch.pmi_fd, launch.rank, deadline);
    case IdExchange::pmix: return exchange_over_pmix(launch.rank, deadline);
  }
  return fail(Code::internal_error, "unknown exchange of ids {}", static_cast<int>(launch.exchange));
}

}  // namespace weft::bootstrap
