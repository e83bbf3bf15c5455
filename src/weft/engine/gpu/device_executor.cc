#include "engine/gpu/device_executor.h"

#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/settings.h"
#include "base/thread.h"

namespace weft::engine {
namespace {

constexpr int64_t kBetweenQuestionsNs = 100'000'000;
// How long a context that goes waits for a device that is not done with it.
constexpr double kCloseSeconds = 0.5;
constexpr auto kBetweenReleases = std::chrono::milliseconds(1);

/// Whether peers' processes could map a block of ours; why not, if they cannot.
Status probe_sharing(cuda::Exporter& exporter, cuda::BlockPool& blocks) {
  if (!settings().cuda_ipc) return fail(Code::unsupported, "WEFT_CUDA_IPC is off");
  auto block = blocks.take(1);
  if (!block) return block.status();
  const Status described = exporter.describe(block->data, 1, true).status();
  blocks.give(*block);
  return described;
}

/// The process's kernels of a device, loaded once and kept.
Result<const cuda::Kernels*> kernels_of(cuda::Device& device) {
  static Mutex mutex;
  static auto* const loaded = new std::map<int, std::unique_ptr<cuda::Kernels>>;
  const MutexLock guard(mutex);
  auto& kernels = (*loaded)[device.ordinal()];
  if (!kernels) {
    auto fresh = cuda::Kernels::load(device, settings().cuda_blocks);
    if (!fresh) return fresh.status();
    kernels = fresh.take();
  }
  return kernels.get();
}

}  // namespace

Result<std::unique_ptr<DeviceExecutor>> DeviceExecutor::open(int ordinal) {
  auto device = cuda::Device::open(ordinal);
  if (!device) return device.status();
  std::unique_ptr<DeviceExecutor> executor(new DeviceExecutor(**device));
  const cuda::Scope scope(**device);
  for (auto& queue : executor->queues_) {
    auto made = cuda::Queue::create(**device);
    if (!made) return made.status();
    queue = made.take();
  }
  WEFT_TRY(executor->warm_up());
  static std::once_flag told;
  const Status& shares = executor->why_not_shared_ =
      probe_sharing(executor->exporter_, executor->device_blocks_);
  Status& reduces = executor->why_no_kernels_ =
      settings().cuda_reduce == "gpu" ? Status() : fail(Code::unsupported, "WEFT_CUDA_REDUCE is cpu");
  if (reduces.ok()) {
    auto kernels = kernels_of(**device);
    reduces = kernels.status();
    if (kernels) executor->kernels_ = *kernels;
  }
  std::call_once(told, [&] {
    const std::string& name = (*device)->describe();
    log::info("{}: streams meet Weft by {}, peers' memory is {}, reductions are the {}'s", name,
              (*device)->has_memory_operations() ? "stream memory operations" : "events",
              shares.ok() ? "mapped" : "staged", executor->kernels_ ? "GPU" : "CPU");
    if (!(*device)->has_memory_operations())
      log::warn("{}: calls return only when the result is there: {}", name,
                (*device)->why_no_memory_operations().message());
    if (!shares.ok() && settings().cuda_ipc)
      log::warn("{}: peers' memory is staged in pinned host memory: {}", name, shares.message());
    if (!reduces.ok() && settings().cuda_reduce == "gpu")
      log::warn("{}: reductions are the CPU's: {}", name, reduces.message());
  });
  return executor;
}

Status DeviceExecutor::warm_up() {
  constexpr size_t kBytes = 4096;
  auto pinned = host_blocks_.take(kBytes);
  if (!pinned) return pinned.status();
  auto on_device = device_blocks_.take(kBytes);
  Status warm = on_device.status();
  for (auto& queue : queues_)
    if (warm.ok()) warm = queue->warm_up(on_device->data, pinned->data, kBytes);
  host_blocks_.give(*pinned);
  if (on_device) device_blocks_.give(*on_device);
  return warm;
}

void DeviceExecutor::note_staging(const Status& why) {
  if (std::exchange(staging_noted_, true)) return;
  log::warn("{}: some memory is staged between nodes in spite of GPUDirect: {}", device_.describe(),
            why.message());
}

// What a kernel or a copy of the program has done to the device's context every later call returns. A device
// that does nothing is asked once: a queue holds so many questions, and then the driver waits for room.
Status DeviceExecutor::alive(int64_t now) {
  if (now - last_asked_ns_ < kBetweenQuestionsNs) return {};
  last_asked_ns_ = now;
  const cuda::Scope scope(device_);
  if (!asked_.valid()) {
    auto ticket = queue(0).mark();
    if (!ticket) return ticket.status();
    asked_ = ticket.take();
  }
  const auto done = asked_.done();
  if (!done || *done) asked_ = cuda::Ticket();
  return done.status();
}

void DeviceExecutor::leave(PendingRelease release) {
  release.tickets = mark_queues();
  release.unknown = release.tickets.size() < queues_.size();
  release.stream.linger();
  releases_.push_back(std::move(release));
}

std::vector<cuda::Ticket> DeviceExecutor::mark_queues() {
  std::vector<cuda::Ticket> tickets;
  for (auto& queue : queues_) {
    auto ticket = queue->mark();
    if (ticket) tickets.push_back(ticket.take());
    else log::trace("work of a failed operation: {}", ticket.status().message());
  }
  return tickets;
}

int DeviceExecutor::settle() {
  const cuda::Scope scope(device_);
  return static_cast<int>(std::erase_if(releases_, [this](PendingRelease& release) {
    if (!release.over()) return false;
    release.memory.give_back(host_blocks_, device_blocks_, release.unknown);
    release.stream.release(device_);
    return true;
  }));
}

void DeviceExecutor::close(std::unique_ptr<DeviceExecutor> executor) {
  const auto look = [](DeviceExecutor& left) {
    left.settle();
    if (left.has_releases()) std::this_thread::sleep_for(kBetweenReleases);
    return left.has_releases();
  };
  const Deadline deadline = Deadline::in_seconds(kCloseSeconds);
  while (look(*executor))
    if (deadline.passed()) {
      log::warn(
          "{} is not done with operations that have failed: their memory, and the streams that wait for "
          "them, go on when it is",
          executor->device().describe());
      std::thread([executor = std::move(executor), look] {
        name_thread("weft-leftovers");
        while (look(*executor)) {
        }
      }).detach();
      return;
    }
}

}  // namespace weft::engine
