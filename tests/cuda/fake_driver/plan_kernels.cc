// The fake driver's plan kernels: their blocks take turns. A launch is a piece of work that goes on until
// every block waits or has left, and is then asked again. A block starts when a multiprocessor has room for
// it, so that more blocks than fit do not start, as on a GPU.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>

#include "cuda/fake_driver/world.h"
#include "device/cuda/plan_kernel.h"

namespace fake {
namespace {

using GoOn = bool (*)(PlanBlock& block, const PlanArguments& arguments);

uint64_t now() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/// Blocks that are on each device.
std::atomic<int>& resident_on(int ordinal) {
  static std::array<std::atomic<int>, 16> resident{};
  return resident[static_cast<size_t>(ordinal) % resident.size()];
}

/// How far a program reaches into a space of a rank; 0: not at all.
uint64_t extent_of(const PlanProgram& program, uint32_t rank, uint32_t space) {
  uint64_t extent = 0;
  const auto touch = [&](PlanPlace place, uint64_t bytes) {
    if (place.rank() == rank && place.space() == space) extent = std::max(extent, place.offset() + bytes);
  };
  for (int i = 0; i < program.lane_begin[program.lanes]; ++i) {
    const Instruction& step = program.step[i];
    const bool eager = step.flags & kEager;
    if (step.flags & kExposes) continue;
    if (step.action == PlanAction::signal || (step.action == PlanAction::wait && !eager)) continue;
    if (step.action != PlanAction::put || !eager) touch(step.dst, step.bytes);
    if (step.action == PlanAction::put || step.action == PlanAction::copy || step.action == PlanAction::scale)
      touch(step.src, step.bytes);
    for (uint32_t s = 0; s < step.sources; ++s) touch(program.source[step.first_source + s], step.bytes);
  }
  return extent;
}

/// Translates the addresses of a call, but for those that ranks expose to each other. False if the device
/// does not reach one of them.
bool resolve(PlanArguments& arguments, int ordinal) {
  PlanCall& call = arguments.call;
  const PlanProgram& program = arguments.program;
  for (uint32_t rank = 0; rank < program.ranks; ++rank) {
    PlanPeer& peer = call.peer[rank];
    if (!peer.control) continue;  // it is on another node
    peer.control = bytes_for_kernel(peer.control, control_bytes(program.ranks, call.slot_bytes), ordinal);
    if (!peer.control) return false;
    for (uint32_t space = 0; space < 3; ++space) {
      const uint64_t extent = extent_of(program, rank, space);
      if (extent == 0 || (rank != program.rank && space < 2)) continue;  // a peer exposes it
      peer.space[space] = bytes_for_kernel(peer.space[space], extent, ordinal);
      if (!peer.space[space]) return false;
    }
  }
  if (call.scalar_at && !(call.scalar_at = bytes_for_kernel(call.scalar_at, 1, ordinal))) return false;
  call.host = reinterpret_cast<PlanHost*>(bytes_for_kernel(call.host, sizeof(PlanHost), ordinal));
  if (call.proxy) {
    const uint64_t bytes = proxy_bytes(program.ranks, call.proxy_slot_bytes);
    call.proxy = reinterpret_cast<PlanProxy*>(bytes_for_kernel(call.proxy, bytes, ordinal));
    if (!call.proxy) return false;
  }
  return call.host != nullptr;
}

/// One launch. The same work of a graph is launched again and again.
class Launch : public PlanReach {
 public:
  Launch(const PlanArguments& arguments, int ordinal, GoOn go_on)
      : passed_(arguments), ordinal_(ordinal), go_on_(go_on) {}

  /// As the device that uses the memory reaches it, as far as the program goes.
  char* find(uint32_t rank, uint32_t space, uint64_t address) override {
    const uint64_t extent = extent_of(arguments_.program, rank, space);
    if (std::byte* const bytes = bytes_for_kernel(
            reinterpret_cast<const void*>(static_cast<uintptr_t>(address)), extent, ordinal_))
      return reinterpret_cast<char*>(bytes);
    World::instance().context(ordinal_)->asynchronous_error.store(kIllegalAddress);
    instead_.resize(std::max(instead_.size(), static_cast<size_t>(extent)));
    return instead_.data();
  }

  bool step() {
    if (World::instance().kernels_held.load()) return false;
    if (!running_) {
      arguments_ = passed_;
      if (!resolve(arguments_, ordinal_)) {
        World::instance().context(ordinal_)->asynchronous_error.store(kIllegalAddress);
        return true;
      }
      running_ = true;
    }
    start_blocks();
    for (bool moved = true; moved;) {
      moved = false;
      std::shuffle(blocks_.begin(), blocks_.end(), random_);
      for (PlanBlock& block : blocks_) {
        const uint32_t before = block.at;
        const bool left = go_on_(block, arguments_);
        moved |= left || block.at != before;
        if (!left) continue;
        std::swap(block, blocks_.back());
        blocks_.pop_back();
        --resident_on(ordinal_);
        break;
      }
      moved |= start_blocks();
    }
    if (!blocks_.empty() || started_ < count()) return false;
    running_ = false;
    started_ = 0;
    return true;
  }

 private:
  uint32_t count() const { return uint32_t{passed_.program.lanes} * passed_.program.blocks; }
  bool start_blocks() {
    bool started = false;
    for (; started_ < count(); started = true) {
      if (++resident_on(ordinal_) > World::instance().multiprocessors) {
        --resident_on(ordinal_);
        return started;
      }
      blocks_.emplace_back(started_++, now).reach = this;
    }
    return started;
  }

  const PlanArguments passed_;
  const int ordinal_;
  const GoOn go_on_;
  PlanArguments arguments_{};
  std::vector<PlanBlock> blocks_;
  uint32_t started_ = 0;
  bool running_ = false;
  std::vector<char> instead_;  // of memory that the device does not reach
  std::minstd_rand random_{std::random_device{}()};
};

template <typename Math>
bool go_on(PlanBlock& block, const PlanArguments& arguments) {
  return PlanRun<Math>(block, arguments).go_on();
}

template <typename Math>
Piece start(const void* arguments, int ordinal) {
  const auto launch =
      std::make_shared<Launch>(*static_cast<const PlanArguments*>(arguments), ordinal, go_on<Math>);
  return [launch] { return launch->step(); };
}

}  // namespace

FunctionHandle* plan_kernel_named(const std::string& name) {
#define WEFT_SUM_ENTRY(type, Type) \
  {"weft_plan_sum_" #type, {nullptr, sizeof(PlanArguments), start<PlanSums<Type>>}},
#define WEFT_MEAN_ENTRY(type, Type) \
  {"weft_plan_mean_" #type, {nullptr, sizeof(PlanArguments), start<PlanMeans<Type>>}},
  static std::map<std::string, FunctionHandle> kernels{
      {"weft_plan_move", {nullptr, sizeof(PlanArguments), start<PlanMoves>}},
      WEFT_EACH_KERNEL_TYPE(WEFT_SUM_ENTRY) WEFT_EACH_FLOAT_KERNEL_TYPE(WEFT_MEAN_ENTRY)};
#undef WEFT_SUM_ENTRY
#undef WEFT_MEAN_ENTRY
  const auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : &found->second;
}

}  // namespace fake
