#include "device.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "driver.h"

namespace stand_in {

namespace {

constexpr int kPool = 8;
constexpr int kDevices = 16;

thread_local int t_device = 0;
thread_local int64_t t_streams[kDevices] = {};  // ids of the current ones; 0 is the default

std::mutex g_streams_mutex;
std::map<int, std::vector<void*>> g_pool;  // by device; ids are places + 1
std::map<int, int> g_next;

c10::Device device_of(int index) {
  return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
}

}  // namespace

int current_device() { return t_device; }
void set_device(int device) { t_device = device; }

c10::Stream current_stream(int device) {
  return c10::Stream(c10::Stream::UNSAFE, device_of(device), t_streams[device]);
}

c10::Stream set_stream(c10::Stream stream) {
  const int device = stream.device_index();
  c10::Stream before = current_stream(device);
  t_streams[device] = stream.id();
  return before;
}

c10::Stream default_stream(int device) { return c10::Stream(c10::Stream::UNSAFE, device_of(device), 0); }

c10::Stream pool_stream(int device) {
  const std::lock_guard<std::mutex> lock(g_streams_mutex);
  std::vector<void*>& pool = g_pool[device];
  if (pool.empty()) {
    pool.resize(kPool);
    for (void*& stream : pool) check(driver_on(device).stream_create(&stream, 1), "cuStreamCreate");
  }
  const int place = g_next[device]++ % kPool;
  return c10::Stream(c10::Stream::UNSAFE, device_of(device), place + 1);
}

void* handle_of(c10::Stream stream) {
  if (stream.id() == 0) return nullptr;
  const std::lock_guard<std::mutex> lock(g_streams_mutex);
  return g_pool.at(stream.device_index()).at(stream.id() - 1);
}

namespace {

struct Block {
  uint64_t address = 0;
  size_t bytes = 0;
  int device = 0;
  int64_t stream = 0;
  std::set<int64_t> also_on;
  std::vector<void*> until;  // events
};

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    if (bytes == 0) return {nullptr, nullptr, &give_back, device_of(device)};
    const std::lock_guard<std::mutex> lock(mutex_);
    retire(device);
    const int64_t stream = current_stream(device).id();
    const size_t rounded = (bytes + 511) / 512 * 512;
    std::vector<Block>& free = free_[{device, stream, rounded}];
    Block block{0, rounded, device, stream, {}, {}};
    if (free.empty()) {
      check(driver_on(device).alloc(&block.address, rounded), "cuMemAlloc");
    } else {
      block = free.back();
      free.pop_back();
      ++reused;
    }
    used_[block.address] = block;
    void* data = reinterpret_cast<void*>(block.address);
    return {data, data, &give_back, device_of(device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "not needed"); }

  void record(void* data, c10::Stream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = used_.find(reinterpret_cast<uint64_t>(data));
    if (found != used_.end() && stream.id() != found->second.stream)
      found->second.also_on.insert(stream.id());
  }

  long reused = 0;  // guarded by mutex_

 private:
  static void give_back(void* data);

  // Holding the lock: blocks whose other streams are done become free.
  void retire(int device) {
    Driver& cuda = driver_on(device);
    for (size_t i = 0; i < waiting_.size();) {
      Block& block = waiting_[i];
      const bool done =
          block.device == device && std::all_of(block.until.begin(), block.until.end(),
                                                [&](void* e) { return cuda.event_query(e) == 0; });
      if (!done) {
        ++i;
        continue;
      }
      for (void* event : block.until) cuda.event_destroy(event);
      block.until.clear();
      block.also_on.clear();
      free_[{block.device, block.stream, block.bytes}].push_back(block);
      waiting_.erase(waiting_.begin() + i);
    }
  }

  std::mutex mutex_;
  std::map<uint64_t, Block> used_;
  std::map<std::tuple<int, int64_t, size_t>, std::vector<Block>> free_;
  std::vector<Block> waiting_;
};

CachingAllocator& caching() {
  static CachingAllocator* made = new CachingAllocator;
  return *made;
}

void CachingAllocator::give_back(void* data) {
  if (data == nullptr) return;
  CachingAllocator& self = caching();
  const std::lock_guard<std::mutex> lock(self.mutex_);
  auto found = self.used_.find(reinterpret_cast<uint64_t>(data));
  Block block = found->second;
  self.used_.erase(found);
  Driver& cuda = driver_on(block.device);
  for (const int64_t id : block.also_on) {
    void* event = nullptr;
    check(cuda.event_create(&event, 2), "cuEventCreate");
    void* stream = handle_of(c10::Stream(c10::Stream::UNSAFE, device_of(block.device), id));
    check(cuda.event_record(event, stream), "cuEventRecord");
    block.until.push_back(event);
  }
  if (block.until.empty()) self.free_[{block.device, block.stream, block.bytes}].push_back(block);
  else self.waiting_.push_back(block);
}

}  // namespace

c10::Allocator* allocator() { return &caching(); }
void record_block(void* data, c10::Stream stream) { caching().record(data, stream); }
long reused_blocks() { return caching().reused; }

}  // namespace stand_in
