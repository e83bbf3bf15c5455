// Machine: what time things take, as an alpha-beta description with the CPU's part in it. The simulator and
// the tuner know the machine only through this value; measuring it is not their business. It may be written
// to JSON and read back.
//
// Units: µs and bytes/µs (1000 bytes/µs = 1 GB/s). Thread safety: values and pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "topology/host.h"

namespace weft::model {

/// How messages travel between two ranks, inside a node or between nodes.
struct Link {
  double alpha_us = 0;     // from the sender's last instruction to the receiver's first, for an empty message
  double overhead_us = 0;  // CPU time a message takes, once at each end
  double bytes_per_us = 0;  // one connection's rate, and the rate at which a CPU moves bytes where it must
  bool by_cpu = true;       // the ranks' CPUs move the bytes; false: the network interface does
};

/// Rates of one rank's memory work.
struct Memory {
  uint64_t cache_bytes = 0;  // buffers of an operation up to this, all together, stay in the cache
  double copy_cached = 0;    // bytes/µs copied
  double copy_large = 0;
  double reduce_cached = 0;  // bytes/µs of source, summed over the sources
  double reduce_large = 0;
};

struct Machine {
  std::string name = "default";
  // Defaults: medians on an x86-64 server of 2022, two cores, Linux 6, measured as
  // docs/simulator-and-tuner.md says.
  Link intra{.alpha_us = 0.09, .overhead_us = 0.03, .bytes_per_us = 11000, .by_cpu = true};
  Link inter{.alpha_us = 5.0, .overhead_us = 1.5, .bytes_per_us = 6000, .by_cpu = true};
  Memory memory{.cache_bytes = 16 << 20,
                .copy_cached = 47000,
                .copy_large = 12000,
                .reduce_cached = 48000,
                .reduce_large = 15000};
  double nic_bytes_per_us = 5000;  // one network interface, in each direction
  int rails = 1;                   // network interfaces of a node that large data is spread over
  double cores = 2;                // of a node, for its ranks; more ranks than cores share them
  double switch_us = 1.0;          // a wait that yields the core to another rank, where they share
  double step_us = 0.03;           // the interpreter's own time for a step

  double node_bytes_per_us() const { return nic_bytes_per_us * rails; }
  /// How many times slower a CPU is for each of `ranks` ranks of one node.
  double slowdown(int ranks) const { return ranks > cores ? ranks / cores : 1.0; }
};

/// The default machine with what the host states: cores, cache, number and speed of its fastest interfaces.
/// `nodes_on_host` > 1 where WEFT_HOSTID makes one machine several nodes, which then share its cores.
Machine machine_of(const topology::Host& host, int nodes_on_host = 1);

/// Every field, as indented JSON.
std::string to_json(const Machine& machine);
/// Fields that are left out keep their defaults. Unknown keys, wrong types and values out of range are
/// refused by name.
Result<Machine> machine_from_json(const std::string& text);
/// As machine_from_json, from a file.
Result<Machine> read_machine(const std::string& path);

}  // namespace weft::model
