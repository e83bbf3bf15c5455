// The cost of communication: how long an instruction that communicates takes when nothing else is on its
// links.
//
// The formula: MiCS's volumes at the bandwidth of the slowest link that a group crosses, and a latency for
// each hop. The bytes that a group on several nodes sends between nodes are counted for each node: a gather
// brings into a node what its own ranks do not have, and an AllReduce moves one copy for each node. Groups
// whose members share a node share its interfaces. Values of Machine::plans and Machine::traffic take
// precedence.
//
// Thread safety: a Communication belongs to one thread.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "program/job.h"
#include "program/machine.h"
#include "program/program.h"

namespace loom::program {

/// Bytes that a rank sends to others in a collective over `ranks` ranks with `bytes` in all: (n-1)/n of them
/// for a gather or scatter, twice that for an AllReduce.
double volume(Op op, double bytes, int ranks);

/// An AllReduce of a library whose trees and rings pass segments on: (√latency + √(bytes / bandwidth))², the
/// least over the length of a segment (Hockney's model of a pipelined chain). `bytes` leave each node.
double pipelined_us(double bytes, double bandwidth, double latency_us);

/// What an instruction that communicates asks of its links.
struct LinkTime {
  bool between_nodes = false;
  double latency_us = 0;  // in which the link is free for others
  double work_us = 0;     // of the link, alone
  double alone_us() const { return latency_us + work_us; }
};

/// Times of a job's communication. Groups are those of data rank 0, which stand for all others.
class Communication {
 public:
  Communication(const Job& job, const Machine& machine, const std::vector<model::Unit>& units);

  /// Of an instruction of the stage's program, which is_communication() and is not offloading.
  LinkTime time_of(const Program& program, const Instruction& instruction);
  bool leaves_node(GroupKind kind, int stage) { return shape_of(kind, stage).nodes > 1; }
  /// Whether two stages lie on different nodes.
  bool leaves_node(int stage, int peer) const;
  double latency_us(bool between_nodes) const {
    return between_nodes ? machine_.inter_latency_us : machine_.intra_latency_us;
  }

 private:
  /// A group, as the node of its first rank sees it.
  struct Shape {
    int ranks = 1, nodes = 1;
    int here = 1;      // members on this node
    int sharing = 1;   // groups that share the node's interfaces
    bool even = true;  // as many members on each node
  };
  const Shape& shape_of(GroupKind kind, int stage);
  LinkTime to_one_peer(const Instruction& instruction, int stage) const;
  LinkTime collective(Op op, double bytes, const Shape& shape) const;
  std::optional<double> engine_us(Op op, double through) const;
  double bytes_of(const Program& program, const Instruction& instruction) const;

  const Job& job_;
  const Machine& machine_;
  const Layout layout_;
  const std::vector<model::Unit>& units_;
  std::map<std::pair<GroupKind, int>, Shape> shapes_;
};

}  // namespace loom::program
