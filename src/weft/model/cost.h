// Machine: how long things take, as an alpha-beta description with the CPU's part. The simulator and the
// tuner know a machine only by this value. job/tuning.h measures it. It can be written to JSON and read back.
//
// Units: µs and bytes/µs (1000 bytes/µs = 1 GB/s). Thread safety: values and pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/host.h"
#include "topology/layout.h"
#include "transport/eager.h"

namespace weft::model {

/// How messages travel between two ranks, inside a node or between nodes.
struct Link {
  double alpha_us = 0;     // from the sender's last instruction to the receiver's first, for an empty message
  double overhead_us = 0;  // CPU time a message takes, once at each end
  double sending_us = 0;   // … at its sender's, the rest of both at its receiver's; 0: the ends are alike
  double behind_us = 0;  // … at its receiver's, of one that is read together with another of the same sender;
                         // 0: as of any
  double gathered_us = 0;   // … at its sender's, of one that shares a write with others of a burst
                            // (transport/message_burst.h); 0: none does
  double bytes_per_us = 0;  // between nodes: one connection's rate; where CPUs move the bytes, the sender's
  bool by_cpu = true;  // the ranks' CPUs move the bytes; false: the network interface (a copy engine) does
  // Rates between nodes if CPUs move the bytes; 0: as bytes_per_us. Buffers of kSentCached bytes and less
  // are in the CPUs' own caches, together with the kernel's. Those of kSentLarge and more are not. In
  // between, the time of a byte grows with the logarithm of the size.
  double received_bytes_per_us = 0;        // by the receiver's CPU
  double sent_large_bytes_per_us = 0;      // by the sender's, of large buffers
  double received_large_bytes_per_us = 0;  // … by the receiver's
};

/// Time of an empty message from the call that sends it to the rank that has it.
inline double way_us(const Link& link) { return link.alpha_us + 2 * link.overhead_us; }

/// CPU time of a message at its sender, and at a receiver that reads it by itself.
inline double sending_us(const Link& link) {
  return link.sending_us > 0 ? link.sending_us : link.overhead_us;
}
inline double receiving_us(const Link& link) {
  return std::max(2 * link.overhead_us - sending_us(link), 0.0);
}

/// Bytes of a message between nodes besides its payload: our header, and those of TCP, IP and Ethernet.
/// Messages that share a write share the latter.
constexpr double kHeaderBytes = 32, kPacketBytes = 66;

/// The CPUs' part in a message between ranks of pretended nodes that share a core, of its usual cost: nothing
/// changes caches. It is at most 3.6 µs of 4 to 6 over loopback. But the kernel moves ranks, and this value
/// predicts whole operations best.
constexpr double kSameCore = 0.8;

constexpr uint64_t kSentCached = 2 << 20, kSentLarge = 16 << 20;
/// A CPU's rate for a message of buffers of so many bytes.
double sent_rate(const Link& link, uint64_t buffer_bytes);
double received_rate(const Link& link, uint64_t buffer_bytes);

/// Rates of one rank's memory work, in bytes/µs, for data that is in its cache and for data that is not.
struct Memory {
  // The total size of an operation's buffers. Up to half of this they stay in the cache. From eight times
  // this on they do not. In between, the time of a byte grows with the logarithm of the size.
  uint64_t cache_bytes = 0;
  uint64_t large_bytes = 0;  // … or from here on; 0: eight times cache_bytes
  double copy_cached = 0;    // copied
  double copy_large = 0;
  double reduce_cached = 0;  // of source, summed over the sources
  double reduce_large = 0;
  double peer_cached =
      0;  // read from, or written to, the memory of a rank of the same node, in a single copy
  double peer_written = 0;  // … which that has just written there, and what that took it; 0: as mapped_near
  double peer_large = 0;
  double peer_reduced = 0;  // as peer_large, into a buffer that stays in the cache: what is to be reduced
  double peer_us =
      0;  // … and the system call that does it, once a copy and for every 128 KiB that are reduced
  // Data that is written into mapped memory of a rank of the node. The rate covers what the sender pays, and
  // what the owner pays to take the data over from the sender's cache, beyond accesses to own memory. The
  // bytes of an operation select the rate (mapped_rate()). The same rates apply to reads of another rank's
  // scratch, to helped reads, and to long data that the peer has just written; the last is not measured.
  double mapped_near = 0;        // so little that it stays in the sender's own cache; 0: as mapped_cached
  double mapped_cached = 0;      // it has left for one that both share
  double mapped_large = 0;       // no cache holds it
  double node_bytes_per_us = 0;  // what the ranks of a node copy and reduce together, outside their caches;
                                 // 0: nobody is in another's way
};

/// The part of data of `working_set_bytes` that is not in the cache, as far as time tells: 0 to 1.
double large_share(const Memory& memory, uint64_t working_set_bytes);
/// Sets cache_bytes and large_bytes so that data of `middle_bytes` is reduced at `middle_rate`, and that of
/// `large_bytes` at memory.reduce_large.
void fit_cache(Memory& memory, uint64_t middle_bytes, double middle_rate, uint64_t large_bytes);
/// The rate of data that goes between the caches of two ranks, if an operation moves `bytes` that way
/// (HandedOver counts them): mapped_near up to kMappedNear, mapped_cached from kMappedCached to twice that,
/// mapped_large from kMappedLarge on. In between the time of a byte changes with the logarithm of the number.
double mapped_rate(const Memory& memory, uint64_t bytes);
/// The same for reads of memory that its owner has just written.
double written_rate(const Memory& memory, uint64_t bytes);
constexpr uint64_t kMappedNear = 256 << 10, kMappedCached = 1 << 20, kMappedLarge = 16 << 20;
/// The rate for data of `working_set_bytes` between those for cached and for large data.
double rate_for(const Memory& memory, uint64_t working_set_bytes, double cached, double large);

struct Machine {
  std::string name = "default";
  // Defaults: two cores of a server of 2023 and TCP over loopback, measured as
  // docs/dev/design-log/2026-11-27-simulator-calibration.md says.
  Link intra{.alpha_us = 0.09, .overhead_us = 0.03, .bytes_per_us = 11000, .by_cpu = true};
  Link inter{.alpha_us = 1.4, .overhead_us = 1.2, .bytes_per_us = 8000, .by_cpu = true};
  /// The network between nodes. It decides which messages are eager (limits_for()).
  transport::Net net = transport::Net::tcp;
  Memory memory{.cache_bytes = 4 << 20,
                .copy_cached = 40000,
                .copy_large = 10000,
                .reduce_cached = 70000,
                .reduce_large = 15000,
                .peer_cached = 17000,
                .peer_written = 0,
                .peer_large = 4500,
                .peer_reduced = 6500,
                .peer_us = 1.5,
                .mapped_cached = 9000,
                .mapped_large = 5000};
  double nic_bytes_per_us = 8000;  // one network interface, in each direction
  /// Part of that rate which a message gets that follows one to (or from) another node: TCP connections share
  /// unevenly, and lines stand idle meanwhile. 1 where the network keeps them apart.
  double crossing = 0.98;
  /// Bytes that an idle interface has saved up and sends beyond its rate, like a token bucket.
  double burst_bytes = 0;
  int rails = 1;                      // network interfaces of a node that large data is spread over
  double nic_message_us = 0;          // an interface's own time for a message or a stripe, besides its bytes
  uint64_t stripe_bytes = 128 << 10;  // a put is spread over rails in stripes of at least this
  int engines = 0;  // copy engines (of a GPU) that copy and reduce beside a rank's CPU; 0: the CPU does
  // From telling an engine to do something very short until that is found done. So long after a call its
  // stream has come to it, too.
  double engine_us = 0;
  double engine_step_us = 0;  // … of which the rank's thread is busy: it queues the work, and finds it done
  int device_ranks = 1;       // of a node, that share a device with its copy engines
  int thread_ranks = 1;       // of a node, whose steps one thread does
  double cores = 2;           // of a node, for its ranks; more ranks than cores share them
  double switch_us = 2.5;     // where they share: until a core that its rank has given away has the next one
  double step_us = 0.01;      // the interpreter's own time for a step
  double call_us = 0.3;       // … and the engine's for a call, before its first step

  double node_bytes_per_us() const { return nic_bytes_per_us * rails; }
  bool shares_cores(int ranks) const { return ranks > cores; }
  /// Nodes with less than a core each are pretended, and share one machine's cores.
  bool nodes_share_cores() const { return cores < 1; }
};

/// Ranks that take turns on cores (model/cores.h).
struct Turns {
  int ranks = 0;
  int cores = 0;              // 0: nobody takes turns
  bool across_nodes = false;  // one machine's cores are those of all nodes

  double crowd() const { return cores > 0 ? static_cast<double>(ranks) / cores : 1; }
  static constexpr int kMostRanks = 8;  // of a core: simulating turns of more takes too long
};

/// The ranks that take turns with the ranks of `node`. These are its own ranks, if they outnumber its cores.
/// If nodes share a machine's cores, they are all ranks, if there is a whole core for them. None if they are
/// too many.
Turns turns_of(const Machine& machine, const topology::Layout& layout, int node);

/// Whether CPUs move data between nodes so much faster than interfaces carry it that it waits in queues
/// (plan::Limits::nic_bound).
bool is_nic_bound(const Machine& machine);

/// plan::Limits::eager_incast_bytes. The kernel sends a message that is longer than its largest segment in
/// two pieces, and the second when the first has left the interface. Messages to others wait there by then.
/// If transfers are NIC-bound, these take long, and a rendezvous brings the data sooner, unless the
/// rendezvous takes a good part of that time.
uint64_t eager_incast_bytes(const Machine& machine);

/// How many bytes should be on their way over a connection between nodes (Transport::bound_flight): what the
/// interface carries in four round trips and a millisecond, since a rank may wait for a core so long. More
/// would wait in the network's queues. Where the data of several senders meets there, packets are lost, and a
/// sender that lost one waits for 200 ms. The more ranks of other nodes a node's ranks exchange with at once,
/// the smaller the bound. 0 = no bound, if CPUs are no faster than the interface, or do not move the bytes.
uint64_t flight_bytes(const Machine& machine, const topology::Layout& layout);

/// The default machine with what the host states: cores, cache, number and speed of its fastest interfaces.
/// `nodes_on_host` > 1 where WEFT_HOSTID makes one machine several nodes: they share its cores, and talk over
/// loopback, whatever its interfaces.
Machine machine_of(const topology::Host& host, int nodes_on_host = 1);

/// Everything but the name of a machine, in a fixed order, to send it to other ranks. It is sent as floats,
/// so its sender must use the received machine, too.
std::vector<float> to_numbers(const Machine& machine);
/// The machine of such numbers. Errors: invalid_argument for another number of them, and for a value that its
/// field may not have, by name.
Result<Machine> from_numbers(std::span<const float> numbers);

/// Every field, as indented JSON.
std::string to_json(const Machine& machine);
/// Fields that are left out keep their defaults. Unknown keys, wrong types and values out of range are
/// refused by name. A value may say where it is from: {"value": 5, "source": "data sheet"}.
Result<Machine> machine_from_json(const std::string& text);

}  // namespace weft::model
