// Workers: the servers inside the nodes. Each works on one thing at a time:
// * each rank's CPU, or the thread that does the steps of several ranks
// * each rank's engines, or the copy engine of a device that several ranks share
// * each rank's link to the other ranks of its node
// * the memory that the ranks of a node share
// The counterpart of network.h.
//
// Thread safety: none; one simulation's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/cost.h"
#include "model/handed_over.h"
#include "plan/plan.h"

namespace weft::model {

class Workers {
 public:
  explicit Workers(const Machine& machine, const plan::Limits& limits) : machine_(machine), limits_(limits) {}

  struct Buffers {
    uint64_t working_set_bytes = 0;  // of the caller, altogether
    uint64_t scratch_bytes = 0;
    HandedOver handed_over;
  };
  /// Adds the next rank: on node number `node` of those simulated, which has `ranks` ranks and `speed` of its
  /// speed, and takes turns as `turns` say; `buffers` decide between rates inside and outside caches.
  void add(int node, int ranks, const Turns& turns, double speed, const Buffers& buffers);

  /// When something began, and when it ended.
  struct Span {
    double start_us, end_us;
  };

  /// Takes a rank's CPU for `service_us` of its full speed, from `from_us` on.
  Span take_cpu(size_t rank, double from_us, double service_us) {
    Worker& worker = workers_[rank];
    double& free_us = cpu_free_us_[worker.thread];
    const double start = std::max(from_us, free_us);
    free_us = start + service_us * worker.slowdown;
    worker.used_us += service_us * worker.slowdown;
    return {start, free_us};
  }
  /// Whether the rank's CPU had nothing to do before `now_us`.
  bool idle(size_t rank, double now_us) const { return free_us(rank) < now_us; }
  /// Until when it has something to do.
  double free_us(size_t rank) const { return cpu_free_us_[workers_[rank].thread]; }
  /// A copy or a reduction, by the CPU or an engine. Rank `rank` executes the step of `plan`, whose ranks of
  /// the same node are as far from it here as there.
  Span work(size_t rank, const plan::Plan& plan, const plan::Step& step, double now_us);
  /// A put inside a node that an engine moves, of which it is told once the rank's CPU is free; `cpu_us` is
  /// what the CPU has to do besides. Returns when the CPU does that, and when the put is there.
  struct Moved {
    Span cpu;
    double there_us;
  };
  Moved move_inside(size_t from, size_t to, double now_us, double cpu_us, double bytes);
  /// What an engine moves from host memory to the device for a rank, told at `now_us`: when it is found done.
  double bring_in(size_t rank, double now_us, double bytes);
  /// From a call until its stream has come to it.
  double stream_us() const { return machine_.engine_step_us > 0 ? latency_us() : 0; }
  /// How long a rank's CPU moves a put's payload on its side, at full speed.
  double moving_us(size_t rank, const plan::Step& step, bool same_node, bool receives) const;

  /// One connection's rate between nodes, which the sender's CPU bounds where CPUs move the bytes.
  double flow_rate(size_t sender) const {
    const Worker& worker = workers_[sender];
    return machine_.inter.by_cpu ? worker.rates.sent / worker.slowdown : machine_.inter.bytes_per_us;
  }

  double slowdown(size_t rank) const { return workers_[rank].slowdown; }
  /// For how long the rank's CPU has been taken, all in all.
  double used_us(size_t rank) const { return workers_[rank].used_us; }
  /// Whether a rank that is not simulated has its core while it waits.
  bool has_part_of_a_core(size_t rank) const { return workers_[rank].part_of_a_core; }

 private:
  /// How fast a CPU works, in bytes/µs.
  struct Rates {
    double copy = 1, reduce = 1, peer = 1, peer_reduced = 1;
    double scratch_reduce = 1, brought_reduce = 1;
    double mapped = 1, sent = 1, slot = 1;
    double written = 1;                     // of what a peer has just written
    double helped = 0, helped_reduced = 0;  // of what a peer brings; 0: nobody has time for that
    double received = 1, received_scratch = 1;
  };
  struct Worker {
    int node = 0;
    bool part_of_a_core = false;
    double large_share = 0;  // of its data that is outside its cache
    double speed = 1, slowdown = 1;
    Rates rates = {};
    size_t thread = 0;  // that does its steps
    size_t device = 0;  // where device_ranks says that others share it
    double used_us = 0;
    double out_free_us = 0, in_free_us = 0;  // its link inside the node, where engines use it
  };

  struct Node {
    int ranks = 0;                  // added so far
    size_t thread = 0, device = 0;  // of the rank that was added last
    double memory_free_us = 0;
  };

  Span work_on_engine(size_t rank, const plan::Plan& plan, const plan::Step& step, double now_us);
  /// Whether all that a rank's copy reads is in the memory of its own device.
  bool all_on_device(size_t rank, const plan::Plan& plan, const plan::Step& step) const;
  /// The number here of the rank whose memory a step of `rank` reads.
  static size_t owner_of(size_t rank, const plan::Plan& plan, const plan::Region& source) {
    return static_cast<size_t>(static_cast<int>(rank) + source.rank - plan.rank);
  }
  double single_copy_us(const plan::Step& step, uint64_t piece_bytes, double rate) const;
  double read_us(const plan::Plan& plan, const plan::Step& step, uint64_t piece_bytes, double rate,
                 double helped_rate) const;
  /// The extra time of a copied byte that is not in the cache.
  double uncached_us(const Worker& worker) const {
    return std::max(0.0, 1 / worker.rates.copy - 1 / machine_.memory.copy_cached);
  }
  double take_links(size_t from, size_t to, double at_us, double bytes);
  /// Of a very short piece of work, without what its rank's CPU does for it.
  double latency_us() const { return std::max(machine_.engine_us - machine_.engine_step_us, 0.0); }
  bool shares_device(size_t rank, size_t other) const {
    return machine_.device_ranks > 1 && workers_[rank].device == workers_[other].device;
  }
  double take_device(size_t rank, double at_us, double bytes);

  const Machine& machine_;
  const plan::Limits& limits_;
  std::vector<Worker> workers_;         // by rank
  std::vector<double> cpu_free_us_;     // by thread
  std::vector<double> engines_;         // when each is free, rank by rank
  std::vector<double> device_free_us_;  // its copy engine, by device
  std::vector<Node> nodes_;
};

}  // namespace weft::model
