// ProxyMachine: the CPUs that move what crosses nodes, for a PlanMachine of several nodes: one for each rank,
// by the words that the engine's proxy uses. Between CPUs messages are delivered in an order of chance.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "device/cuda/plan_proxy.h"

namespace weft::plan::testing {

namespace cuda = device::cuda;

class ProxyMachine {
 public:
  struct Rank {
    std::vector<const cuda::PlanProgram*> programs;  // by operation
    const cuda::PlanHost* host = nullptr;
    cuda::PlanProxy* memory = nullptr;
  };
  ProxyMachine(std::vector<Rank> ranks, uint32_t slot_bytes) : slot_bytes_(slot_bytes) {
    for (Rank& rank : ranks) cpus_.push_back(std::make_unique<Cpu>(std::move(rank)));
  }

  /// A turn of a rank's CPU. True if anything has moved.
  bool take_turn(size_t r, std::mt19937& random) {
    Cpu& cpu = *cpus_[r];
    const bool sent = send(r, cpu);
    return receive(cpu, random) || sent;
  }
  /// Whether the rank's CPU has sent everything.
  bool has_sent(size_t r) const { return cpus_[r]->sending == cpus_[r]->rank.programs.size(); }

 private:
  struct Message {
    size_t operation;
    uint32_t from, tag, slot;
    std::vector<std::byte> data;
  };
  struct Cpu {
    explicit Cpu(Rank r) : rank(std::move(r)) {}
    const Rank rank;
    size_t sending = 0;                          // operation
    std::vector<const cuda::Instruction*> sent;  // of it
    std::mutex mutex;
    std::vector<Message> mail;  // guarded by `mutex`
  };

  cuda::ProxyWords words(const Cpu& cpu) const {
    return {cpu.rank.memory, static_cast<uint32_t>(cpus_.size()), slot_bytes_};
  }

  /// What blocks have raised of the oldest operation that has not sent everything.
  bool send(size_t r, Cpu& cpu) {
    if (cpu.sending == cpu.rank.programs.size()) return false;
    const cuda::PlanProgram& program = *cpu.rank.programs[cpu.sending];
    const uint64_t epoch = cpu.sending + 1;
    size_t left = 0;
    bool moved = false;
    for (int i = 0; i < program.lane_begin[program.lanes]; ++i) {
      const cuda::Instruction& step = program.step[i];
      if (!(step.flags & cuda::kCrosses) || step.action == cuda::PlanAction::wait) continue;
      if (std::find(cpu.sent.begin(), cpu.sent.end(), &step) != cpu.sent.end()) continue;
      if (!words(cpu).is_raised(epoch, step.peer, step.tag, program.blocks)) {
        ++left;
        continue;
      }
      const std::byte* const from =
          words(cpu).slots(cuda::ProxySlots::outgoing, epoch, step.peer) + step.slot;
      const std::lock_guard guard(cpus_[step.peer]->mutex);
      cpus_[step.peer]->mail.push_back(
          {cpu.sending, static_cast<uint32_t>(r), step.tag, step.slot, {from, from + step.bytes}});
      cpu.sent.push_back(&step);
      moved = true;
    }
    if (left > 0) return moved;
    words(cpu).tell_sent(epoch);
    ++cpu.sending;
    cpu.sent.clear();
    return true;
  }

  /// A message for an operation whose kernel has begun.
  bool receive(Cpu& cpu, std::mt19937& random) {
    const uint64_t begun =
        std::atomic_ref(const_cast<uint64_t&>(cpu.rank.host->begun)).load(std::memory_order_acquire);
    const std::lock_guard guard(cpu.mutex);
    std::shuffle(cpu.mail.begin(), cpu.mail.end(), random);
    const auto ready = std::find_if(cpu.mail.begin(), cpu.mail.end(),
                                    [=](const Message& message) { return message.operation < begun; });
    if (ready == cpu.mail.end()) return false;
    const uint64_t epoch = ready->operation + 1;
    std::byte* const to = words(cpu).slots(cuda::ProxySlots::incoming, epoch, ready->from) + ready->slot;
    if (!ready->data.empty()) std::memcpy(to, ready->data.data(), ready->data.size());
    words(cpu).tell_arrived(epoch, ready->from, ready->tag);
    cpu.mail.erase(ready);
    return true;
  }

  const uint32_t slot_bytes_;
  std::vector<std::unique_ptr<Cpu>> cpus_;
};

}  // namespace weft::plan::testing
