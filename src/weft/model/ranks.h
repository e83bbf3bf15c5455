// Ranks: the simulated ranks, where each is in its plan, and which ranks its steps are for. With a symmetry
// (model/symmetry.h) the plans of node 0 serve all nodes, moved. If one node stands for all, only its ranks
// exist here, each in the place of its counterparts on all nodes.
//
// A rank's `rank` and `node` are those of the layout, `worker` is its number among those simulated. Steps
// name peers as their plan sees them: only peer_of() and seen_from() know who that is.
//
// Thread safety: none; one simulation's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/event_queue.h"
#include "model/lanes.h"
#include "model/script.h"
#include "model/symmetry.h"
#include "plan/plan.h"
#include "topology/layout.h"
#include "transport/message_burst.h"

namespace weft::model {

/// When a rank last read what had come of a sender.
struct Look {
  int from;
  double at_us;
};

/// Messages of a rank to a peer.
struct SentMessages {
  int to;
  transport::tcp::MessageBurst burst;
  uint64_t looked = 0;    // the rank's, at the last one; …
  double at_us = 0;       // … when that was, and …
  double writing_us = 0;  // … what the rank had spent on writes by then
};

/// A rank's connection to a peer between nodes, where CPUs move the bytes.
struct Line {
  int to;
  double free_us = 0;               // when the last byte that was written has left
  int underway = 0;                 // puts that the rank's CPU has turned to, and not handed over yet
  std::vector<Event> waiting = {};  // puts that there was no room for, …
  size_t written = 0;               // … of which so many have been written since

  bool waits() const { return written < waiting.size(); }
  void write_one() {
    if (++written < waiting.size()) return;
    waiting.clear();
    written = 0;
  }
};

/// A rank, in the call of a streak that it is in. The members that most events use come first: with thousands
/// of ranks, each event fetches them anew.
struct RankState {
  int rank, node, local;
  uint32_t left = 0;  // steps of the call that are not done
  uint8_t call = 0;
  size_t worker;
  uint64_t next_rail;  // of its messages, counted
  double finish_us = 0;
  Lanes lanes;
  std::vector<Event> ahead = {};        // messages for later calls, landed or filed
  double halfway_us = 0;                // when it had done the first half of its calls, …
  double halfway_used_us = 0;           // … and what that had taken of its CPU
  std::vector<Look> looks = {};         // one for each sender between nodes that it has read from
  uint64_t looked = 0;                  // how often it has read from any
  double writing_us = 0;                // what it has spent on writes between nodes
  std::vector<SentMessages> sent = {};  // one for each peer between nodes that it has sent to
  std::vector<Line> lines = {};         // … that it has put to
  size_t last_line = 0;                 // the one that line_to() found

  const plan::Plan& plan() const { return lanes.plan(); }
  const plan::Step& step(plan::StepId id) const { return plan().steps[id]; }
  /// From the last one on, since plans mostly go round their peers.
  Line& line_to(int peer) {
    for (size_t further = 0; further < lines.size(); ++further) {
      if (lines[last_line].to == peer) return lines[last_line];
      last_line = last_line + 1 < lines.size() ? last_line + 1 : 0;
    }
    last_line = lines.size();
    return lines.emplace_back(Line{.to = peer});
  }
};

class Ranks {
 public:
  /// Ranks of which none has begun. `plans` are those of all, or with a symmetry of node 0; they and `layout`
  /// must live as long.
  Ranks(std::span<const plan::Plan> plans, const topology::Layout& layout, Symmetry symmetry, bool one_node);
  Ranks(const Ranks&) = delete;  // states point to scripts
  Ranks& operator=(const Ranks&) = delete;

  std::vector<RankState>& all() { return states_; }
  const std::vector<RankState>& all() const { return states_; }

  int nodes() const { return one_node_ ? 1 : layout_.nodes(); }  // that are simulated
  /// The number among those of a node of the layout.
  int simulated_node(int node) const { return one_node_ ? 0 : node; }
  int node_of(int rank) const { return layout_.node_of(rank); }

  /// The rank that is, or stands for, a rank of the layout.
  RankState& state_of(int rank) { return states_[static_cast<size_t>(one_node_ ? rank % per_node_ : rank)]; }
  /// The rank that an event is of, for messages the sender.
  RankState& of(const Event& event) { return state_of(event.rank); }
  /// The peer that `rank`'s step is for. It is not simulated if one node stands for all.
  int peer_of(const RankState& rank, const plan::Step& step) const {
    if (symmetry_ == Symmetry::none) return step.peer;
    return moved(step.peer / per_node_, rank.node) * per_node_ + step.peer % per_node_;
  }
  /// The rank that receives what `rank`'s step sends.
  RankState& receiver_of(const RankState& rank, const plan::Step& step) {
    return state_of(peer_of(rank, step));
  }
  /// The rank from which, in its script, `peer` gets what `sender` sends it.
  int seen_from(int peer, const RankState& sender) const {
    if (symmetry_ == Symmetry::none) return sender.rank;
    const int inverse = inverse_node(symmetry_, layout_.nodes(), peer / per_node_);
    return moved(sender.node, inverse) * per_node_ + sender.local;
  }
  bool same_node(const RankState& rank, const plan::Step& step) const {
    return layout_.same_node(rank.plan().rank, step.peer);
  }

 private:
  int moved(int node, int by) const { return moved_node(symmetry_, layout_.nodes(), node, by); }

  const topology::Layout& layout_;
  const Symmetry symmetry_;
  const bool one_node_;
  const int per_node_;
  std::vector<Script> scripts_;
  /// The state of all ranks' lanes, one after the other. A block for each rank, between the plans, makes
  /// double_tree of 4096 ranks 8 % slower.
  std::vector<uint32_t> lanes_;
  std::vector<RankState> states_;  // by worker
};

}  // namespace weft::model
