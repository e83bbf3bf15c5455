// Where progress threads run.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>

#include "base/settings.h"
#include "topology/host.h"

namespace weft::topology {
namespace {

/// Allowed CPUs, those near `interface` first; within each part one hardware thread of every core before the
/// second of any, highest core first.
std::vector<int> preferred_cpus(const Host& host, const Interface* interface) {
  struct Place {
    bool far;
    int sibling;  // 0 for the first allowed hardware thread of a core
    int core, id;
  };
  std::vector<Place> places;
  std::vector<int> threads_of_core(host.cores, 0);
  for (const Cpu& cpu : host.cpus) {
    if (!cpu.allowed) continue;
    const bool near = interface == nullptr || interface->near_cpus.empty() ||
                      std::binary_search(interface->near_cpus.begin(), interface->near_cpus.end(), cpu.id);
    places.push_back({!near, threads_of_core[cpu.core]++, cpu.core, cpu.id});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tuple(a.far, a.sibling, -a.core, a.id) < std::tuple(b.far, b.sibling, -b.core, b.id);
  });
  std::vector<int> ids;
  for (const Place& place : places) ids.push_back(place.id);
  return ids;
}

std::optional<int> environment_number(const char* name) {
  const char* const text = std::getenv(name);
  int value = 0;
  if (text == nullptr || std::from_chars(text, text + std::strlen(text), value).ec != std::errc())
    return std::nullopt;
  return value;
}

struct LocalPlace {
  int rank, size;
};

/// What the launcher says of this process among those of its host.
std::optional<LocalPlace> local_place() {
  if (settings().local_rank >= 0 && settings().local_rank < settings().local_size) {
    return LocalPlace{settings().local_rank, settings().local_size};
  }
  constexpr const char* kLaunchers[][2] = {
      {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},  // MPICH
      {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},      // torchrun
      {"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
  };
  for (const auto& [rank, size] : kLaunchers) {
    // Slurm tells a batch script of one process what it tells the tasks of a step.
    if (std::string_view(rank).starts_with("SLURM") && std::getenv("SLURM_STEP_ID") == nullptr) continue;
    const auto local_rank = environment_number(rank), local_size = environment_number(size);
    if (local_rank && local_size && *local_rank >= 0 && *local_rank < *local_size)
      return LocalPlace{*local_rank, *local_size};
  }
  return std::nullopt;
}

}  // namespace

const Interface* fastest_interface(const Host& host) {
  const Interface* best = nullptr;
  for (const Interface& interface : host.interfaces) {
    if (!interface.up || interface.loopback) continue;
    if (!best || std::tuple(interface.rdma, interface.gbit_per_s) > std::tuple(best->rdma, best->gbit_per_s))
      best = &interface;
  }
  return best;
}

std::vector<int> progress_cpus(const Host& host, const Interface* interface, int threads, int local_rank,
                               int local_ranks) {
  const std::vector<int> cpus = preferred_cpus(host, interface);
  // A CPU for each application thread and each progress thread. A process that its launcher has bound to CPUs
  // of its own sees only those, and counts too many others: it then leaves placing to the kernel, inside its
  // own set.
  const size_t needed = static_cast<size_t>(local_ranks) * (1 + threads);
  if (threads <= 0 || cpus.size() < needed) return {};
  const auto first = cpus.begin() + static_cast<ptrdiff_t>(local_rank) * threads;
  return {first, first + threads};
}

std::vector<int> progress_cpus() {
  const Result<Host>& host = discover_host();
  const std::optional<LocalPlace> place = local_place();
  if (!host.ok() || !place || !settings().pin || !settings().hostid.empty()) return {};
  return progress_cpus(*host, fastest_interface(*host), settings().progress_threads, place->rank,
                       place->size);
}

}  // namespace weft::topology
