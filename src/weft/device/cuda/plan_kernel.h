// What a thread block of a plan kernel does: it goes through its lane's instructions. One source for GPUs
// (plan.cu) and CPUs (tests, the fake driver); plan_block.h has what differs.
//
// A block that has to wait says so by returning false: on a GPU only if it has to leave the kernel. Then
// run_block() starts the instruction under way once more, so that everything in front of an instruction's
// last wait may be done twice.
#pragma once

#include "device/cuda/plan_block.h"

namespace weft::device::cuda {

// ---- Arithmetic of a kernel

/// Reductions of a type, but for means of floats.
template <typename Type>
struct PlanSums {
  static constexpr uint32_t kElementBytes = sizeof(typename Type::Storage);
  static constexpr bool kFloat = Accumulation<Type, Operator::sum>::kFloat, kMeans = false;
  static WEFT_IN_BLOCK void reduce(const MeanArguments& a, uint64_t thread, uint64_t threads) {
    reduce_range<Type>(a.reduce, thread, threads);
  }
  static WEFT_IN_BLOCK void scale(const ScaleArguments& a, uint64_t thread, uint64_t threads) {
    scale_range<Type>(a, thread, threads);
  }
};

/// Means of a float type.
template <typename Type>
struct PlanMeans {
  static constexpr uint32_t kElementBytes = sizeof(typename Type::Storage);
  static constexpr bool kFloat = true, kMeans = true;
  static WEFT_IN_BLOCK void reduce(const MeanArguments& a, uint64_t thread, uint64_t threads) {
    mean_range<Type>(a, thread, threads);
  }
  static WEFT_IN_BLOCK void scale(const ScaleArguments&, uint64_t, uint64_t) {}
};

/// Plans that reduce nothing.
struct PlanMoves {
  static constexpr uint32_t kElementBytes = 1;
  static constexpr bool kFloat = true, kMeans = false;
  static WEFT_IN_BLOCK void reduce(const MeanArguments&, uint64_t, uint64_t) {}
  static WEFT_IN_BLOCK void scale(const ScaleArguments&, uint64_t, uint64_t) {}
};

// ---- Bytes

/// Part `part` of `parts` of an instruction's bytes: whole units of 16, but for the last.
struct PlanPart {
  uint64_t begin, bytes;
  WEFT_ALWAYS_INLINE PlanPart(uint64_t all, uint32_t part, uint32_t parts) {
    const uint64_t units = (all + 15) / 16, last = units * (part + 1) / parts * 16;
    begin = units * part / parts * 16;
    bytes = (last < all ? last : all) - begin;
  }
};

template <typename Unit>
WEFT_ALWAYS_INLINE void copy_units(void* to, const void* from, uint64_t count, uint64_t thread,
                                   uint64_t threads) {
  for (uint64_t i = thread; i < count; i += threads)
    static_cast<Unit*>(to)[i] = static_cast<const Unit*>(from)[i];
}

struct alignas(16) SixteenBytes {
  uint64_t low, high;
};

/// Copies 16 bytes at a time where both ends are aligned to that, else 4 or 1. Four are under way in a
/// thread.
WEFT_IN_BLOCK inline void copy_range(char* to, const char* from, uint64_t bytes, uint64_t thread,
                                     uint64_t threads) {
  const uint64_t alignment = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  uint64_t done = 0;
  if (alignment % 16 == 0) {
    constexpr uint64_t kUnder = 4;
    const uint64_t rounds = bytes / (16 * kUnder * threads);
    auto* const out = reinterpret_cast<SixteenBytes*>(to);
    const auto* const in = reinterpret_cast<const SixteenBytes*>(from);
    for (uint64_t round = 0; round < rounds; ++round) {
      SixteenBytes unit[kUnder];
      for (uint64_t k = 0; k < kUnder; ++k) unit[k] = in[(round * kUnder + k) * threads + thread];
      for (uint64_t k = 0; k < kUnder; ++k) out[(round * kUnder + k) * threads + thread] = unit[k];
    }
    const uint64_t first = rounds * kUnder * threads;
    copy_units<SixteenBytes>(out + first, in + first, bytes / 16 - first, thread, threads);
    done = bytes / 16 * 16;
  } else if (alignment % 4 == 0) {
    copy_units<uint32_t>(to, from, bytes / 4, thread, threads);
    done = bytes / 4 * 4;
  }
  copy_units<char>(to + done, from + done, bytes - done, thread, threads);
}

/// The 8 bytes of `bytes` that packet number `i` holds; what is behind their end is 0.
WEFT_ALWAYS_INLINE uint64_t load_data(const char* from, uint64_t i, uint64_t bytes) {
  const char* const at = from + 8 * i;
  if (8 * i + 8 <= bytes && reinterpret_cast<uintptr_t>(at) % 8 == 0)
    return *reinterpret_cast<const uint64_t*>(at);
  uint64_t data = 0;
  for (uint64_t k = 0; k < 8 && 8 * i + k < bytes; ++k)
    data |= uint64_t{static_cast<unsigned char>(at[k])} << 8 * k;
  return data;
}
WEFT_ALWAYS_INLINE void store_data(char* to, uint64_t i, uint64_t bytes, uint64_t data) {
  char* const at = to + 8 * i;
  if (8 * i + 8 <= bytes && reinterpret_cast<uintptr_t>(at) % 8 == 0) {
    *reinterpret_cast<uint64_t*>(at) = data;
    return;
  }
  for (uint64_t k = 0; k < 8 && 8 * i + k < bytes; ++k) at[k] = static_cast<char>(data >> 8 * k);
}

// ---- A block

template <typename Math>
class PlanRun {
 public:
  WEFT_IN_BLOCK PlanRun(PlanBlock& block, const PlanArguments& arguments)
      : block_(block),
        call_(arguments.call),
        program_(arguments.program),
        own_(*static_cast<PlanControl*>(arguments.call.peer[arguments.program.rank].control)),
        lane_(block.number() / arguments.program.blocks),
        part_(block.number() % arguments.program.blocks) {}

  /// True when the block has left the kernel. False, on a CPU: it waits, and wants to be called again.
  WEFT_IN_BLOCK bool go_on() {
    if (block_.epoch == 0) begin();
    while (!block_.stopped && block_.at < program_.lane_begin[lane_ + 1]) {
      if (do_step(program_.step[block_.at])) ++block_.at;
      else if (!block_.stopped) return false;
    }
    leave();
    return true;
  }

 private:
  WEFT_IN_BLOCK void begin() {
    block_.epoch = own_.epoch + 1;
    block_.at = program_.lane_begin[lane_];
    // A kernel may come when its communicator has failed, and buffers of peers are freed. The CPU of a graph
    // sets `abort` and then reads `begun`: it sees that the kernel runs, or every block sees that it must
    // not.
    block_.stopped = block_.any([&] {
      PlanHost& host = *call_.host;
      if (call_.captured) return PlanBlock::store_then_load(&host.begun, block_.epoch, &host.abort) != 0;
      if (block_.number() == 0) PlanBlock::store_fenced(&host.begun, block_.epoch);
      return PlanBlock::load_acquire(&host.abort) != 0;
    });
  }

  /// The last block to leave ends the operation: here, at the peers and for the CPU. `left` counts blocks in
  /// its lower half, and in its upper half those that were stopped. A CPU that knows of the end may give
  /// memory of peers back: no store to them may come later.
  WEFT_IN_BLOCK void leave() {
    block_.once([&] {
      const uint32_t mine = block_.stopped ? 1u << 16 | 1 : 1;
      const uint32_t left = PlanBlock::add(&own_.left, mine) + mine;
      if ((left & 0xffff) < uint32_t{program_.lanes} * program_.blocks) return;
      own_.left = 0;
      own_.epoch = block_.epoch;
      PlanBlock::fence();
      for (uint32_t rank = 0; rank < program_.ranks && left >> 16 == 0; ++rank)
        if (call_.peer[rank].control)
          PlanBlock::store_fenced(&control_of(rank).ended_by[program_.rank], block_.epoch);
      PlanBlock::store_release(&call_.host->ended, block_.epoch);
    });
  }

  WEFT_IN_BLOCK bool do_step(const Instruction& step) {
    if (!come_after(step) || !meet(step) || !act(step)) return false;
    if (step.flags & kMeets) ++block_.met;
    if (step.flags & kAnnounces)
      block_.once([&] { PlanBlock::store_release(&own_.done[block_.at][part_], block_.epoch); });
    return true;
  }

  WEFT_IN_BLOCK bool act(const Instruction& step) {
    switch (step.action) {
      case PlanAction::put: return put(step);
      case PlanAction::signal: return notify(step);
      case PlanAction::wait: return wait(step);
      case PlanAction::copy: return copy(step);
      case PlanAction::reduce: return reduce(step);
      case PlanAction::scale: return scale(step);
    }
    return true;
  }

  // ---- Waiting

  /// Waits until a word that only grows has come to `value`.
  WEFT_IN_BLOCK bool reached(const Instruction& step, const uint64_t* word, uint64_t value) {
    return block_.until(
        1, [&](uint32_t) { return PlanBlock::load_acquire(word) >= value; },
        [&] { return should_leave(step, word); });
  }

  /// Waits until a peer has exposed a buffer in this operation, and by the same call.
  WEFT_IN_BLOCK bool learned(const Instruction& step, const uint64_t* told) {
    return block_.until(
        1, [&](uint32_t) { return PlanBlock::load_acquire(told) == stamp(); },
        [&] { return should_leave(step, told); });
  }
  WEFT_IN_BLOCK uint64_t stamp() const {
    return uint64_t{call_.signature} << 32 | static_cast<uint32_t>(block_.epoch);
  }

  WEFT_IN_BLOCK bool come_after(const Instruction& step) {
    if (step.afters == 0) return true;
    return block_.until(
        step.afters,
        [&](uint32_t i) {
          return PlanBlock::load_acquire(&own_.done[program_.after[step.first_after + i]][part_]) >=
                 block_.epoch;
        },
        [&] { return should_leave(step, &own_.epoch); });
  }

  /// The barrier of the lane's blocks. Each has a word of its own, which says in which barrier it is.
  WEFT_IN_BLOCK bool meet(const Instruction& step) {
    if (!(step.flags & kMeets)) return true;
    const uint64_t here = block_.epoch << 8 | (block_.met + 1);
    block_.once([&] { PlanBlock::store_release(&own_.met[lane_][part_], here); });
    return block_.until(
        program_.blocks, [&](uint32_t i) { return PlanBlock::load_acquire(&own_.met[lane_][i]) >= here; },
        [&] { return should_leave(step, &own_.epoch); });
  }

  /// Whether a block that waits has to leave: others do, or it has waited too long. The first to wait too
  /// long reports for what.
  WEFT_IN_BLOCK bool should_leave(const Instruction& step, const uint64_t* word) {
    PlanHost& host = *call_.host;
    if (PlanBlock::load_acquire(&host.abort) != 0) return true;
    if (block_.waited_ns() <= call_.timeout_ns) return false;
    if (PlanBlock::add(&own_.reported, 1) == 0) {
      host.report = {block_.epoch, PlanBlock::load_acquire(word),
                     block_.at,    static_cast<uint32_t>(step.action),
                     step.peer,    step.tag};
      PlanBlock::store_release(&host.reported, uint32_t{1});
    }
    PlanBlock::store_release(&host.abort, uint32_t{1});
    return true;
  }

  // ---- Instructions

  WEFT_IN_BLOCK bool notify(const Instruction& step) {
    block_.once([&] {
      if (step.flags & kCrosses)
        return PlanBlock::store_release(&call_.proxy->raised[step.peer][step.tag][part_], block_.epoch);
      PlanControl& peer = control_of(step.peer);
      const uint32_t space = step.dst.space();
      if (step.flags & kExposes) {
        PlanControl::Exposed& told = peer.exposed[program_.rank][space];
        PlanBlock::store_fenced(&told.address, call_.exposed[space]);
        PlanBlock::store_fenced(&told.stamp, stamp());
      }
      PlanBlock::store_release(&peer.flag[program_.rank][step.tag][part_], block_.epoch);
    });
    return true;
  }

  WEFT_IN_BLOCK bool put(const Instruction& step) {
    if (step.flags & kEager) {
      // The set of slots is free when the receiver has ended the operation before last, or the CPU has sent
      // everything of it.
      const uint64_t before = block_.epoch > 2 ? block_.epoch - 2 : 0;
      const bool crosses = step.flags & kCrosses;
      if (!reached(step, crosses ? &call_.proxy->sent : &own_.ended_by[step.peer], before)) return false;
    }
    const PlanPart part(step.bytes, part_, program_.blocks);
    const char* const from = at(step.src) + part.begin;
    if (step.flags & kPackets) {
      store_packets(packets(step, step.peer, program_.rank, part), from, part.bytes);
      return true;
    }
    char* const to = step.flags & kEager ? slot(step, step.peer, program_.rank) : at(step.dst);
    block_.each([&](uint32_t thread, uint32_t threads) {
      copy_range(to + part.begin, from, part.bytes, thread, threads);
    });
    return notify(step);
  }

  WEFT_IN_BLOCK bool wait(const Instruction& step) {
    const PlanPart part(step.bytes, part_, program_.blocks);
    if (step.flags & kPackets)
      return take_packets(step, packets(step, program_.rank, step.peer, part), at(step.dst) + part.begin,
                          part.bytes);
    const uint64_t* const flag = step.flags & kCrosses ? &call_.proxy->arrived[step.peer][step.tag]
                                                       : &own_.flag[step.peer][step.tag][part_];
    if (!reached(step, flag, block_.epoch)) return false;
    if (step.flags & kExposes) return learned(step, &own_.exposed[step.peer][step.dst.space()].stamp);
    if (!(step.flags & kEager)) return true;
    const char* const from = slot(step, program_.rank, step.peer);
    block_.each([&](uint32_t thread, uint32_t threads) {
      copy_range(at(step.dst) + part.begin, from + part.begin, part.bytes, thread, threads);
    });
    return true;
  }

  WEFT_IN_BLOCK void store_packets(Packet* to, const char* from, uint64_t bytes) {
    const bool ordered = program_.ordered;
    const uint32_t stamp = stamp_of(block_.epoch);
    block_.each([&](uint32_t thread, uint32_t threads) {
      if (ordered) PlanBlock::fence();
      for (uint64_t i = thread; i < (bytes + 7) / 8; i += threads)
        PlanBlock::store_packet(to + i, Packet::of(load_data(from, i, bytes), stamp), ordered);
    });
  }

  WEFT_IN_BLOCK bool take_packets(const Instruction& step, const Packet* from, char* to, uint64_t bytes) {
    const bool ordered = program_.ordered;
    const uint32_t stamp = stamp_of(block_.epoch);
    return block_.until(
        static_cast<uint32_t>((bytes + 7) / 8),
        [&](uint32_t i) {
          const Packet packet = PlanBlock::load_packet(from + i, ordered);
          if (!packet.has(stamp)) return false;
          if (ordered) PlanBlock::fence();
          store_data(to, i, bytes, packet.data());
          return true;
        },
        [&] { return should_leave(step, &own_.ended_by[step.peer]); });
  }

  WEFT_IN_BLOCK bool copy(const Instruction& step) {
    const PlanPart part(step.bytes, part_, program_.blocks);
    char* const to = at(step.dst) + part.begin;
    const char* const from = at(step.src) + part.begin;
    if (to == from) return true;
    block_.each(
        [&](uint32_t thread, uint32_t threads) { copy_range(to, from, part.bytes, thread, threads); });
    return true;
  }

  WEFT_IN_BLOCK bool scale(const Instruction& step) {
    const PlanPart part(step.bytes, part_, program_.blocks);
    ScaleArguments a{
        at(step.dst) + part.begin, at(step.src) + part.begin, part.bytes / Math::kElementBytes, {}};
    memcpy(a.scalar, call_.scalar_at ? call_.scalar_at : call_.scalar, Math::kElementBytes);
    block_.each([&](uint32_t thread, uint32_t threads) { Math::scale(a, thread, threads); });
    return true;
  }

  WEFT_IN_BLOCK bool reduce(const Instruction& step) {
    const PlanPart part(step.bytes, part_, program_.blocks);
    char* const to = at(step.dst) + part.begin;
    const bool divides = call_.divides && step.flags & kFinal;
    if (step.sources == 1 && (Math::kFloat || !divides)) {  // a single source is copied as it is
      const char* const from = at(program_.source[step.first_source]) + part.begin;
      if (to != from)
        block_.each(
            [&](uint32_t thread, uint32_t threads) { copy_range(to, from, part.bytes, thread, threads); });
      return true;
    }
    MeanArguments& a = block_.arguments();
    block_.each([&](uint32_t thread, uint32_t threads) {
      for (uint32_t s = thread; s < step.sources; s += threads) {
        a.reduce.source[s] = at(program_.source[step.first_source + s]) + part.begin;
        a.weight[s] = program_.weight[step.first_source + s];
      }
      if (thread != 0) return;
      a.reduce.out = to;
      a.reduce.count = part.bytes / Math::kElementBytes;
      a.reduce.sources = step.sources;
      a.reduce.divisor = Math::kMeans ? weights_of(step) : divides ? program_.ranks : 1;
      a.reduce.op = call_.op;
      a.reduce.tree = call_.tree;
    });
    block_.each([&](uint32_t thread, uint32_t threads) { Math::reduce(a, thread, threads); });
    return true;
  }

  WEFT_IN_BLOCK uint32_t weights_of(const Instruction& step) const {
    uint32_t sum = 0;
    for (uint32_t s = 0; s < step.sources; ++s) sum += program_.weight[step.first_source + s];
    return sum;
  }

  // ---- Memory

  static constexpr uint32_t kScratch = 2;  // plan::Space by number
  WEFT_IN_BLOCK char* at(PlanPlace place) const {
    const uint32_t rank = place.rank(), space = place.space();
    if (rank == program_.rank || space == kScratch)
      return static_cast<char*>(call_.peer[rank].space[space]) + place.offset();
    // Another block of the peer may store the same address once more.
    const uint64_t exposed = PlanBlock::load_relaxed(&own_.exposed[rank][space].address);
    char* const begin = exposed & kFromControl
                            ? static_cast<char*>(call_.peer[rank].control) + (exposed & ~kFromControl)
                            : block_.exposed(rank, space, exposed);
    return begin + place.offset();
  }
  WEFT_IN_BLOCK PlanControl& control_of(uint32_t rank) const {
    return *static_cast<PlanControl*>(call_.peer[rank].control);
  }
  /// Where an eager put of `sender` lies at `receiver` in this operation, or in the proxy memory.
  WEFT_IN_BLOCK char* slot(const Instruction& step, uint32_t receiver, uint32_t sender) const {
    if (step.flags & kCrosses) {
      const ProxySlots which = sender == program_.rank ? ProxySlots::outgoing : ProxySlots::incoming;
      return reinterpret_cast<char*>(call_.proxy) + step.slot +
             proxy_slots_at(which, block_.epoch, step.peer, program_.ranks, call_.proxy_slot_bytes);
    }
    const uint64_t set = block_.epoch % 2;
    return reinterpret_cast<char*>(&control_of(receiver) + 1) +
           (set * program_.ranks + sender) * call_.slot_bytes + step.slot;
  }
  WEFT_IN_BLOCK Packet* packets(const Instruction& step, uint32_t receiver, uint32_t sender,
                                const PlanPart& part) const {
    return reinterpret_cast<Packet*>(slot(step, receiver, sender) + 2 * part.begin);
  }

  PlanBlock& block_;
  const PlanCall& call_;
  const PlanProgram& program_;
  PlanControl& own_;
  const uint32_t lane_, part_;
};

}  // namespace weft::device::cuda
