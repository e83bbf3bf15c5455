#include "engine/gpu/offered_memory.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"
#include "device/cuda/deferred_free.h"

namespace weft::engine {
namespace {

using namespace std::chrono_literals;

/// Keeps what somebody may use. Never destroyed: its thread may look while the process exits.
class Keeper {
 public:
  static Keeper& instance() {
    static auto* const keeper = new Keeper;
    return *keeper;
  }

  void add(OfferedMemory memory) {
    const MutexLock guard(mutex_);
    kept_.push_back(std::move(memory));
    look();
    if (kept_.empty() || std::exchange(looks_, true)) return;
    std::thread([this] {
      name_thread("weft-offered");
      for (auto pause = kShortest; look_again(); pause = std::min(2 * pause, kLongest))
        std::this_thread::sleep_for(pause);
    }).detach();
  }

 private:
  static constexpr auto kShortest = 1ms, kLongest = 100ms;

  bool look_again() {
    const MutexLock guard(mutex_);
    look();
    return looks_ = !kept_.empty();
  }

  // Ranks of one process may have ended in any order. So first each notes what its peers look for.
  void look() WEFT_REQUIRES(mutex_) {
    for (OfferedMemory& memory : kept_) note(memory);
    std::erase_if(kept_, [](OfferedMemory& memory) { return give_back(memory); });
  }

  static void note(OfferedMemory& memory) {
    std::erase_if(memory.under_way, [](const auto& has_left) { return has_left(); });
    if (!memory.under_way.empty() || std::exchange(memory.noted, true)) return;
    memory.mappings.clear();
    memory.board->note_path_ends();
  }

  static bool give_back(OfferedMemory& memory) {
    std::erase_if(memory.graphs, [](const auto& graph) { return graph.expired(); });
    if (!memory.under_way.empty() || !memory.graphs.empty()) return false;
    if (!memory.board->paths_of_peers_ended()) return false;
    for (const cuda::Block& block : memory.blocks)
      cuda::DeferredFree::instance().add_block(*memory.device, cuda::BlockKind::device, block.data,
                                               size_t{1} << block.size_class);
    return true;
  }

  Mutex mutex_;
  std::vector<OfferedMemory> kept_ WEFT_GUARDED_BY(mutex_);
  bool looks_ WEFT_GUARDED_BY(mutex_) = false;  // the thread does
};

}  // namespace

void give_back_unused(OfferedMemory memory) { Keeper::instance().add(std::move(memory)); }

}  // namespace weft::engine
