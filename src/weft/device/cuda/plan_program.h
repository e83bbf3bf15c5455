// The data of plan kernels: the instructions of a plan, the memory of a call, and the words by which thread
// blocks and the CPU wait for each other. plan_kernel.h executes the instructions. nvcc reads this file too.
//
// A plan's lane is a group of `blocks` thread blocks. Block b of a lane does part b of every instruction's
// bytes. Flags are kept for each block. Their values are *epochs*: the number of the operation, from 1 on. An
// epoch only grows, so that nobody ever resets a flag.
//
// An eager put goes into a *slot* of the receiver's control memory, since the receiver may not have begun.
// The receiver's wait takes it from there. There are two sets of slots, which operations use in turn. A
// sender may write into a set when the receiver has ended the operation before last. Short data travels as
// *packets* of 16 bytes: twice 4 bytes of data and 4 bytes that name the epoch.
//
// A rank *exposes* its input or output by a signal that carries the buffer's address and a stamp of the
// call. The receiver finds both in its control memory. It waits for the stamp, so it does not read a rank
// with another call. Then it reads or writes the buffer. Scratch needs no such signal: it lies behind the
// slots of the control memory.
//
// A put to a rank of another node *crosses*. It goes into an outgoing slot of the *proxy memory*, which is
// pinned memory of the host, and raises a flag there for a CPU. The CPU sends the slot. On the other node,
// the CPU writes arriving data into an incoming slot and raises a flag for the kernel (plan_proxy.h).
#pragma once

#include <cstdint>

#include "device/float_format.h"

namespace weft::device::cuda {

inline constexpr uint32_t kPlanRanks = 16, kPlanLanes = 16, kPlanBlocks = 16;  // blocks: of one lane
inline constexpr uint32_t kPlanSteps = 72, kPlanSources = 64, kPlanDependencies = 64, kPlanTags = 32;
inline constexpr uint32_t kPlanThreads = 512;  // of a block

/// A byte of a rank's memory: the rank, the space (plan::Space by number: input, output, scratch), the
/// offset.
struct PlanPlace {
  uint64_t bits = 0;
  static constexpr uint32_t kOffsetBits = 48;

  static constexpr PlanPlace of(uint32_t rank, uint32_t space, uint64_t offset) {
    return {uint64_t{rank} << 56 | uint64_t{space} << kOffsetBits | offset};
  }
  WEFT_ALWAYS_INLINE constexpr uint32_t rank() const { return static_cast<uint32_t>(bits >> 56); }
  WEFT_ALWAYS_INLINE constexpr uint32_t space() const {
    return static_cast<uint32_t>(bits >> kOffsetBits) & 0xff;
  }
  WEFT_ALWAYS_INLINE constexpr uint64_t offset() const { return bits & ((uint64_t{1} << kOffsetBits) - 1); }
};

enum class PlanAction : uint8_t { put, signal, wait, copy, reduce, scale };

// Instruction::flags
inline constexpr uint8_t kMeets = 1;      // the blocks of the lane meet before it
inline constexpr uint8_t kAnnounces = 2;  // steps of other lanes wait for it
inline constexpr uint8_t kEager = 4;      // put, wait: by a slot
inline constexpr uint8_t kPackets = 8;    // kEager: as packets
inline constexpr uint8_t kFinal = 16;     // reduce: plan::Step::final
inline constexpr uint8_t kExposes =
    32;  // signal: tells the peer where the space of `dst` is; wait: learns it
inline constexpr uint8_t kCrosses = 64;  // put, signal, wait: the peer is on another node

struct Instruction {
  PlanAction action = PlanAction::copy;
  uint8_t flags = 0;
  uint8_t peer = 0;                       // put, signal, wait; else the own rank
  uint8_t tag = 0;                        // put, signal, wait
  uint8_t first_source = 0, sources = 0;  // reduce: of PlanProgram::source
  uint8_t first_after = 0, afters = 0;    // of PlanProgram::after: steps of other lanes
  uint32_t slot = 0;  // kEager: where in the sender's slots of the receiver, or of the proxy, bytes
  uint32_t bytes = 0;
  PlanPlace dst, src;  // src: put, copy, scale; dst of an eager wait: where the data goes
};
static_assert(sizeof(Instruction) == 32);

/// The instructions of one rank's plan, lane by lane.
struct PlanProgram {
  Instruction step[kPlanSteps];
  PlanPlace source[kPlanSources];
  uint8_t weight[kPlanSources];      // of a source: how many ranks' contributions it holds
  uint8_t after[kPlanDependencies];  // positions in `step`
  uint8_t lane_begin[kPlanLanes + 1];
  uint8_t lanes;
  uint8_t blocks;  // of each lane
  uint8_t rank, ranks;
  uint8_t ordered;  // packets also order other memory: several lanes, or blocks that meet
};

/// Words between the CPU and a kernel, in pinned memory of one rank.
struct PlanHost {
  uint32_t abort;     // not 0: every block leaves; written by the CPU, and by a block that waits too long
  uint32_t reported;  // 1: the report is complete
  uint64_t begun;     // the epoch of the kernel that began last
  uint64_t ended;     // … that ended last, well or not
  struct Report {     // of the block that waited too long
    uint64_t epoch, seen;  // seen: the epoch of the flag that it waited for
    uint32_t step, action, peer, tag;
  } report;
};

/// What a kernel and a CPU tell each other of what crosses nodes, in pinned memory of one rank. Behind it are
/// slots: outgoing and incoming ones, each in two sets. Values are epochs.
struct PlanProxy {
  uint64_t sent;                                        // by the CPU: operations that have sent everything
  uint64_t reserved;                                    // slots are aligned to 16 bytes
  uint64_t arrived[kPlanRanks][kPlanTags];              // by the CPU, for each sender and tag
  uint64_t raised[kPlanRanks][kPlanTags][kPlanBlocks];  // by the kernel, for each receiver, tag and block
};
static_assert(sizeof(PlanProxy) % 16 == 0);

enum class ProxySlots : uint32_t { outgoing, incoming };

/// Where the slots of a peer begin in the proxy memory of a rank, in an operation.
WEFT_ALWAYS_INLINE constexpr uint64_t proxy_slots_at(ProxySlots which, uint64_t epoch, uint32_t peer,
                                                     uint32_t ranks, uint32_t slot_bytes) {
  const uint64_t set = 2 * static_cast<uint64_t>(which) + epoch % 2;
  return sizeof(PlanProxy) + (set * ranks + peer) * slot_bytes;
}
constexpr uint64_t proxy_bytes(uint32_t ranks, uint32_t slot_bytes) {
  return proxy_slots_at(ProxySlots::incoming, 1, ranks, ranks, slot_bytes);
}

/// A rank's memory as a kernel of this rank reaches it.
struct PlanPeer {
  void* control;   // PlanControl and, behind it, slots; null: the rank is on another node
  void* space[3];  // by plan::Space; of peers only the scratch, since they expose the others
};

/// Set in an address that a rank exposes: it counts from the rank's control memory, which each peer has
/// mapped elsewhere.
inline constexpr uint64_t kFromControl = uint64_t{1} << 63;

struct PlanCall {
  PlanPeer peer[kPlanRanks];  // by rank, the own one too
  PlanHost* host;
  PlanProxy* proxy;                    // null: all ranks are on one node
  uint64_t timeout_ns;                 // how long a block may wait, from its beginning
  uint32_t slot_bytes;                 // of one sender, of one set
  uint32_t proxy_slot_bytes;           // of one peer, of one set
  uint8_t op;                          // Operator, of all but means
  uint8_t tree;                        // strict order
  uint8_t divides;                     // average of integers: a final reduction divides
  uint8_t captured;                    // launched by a graph: no CPU waits for its end
  alignas(8) unsigned char scalar[8];  // of PlanAction::scale
  const void* scalar_at;               // where to read it instead; null: in `scalar`
  uint64_t exposed[2];                 // by space: where peers find the own input and output
  uint32_t signature;                  // of the call, the same on all ranks
};

struct PlanArguments {
  PlanCall call;
  PlanProgram program;
};
static_assert(sizeof(PlanArguments) <= 4096);  // what every version of CUDA passes to a kernel

/// Memory of one rank on its device, which its peers map. Zero when the communicator is made.
struct PlanControl {
  uint64_t epoch;                                     // operations that have ended
  uint32_t left;                                      // blocks that have left the kernel under way
  uint32_t reported;                                  // a block writes the report
  uint64_t ended_by[kPlanRanks];                      // by rank: operations that the peer has ended
  uint64_t met[kPlanLanes][kPlanBlocks];              // where in its barriers a block is
  uint64_t done[kPlanSteps][kPlanBlocks];             // of steps with kAnnounces
  uint64_t flag[kPlanRanks][kPlanTags][kPlanBlocks];  // by sender, tag and block
  struct Exposed {
    uint64_t address, stamp;  // PlanCall::exposed; the epoch and, in the upper half, the signature
  } exposed[kPlanRanks][2];   // by sender and space
  uint64_t scalar[2];         // of a call whose scalar the device does not reach
};

/// Bytes of a rank's control memory with its slots.
constexpr uint64_t control_bytes(uint32_t ranks, uint64_t slot_bytes) {
  return sizeof(PlanControl) + 2 * uint64_t{ranks} * slot_bytes;
}
static_assert(sizeof(PlanControl) % 16 == 0);

/// Bytes that `bytes` of data take in a slot.
constexpr uint64_t bytes_in_slot(uint64_t bytes, bool packets) {
  return (packets ? 2 : 1) * ((bytes + 15) / 16 * 16);
}

}  // namespace weft::device::cuda
