#include "cuda/fake_driver/world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "cuda/fake_driver/races.h"
#include "cuda/fake_driver/thread_calls.h"

namespace fake {
namespace {

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

size_t to_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

Allocation::~Allocation() {
  munmap(backing, to_pages(bytes));
  close(fd);
}

World& World::instance() {
  static World* const world = new World;
  return *world;
}

World::World()
    : devices(from_environment("FAKE_CUDA_DEVICES", 2)),
      version(from_environment("FAKE_CUDA_VERSION", 13000)),
      unaddressed(from_environment("FAKE_CUDA_UNADDRESSED", -1)),
      multiprocessors(from_environment("FAKE_CUDA_MULTIPROCESSORS", 4)),
      capability(from_environment("FAKE_CUDA_CAPABILITY", 90)),
      memory_bytes(size_t(from_environment("FAKE_CUDA_MEMORY_MIB", 16384)) << 20),
      memops(from_environment("FAKE_CUDA_MEMOPS", 1) != 0),
      graph_memops(from_environment("FAKE_CUDA_GRAPH_MEMOPS", 1) != 0),
      kernels(from_environment("FAKE_CUDA_KERNELS", 1) != 0),
      ipc(from_environment("FAKE_CUDA_IPC", 1) != 0),
      peers(from_environment("FAKE_CUDA_PEERS", 1) != 0),
      flushes(from_environment("FAKE_CUDA_FLUSH", 1) != 0),
      remaps(from_environment("FAKE_CUDA_REMAPS", 0) != 0),
      synchronizing_frees(from_environment("FAKE_CUDA_SYNC_FREE", 0) != 0),
      delay_us(static_cast<unsigned>(from_environment("FAKE_CUDA_DELAY_US", 20))) {
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    contexts_.push_back(std::make_unique<ContextHandle>());
    contexts_.back()->ordinal = ordinal;
  }
  defaults_.resize(static_cast<size_t>(devices));
}

StreamHandle* World::default_stream(int ordinal) {
  const std::lock_guard guard(mutex);
  StreamHandle*& stream = defaults_[static_cast<size_t>(ordinal)];
  if (!stream) {
    stream = new StreamHandle;
    stream->ordinal = ordinal;
    streams.insert(stream);
  }
  return stream;
}

StreamHandle* World::add_stream(int ordinal) {
  auto* const stream = new StreamHandle;
  stream->ordinal = ordinal;
  const std::lock_guard guard(mutex);
  streams.insert(stream);
  return stream;
}

bool World::knows(StreamHandle* stream) {
  const std::lock_guard guard(mutex);
  return streams.contains(stream);
}

void World::pause() {
  if (delay_us == 0) return;
  thread_local std::minstd_rand random(std::random_device{}());
  // Mostly none, so that tests stay fast; sometimes long enough for a mistake to show.
  if (random() % 4 == 0) usleep(random() % delay_us);
}

// A stream may be destroyed meanwhile.
bool World::wait_for_streams(bool but_held) {
  constexpr int kLooks = 200'000, kBetween_us = 100;
  std::map<StreamHandle*, uint64_t> until;
  for (int look = 0; look < kLooks; ++look) {
    {
      const std::lock_guard guard(mutex);
      if (look == 0)
        for (StreamHandle* stream : streams) {
          if (but_held && held_streams.contains(stream)) continue;
          const std::lock_guard stream_guard(stream->mutex);
          until[stream] = stream->queued;
        }
      std::erase_if(until, [this](const auto& entry) {
        const auto& [stream, queued] = entry;
        if (!streams.contains(stream)) return true;
        const std::lock_guard stream_guard(stream->mutex);
        return stream->done >= queued || stream->queued < queued;
      });
    }
    if (until.empty()) return true;
    usleep(kBetween_us);
  }
  return false;
}

void World::synchronize_for(const char* function) {
  if (!synchronizing_frees || wait_for_streams(false)) return;
  std::fprintf(stderr, "the fake driver: %s waits for a stream that never comes to its end\n", function);
  std::abort();
}

// ---- Memory

int World::allocate(size_t bytes, int ordinal, uintptr_t* address) {
  if (bytes == 0) return kInvalidValue;
  if (bytes > memory_bytes - std::min(memory_bytes, allocated_on(ordinal))) return kOutOfMemory;
  const int fd = memfd_create("fake-device-memory", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(to_pages(bytes))) != 0) return kOutOfMemory;
  const int failed = import({}, fd, bytes, ordinal, address);
  if (failed) return failed;
  const auto made = find(*address);
  std::memset(made->backing, 0xa5, std::min<size_t>(bytes, 1 << 20));
  return kSuccess;
}

int World::import(const Origin& origin, int fd, size_t bytes, int ordinal, uintptr_t* address) {
  if (origin.pid != 0) {
    const std::lock_guard guard(mutex);
    for (const auto& [begin, known] : allocations_) {
      if (known->origin.pid != origin.pid) continue;
      if (known->origin.id == origin.id) {
        ++known->opened;
        *address = begin;
        return kSuccess;
      }
      if (!remaps && known->origin.address < origin.address + bytes &&
          origin.address < known->origin.address + known->bytes)
        return kAlreadyMapped;
    }
  }
  auto made = std::make_shared<Allocation>();
  made->bytes = bytes;
  made->ordinal = ordinal;
  made->foreign = origin.pid != 0;
  made->origin = origin;
  made->fd = fd;
  if (made->foreign) {
    const std::string path = "/proc/" + std::to_string(origin.pid) + "/fd/" + std::to_string(fd);
    made->fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (made->fd < 0) return kMapFailed;
  }
  void* backing = mmap(nullptr, to_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
  // CUDA uses addresses again, too.
  void* front = made->foreign ? nullptr : reinterpret_cast<void*>(take_freed(bytes));
  if (!front)
    front = mmap(nullptr, to_pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (backing == MAP_FAILED || front == MAP_FAILED) return kOutOfMemory;
  made->backing = static_cast<std::byte*>(backing);
  made->address = *address = reinterpret_cast<uintptr_t>(front);
  const std::lock_guard guard(mutex);
  made->id = ++last_id_;
  allocations_[made->address] = std::move(made);
  return kSuccess;
}

size_t World::allocated_on(int ordinal) {
  const std::lock_guard guard(mutex);
  size_t sum = 0;
  for (const auto& [address, allocation] : allocations_)
    if (allocation->ordinal == ordinal && !allocation->foreign) sum += allocation->bytes;
  return sum;
}

uintptr_t World::take_freed(size_t bytes) {
  const std::lock_guard guard(mutex);
  const auto found = std::ranges::find_if(freed_, [bytes](const auto& entry) {
    return entry.second.bytes == bytes && entry.second.memory.expired();
  });
  return found == freed_.end() ? 0 : freed_.extract(found).key();
}

int World::free(uintptr_t address, bool foreign) {
  std::shared_ptr<Allocation> gone;  // unmapped when the last piece of work is done with it
  const std::lock_guard guard(mutex);
  auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second->foreign != foreign) return kInvalidValue;
  gone = found->second;
  if (foreign && --gone->opened > 0) return kSuccess;
  freed_[address] = {gone->bytes, gone};
  forget_accesses(address, gone->bytes);
  allocations_.erase(found);
  return kSuccess;
}

std::shared_ptr<Allocation> World::find(uintptr_t address) {
  const std::lock_guard guard(mutex);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const auto& candidate = std::prev(after)->second;
  return address < candidate->address + candidate->bytes ? candidate : nullptr;
}

bool World::was_freed(uintptr_t address) {
  const std::lock_guard guard(mutex);
  auto after = freed_.upper_bound(address);
  if (after == freed_.begin()) return false;
  const auto& [begin, freed] = *std::prev(after);
  return address < begin + freed.bytes;
}

void World::pin(void* memory, size_t bytes, bool allocated) {
  const std::lock_guard guard(mutex);
  pinned_[reinterpret_cast<uintptr_t>(memory)] = {bytes, allocated, ++last_id_};
}

int World::unpin(void* memory, bool allocated) {
  const std::lock_guard guard(mutex);
  auto found = pinned_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == pinned_.end() || found->second.allocated != allocated) return kHostMemoryNotRegistered;
  forget_accesses(found->first, found->second.bytes);
  pinned_.erase(found);
  return kSuccess;
}

bool World::is_held(StreamHandle* stream) {
  const std::lock_guard guard(mutex);
  return held_streams.contains(stream);
}

bool World::find_pinned(uintptr_t address, uintptr_t* base, Pinned* pinned) {
  const std::lock_guard guard(mutex);
  auto after = pinned_.upper_bound(address);
  if (after == pinned_.begin()) return false;
  const auto& [begin, what] = *std::prev(after);
  if (address >= begin + what.bytes) return false;
  *base = begin;
  *pinned = what;
  return true;
}

std::byte* bytes_for_kernel(const void* pointer, size_t bytes, int ordinal) {
  World& world = World::instance();
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (const auto allocation = world.find(address)) {
    const uint64_t offset = address - allocation->address;
    if (bytes > allocation->bytes - offset) return nullptr;
    const bool own = allocation->ordinal == ordinal;
    if (!own && !allocation->foreign && !world.context(ordinal)->reaches.contains(allocation->ordinal))
      return nullptr;
    return allocation->backing + offset;
  }
  uintptr_t base;
  Pinned pinned;
  if (!world.find_pinned(address, &base, &pinned) || bytes > base + pinned.bytes - address) return nullptr;
  return reinterpret_cast<std::byte*>(address);
}

void illegal_address(int ordinal) {
  World::instance().context(ordinal)->asynchronous_error.store(kIllegalAddress);
}

// ---- Calls

bool World::leaves_out_wait() {
  uint64_t left = until_left_out.load();
  while (left > 0 && !until_left_out.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

int World::enter(const char* function) {
  ThreadCalls::mine().count(function);
  std::unique_lock lock(mutex);
  ++calls_[function];
  while (blocked_.contains(function)) {
    lock.unlock();
    usleep(100);
    lock.lock();
  }
  auto failure = failures_.find(function);
  if (failure == failures_.end() || failure->second.calls-- > 0) return kSuccess;
  const int error = failure->second.error;
  failures_.erase(failure);
  return error;
}

void World::fail_after(const char* function, int calls, int error) {
  const std::lock_guard guard(mutex);
  failures_[function] = {calls, error};
}

void World::block(const char* function, bool blocked) {
  const std::lock_guard guard(mutex);
  if (blocked) blocked_.insert(function);
  else blocked_.erase(function);
}

uint64_t World::calls(const char* function) {
  const std::lock_guard guard(mutex);
  auto found = calls_.find(function);
  return found == calls_.end() ? 0 : found->second;
}

}  // namespace fake

// ---- Streams

namespace weft::device::cuda {

void StreamHandle::push(fake::Piece piece) {
  std::unique_lock guard(mutex);
  changed.wait(guard, [this] { return closing || work.size() < fake::kMostQueued; });
  work.push_back({std::move(piece), fake::host_moment()});
  ++queued;
  changed.notify_all();
  if (thread.joinable()) return;
  thread = std::thread([this] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return closing || !work.empty(); });
      if (work.empty()) return;
      const fake::QueuedPiece next = std::move(work.front());
      work.pop_front();
      changed.notify_all();
      lock.unlock();
      while (fake::World::instance().is_held(this)) usleep(100);
      fake::World::instance().pause();
      // After an error of the device nothing runs on it any more.
      const auto& broken = fake::World::instance().context(ordinal)->asynchronous_error;
      fake::begin_piece(this, next.queued);
      while (broken.load() == 0 && !next.run()) usleep(20);
      lock.lock();
      ++done;
      changed.notify_all();
    }
  });
}

void StreamHandle::synchronize() {
  std::unique_lock lock(mutex);
  const uint64_t until = queued;
  changed.wait(lock, [&] { return done >= until; });
}

}  // namespace weft::device::cuda
