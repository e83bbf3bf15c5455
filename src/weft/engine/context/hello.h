// Hello: the first message between the ranks of a job. A rank says where it runs and how it is set. From all
// hellos follow the layout of ranks on nodes, and how many ranks share a machine.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "topology/layout.h"

namespace weft::engine {

/// Settings by which ranks choose what they say to each other.
inline constexpr const char* kSameOnAll[] = {
    "WEFT_NET",        "WEFT_PROVIDER",          "WEFT_ALGO",
    "WEFT_STRICT",     "WEFT_EAGER_INTRA_BYTES", "WEFT_EAGER_INTER_BYTES",
    "WEFT_SLICE_BYTES"};

/// Plain bytes; all fields are zeroed before they are set.
struct Hello {
  uint32_t wire_version;
  uint32_t settings[std::size(kSameOnAll)];  // hashes of their values
  uint64_t machine;   // equal for ranks of one machine, whatever node they pretend to be on
  uint64_t host;      // equal for ranks that share memory
  uint64_t cpu_mask;  // hash of the CPUs that this rank may use
  uint64_t cgroup;    // hash of its control group
  double cpu_quota;   // CPUs' worth of time that all in that group have; 0: no limit
  uint32_t cpus;      // how many those are
  uint8_t shm;
  uint8_t efa;     // this rank could use libfabric's efa provider
  uint8_t traces;  // it writes a trace (WEFT_TRACE)
};

/// All ranks' hellos. A collective. `host_id` overrides topology::host_id() if not empty. Errors: mismatch
/// (another version of Weft, or a setting that must be the same and is not, with both values), and those of
/// the bootstrap.
Result<std::vector<Hello>> exchange_hellos(bootstrap::Bootstrap& bootstrap, const std::string& host_id,
                                           Deadline deadline);

/// Ranks that share memory are on one node; a rank without shared memory is a node of its own.
topology::Layout layout_of(const std::vector<Hello>& hellos);
/// Ranks on the machine of `rank`, whatever nodes they pretend to be.
int count_ranks(const std::vector<Hello>& hellos, int rank);
/// The position of `rank` among them, in rank order.
int place_of(const std::vector<Hello>& hellos, int rank);
/// CPUs that they may use, all together; no more than their control groups grant the time of.
int count_cpus(const std::vector<Hello>& hellos, int rank);

/// All ranks' values of a plain struct, in rank order. A collective.
template <typename T>
Result<std::vector<T>> exchange(bootstrap::Bootstrap& bootstrap, const T& mine, Deadline deadline) {
  auto bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), deadline);
  if (!bytes) return bytes.status();
  std::vector<T> all(bootstrap.ranks());
  std::memcpy(all.data(), bytes->data(), bytes->size());
  return all;
}

}  // namespace weft::engine
