// Program: what one rank does for one training step, as plain data. A list of instructions in the order in
// which they are issued, the buffers that they use, and what has to be over before each may begin. Every way
// of training is a generator of such lists or a pass over one; the verifier, the memory planner, the
// simulator and the executor see the same value.
//
// Words. An instruction on lane 0 is computed by the rank itself and is over when the next one is issued.
// Those on other lanes are communication in flight: each lane is a queue of Weft's (or the tier's, for what
// is offloaded), and they are over when something that comes `after` them begins. A buffer is written by one
// instruction or several and is never given a second meaning: memory is shared by the planner, not by the
// generator. Persistent buffers live from step to step.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/spec.h"

namespace loom::program {

enum class Op {
  batch,           // of a microbatch: from the host to where it is computed
  gather,          // parameters of a unit: shard of every rank of the partition group -> whole buffer
  forward,         // of a unit for a microbatch
  recompute,       // the same again, for what backward needs
  loss,            // forward and backward of the head, with the loss
  evaluate,        // the loss alone
  logits,          // of one row
  backward,        // of a unit
  reduce_scatter,  // gradients of a unit: summed over the partition group, every rank keeps its shard
  accumulate,      // shard += partial
  all_reduce,      // gradient shards, over the replication group
  tie,             // gradient shards of a tied embedding: first and last stage add their halves
  send,            // a unit's output, to the next stage
  receive,         // the output of the unit before this stage's
  send_back,       // the derivative with respect to the output of the unit before this stage's
  receive_back,    // that with respect to this stage's last output
  // Exchanges between the steps of a unit that tensor ranks share (model/recipe.h), over their group.
  tensor_gather,          // own -> all: rows, or a head's numbers
  tensor_all_reduce,      // summand -> sum, in place
  tensor_reduce_scatter,  // summand of all rows -> sum of own rows
  tensor_gradients,  // of parameters that every rank has whole, and has a summand of: summed, once a step
  squares,           // of a unit's gradient shard: summed in chunks
  norm,              // of all gradients, from the squares of all ranks that share a model
  mean_loss,         // of the global batch, from the losses of all ranks' microbatches
  step,              // of the optimizer, for a unit's shard
  offload,           // memory -> tier
  load,              // tier -> memory
};
constexpr int kOps = 26;

/// What a buffer is to an instruction.
enum class Role {
  parameters,       // a unit's, whole
  tied_parameters,  // the embedding's, for a tied head
  shard,            // gather: parameters; reduce_scatter, all_reduce, accumulate, squares, step: gradients
  partial,          // accumulate: what is added
  gradient,         // a unit's, whole
  tied_gradient,
  input,
  output,
  saved,
  derivative,  // of the loss with respect to activations
  workspace,
  exchanged,  // an array of the unit's recipe that tensor ranks exchange
  batch,      // tokens and targets, and what the host derives from them
  losses,     // of each token of a microbatch
  norms,
  told,  // what ranks tell each other at the end: a head leaves there a microbatch's loss, and what was right
  logits,  // of one row
  master,
  slot,      // of the optimizer, one after the other
  resident,  // offload, load: in memory
  stored,    // in the tier
};

/// What memory is reported by.
enum class Category {
  parameters,   // shards: fp32 masters, and their copies in a smaller type
  optimizer,    // its slots
  gradients,    // shards
  gathered,     // whole units' parameters
  unreduced,    // whole units' gradients, and partial sums
  activations,  // between units, and what blocks save
  workspace,
  batch,
};
constexpr int kCategories = 8;

using BufferId = int;

struct Buffer {
  std::string name;
  Category category = Category::workspace;
  int64_t bytes = 0;
  bool persistent = false;
  bool in_tier = false;  // in a file instead of the arena
};

struct Use {
  Role role;
  BufferId buffer;
  bool reads;
  bool writes;
  int array = -1;  // of the recipe, where it is one that tensor ranks exchange
};

struct Instruction {
  Op op;
  int unit = -1;
  int microbatch = -1;
  int lane = 0;
  std::vector<Use> uses;
  std::vector<int> after;  // instructions of other lanes than 0 that must be over; filled in by connect()
  int peer = -1;           // stage that is sent to or received from
  /// Steps [first, last) of the unit's recipe, of what computes and of exchanges; filled in by split_units().
  int first = -1, last = -1;
  Op pass = Op::forward;  // of an exchange: the pass whose step it is
  /// Where lanes are streams of a device: instructions for whose end the computing stream waits before this
  /// one, and whether the instruction's own stream then waits for the computing one. Other waits
  /// stand for what is left out. Filled in by find_stream_waits().
  std::vector<int> events = {};
  bool joins = false;

  /// -1 when it has no buffer of that role.
  BufferId buffer(Role role) const {
    for (const Use& use : uses)
      if (use.role == role) return use.buffer;
    return -1;
  }
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  int units = 0;  // of the model
  int microbatches = 0;
  int stage = 0;
  bool trains = true;            // whether it has backward and a step
  bool shared = false;           // whether tensor ranks share the work on units
  std::vector<BufferId> shards;  // of each unit: the parameters that gathers read; -1: of another stage
  BufferId batch = -1, norms = -1, told = -1;
  BufferId logits = -1;  // of a row; only of a program of logits, on the head's stage

  BufferId add(std::string name, Category category, int64_t bytes, bool persistent = false) {
    buffers.push_back({std::move(name), category, bytes, persistent});
    return static_cast<BufferId>(buffers.size()) - 1;
  }
};

const char* op_name(Op op);
const char* category_name(Category category);
/// Whether the rank computes it: lane 0, and time that collectives can hide behind.
bool is_compute(Op op);
/// Whether all stages of a pipeline meet in it: each waits there for what the others tell.
bool is_meeting(Op op);
/// Whether others can be in flight behind it for long: computing of any unit but the embedding, which looks
/// rows up and multiplies nothing.
bool hides_communication(const Instruction& instruction);
/// Whether it is in flight on a lane of its own.
bool is_communication(Op op);
/// Whether a call of Weft puts it there.
bool is_called(Op op);
/// Whether it goes to or comes from one other rank.
bool is_transfer(Op op);
/// Whether it is between the tensor ranks that share the work on a unit.
bool is_exchange(Op op);
/// Whether it moves memory to the tier or back.
bool is_offloading(Op op);

/// "instruction 12 (forward of unit 3, microbatch 0)".
std::string text_of(const Program& program, int index);
/// A line an instruction: number, lane, what, buffers, and what it comes after.
std::string to_string(const Program& program);

}  // namespace loom::program
