#include "device/window.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/fork.h"
#include "base/mutex.h"

namespace weft::device {
namespace {

/// Where the segments are: immutable once published, sorted by address.
struct Directory {
  struct Entry {
    uintptr_t begin;
    WindowRef ref;
  };
  std::vector<Entry> entries;

  std::optional<WindowRef> find(uintptr_t address, size_t bytes) const {
    auto after = std::upper_bound(entries.begin(), entries.end(), address,
                                  [](uintptr_t value, const Entry& entry) { return value < entry.begin; });
    if (after == entries.begin()) return std::nullopt;
    const Entry& entry = *std::prev(after);
    const uint64_t offset = address - entry.begin;
    if (offset >= entry.ref.segment.bytes || bytes > entry.ref.segment.bytes - offset) return std::nullopt;
    WindowRef ref = entry.ref;
    ref.offset = offset;
    return ref;
  }
};

/// A segment and which parts of it are free. A large window is a pool without a free part.
struct Pool {
  Segment segment;
  WindowRef ref;
  bool shared;          // by small windows
  bool closed = false;  // never holds another window
  pid_t owner = getpid();
  std::map<size_t, size_t> free;  // offset → bytes; neighbours are always merged

  Pool(Segment made, const WindowRef& where, bool for_small)
      : segment(std::move(made)), ref(where), shared(for_small) {
    free.emplace(0, segment.bytes());
  }
  Pool(Pool&&) = delete;
  /// Peers may still map the segment: its memory goes back all the same. Not from a forked child, though.
  /// Ranks of this process may write to retired small windows by their addresses.
  ~Pool() {
    if (mine()) segment.discard(0, segment.bytes());
    if (closed && shared) segment.leave_mapped();
  }

  /// A forked child inherits pools, but shares their bytes with its parent: it must neither carve nor discard
  /// them.
  bool mine() const { return owner == getpid(); }

  bool empty() const { return free.size() == 1 && free.begin()->second == segment.bytes(); }

  /// First fit. Returns the offset.
  std::optional<size_t> take(size_t bytes) {
    if (free.empty() || closed || !mine()) return std::nullopt;
    for (auto part = free.begin(); part != free.end(); ++part) {
      if (part->second < bytes) continue;
      const auto [offset, size] = *part;
      free.erase(part);
      if (size > bytes) free.emplace(offset + bytes, size - bytes);
      return offset;
    }
    return std::nullopt;
  }

  void give_back(size_t offset, size_t bytes) {
    auto next = free.lower_bound(offset);
    if (next != free.end() && next->first == offset + bytes) {
      bytes += next->second;
      next = free.erase(next);
    }
    if (next != free.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    free.emplace_hint(next, offset, bytes);
  }
};

class Windows {
 public:
  /// Never destroyed: progress threads may look something up while the process exits.
  static Windows& instance() {
    static Windows* const windows = std::make_unique<Windows>().release();
    return *windows;
  }

  Result<void*> allocate(size_t bytes) {
    const MutexLock lock(mutex_);
    if (bytes >= kLargeWindowBytes) return allocate_in_new_pool(bytes, bytes, false);
    bytes = (std::max<size_t>(bytes, 1) + kWindowAlignment - 1) / kWindowAlignment * kWindowAlignment;
    for (auto pool = pools_.begin(); pool != pools_.end(); ++pool) {
      if (std::optional<size_t> offset = pool->take(bytes)) return record(pool, *offset, bytes);
    }
    return allocate_in_new_pool(kLargeWindowBytes, bytes, true);
  }

  /// `closes`: the segment never holds another window.
  Status free(void* window, bool closes) {
    std::list<Pool> dead;  // unmapped after the lock is gone, and after nobody can find it any more
    const MutexLock lock(mutex_);
    auto found = allocations_.find(window);
    if (found == allocations_.end()) {
      return fail(Code::invalid_pointer,
                  "{} was not allocated here: must be a pointer that weftMemAlloc of this process returned "
                  "and that has not been freed yet",
                  window);
    }
    const Allocation allocation = found->second;
    allocations_.erase(found);
    allocation.pool->give_back(allocation.offset, allocation.bytes);
    allocation.pool->closed |= closes;
    if (allocation.pool->empty()) retire(allocation.pool, dead);
    return {};
  }

  Status discard(void* window) {
    const MutexLock lock(mutex_);
    auto found = allocations_.find(window);
    if (found == allocations_.end())
      return fail(Code::invalid_pointer, "{} is no window of this process", window);
    const Allocation& allocation = found->second;
    if (allocation.pool->mine()) allocation.pool->segment.discard(allocation.offset, allocation.bytes);
    return {};
  }

  std::optional<WindowRef> find(const void* address, size_t bytes) {
    // Each thread keeps the directory that it saw last; one load tells whether it is still the newest.
    struct Seen {
      uint64_t version = 0;
      std::shared_ptr<const Directory> directory = std::make_shared<const Directory>();
    };
    static thread_local Seen seen;
    if (seen.version != version_.load(std::memory_order_acquire)) [[unlikely]] {
      const MutexLock lock(mutex_);
      seen = {version_.load(std::memory_order_relaxed), directory_};
    }
    return seen.directory->find(reinterpret_cast<uintptr_t>(address), bytes);
  }

 private:
  using PoolRef = std::list<Pool>::iterator;
  struct Allocation {
    PoolRef pool;
    size_t offset, bytes;
  };

  Result<void*> allocate_in_new_pool(size_t segment_bytes, size_t bytes, bool shared) WEFT_REQUIRES(mutex_) {
    Result<Segment> segment = Segment::create(segment_bytes);
    if (!segment) return segment.status();
    Result<SegmentName> name = segment->name();
    if (!name) return name.status();
    // A large window takes its segment whole, the rest of the last page included.
    if (!shared) bytes = segment->bytes();
    const PoolRef added = pools_.emplace(pools_.begin(), segment.take(),
                                         WindowRef{.segment = *name, .serial = ++last_serial_}, shared);
    publish();
    return record(added, *added->take(bytes), bytes);
  }

  void* record(PoolRef pool, size_t offset, size_t bytes) WEFT_REQUIRES(mutex_) {
    void* window = pool->segment.data() + offset;
    allocations_.emplace(window, Allocation{pool, offset, bytes});
    return window;
  }

  /// Takes an empty pool out of use. One empty shared pool stays mapped, without memory, so that a lone small
  /// window that comes and goes costs no mapping. What a large window was in nobody gets again: peers may map
  /// it still.
  void retire(PoolRef pool, std::list<Pool>& dead) WEFT_REQUIRES(mutex_) {
    const bool spare = pool->shared && !pool->closed && pool->mine() &&
                       std::none_of(pools_.begin(), pools_.end(),
                                    [&](const Pool& other) { return &other != &*pool && other.empty(); });
    if (spare) {
      pool->segment.discard(0, pool->segment.bytes());
      return;
    }
    dead.splice(dead.end(), pools_, pool);
    publish();
  }

  void publish() WEFT_REQUIRES(mutex_) {
    auto directory = std::make_shared<Directory>();
    directory->entries.reserve(pools_.size());
    for (const Pool& pool : pools_) {
      directory->entries.push_back({reinterpret_cast<uintptr_t>(pool.segment.data()), pool.ref});
    }
    std::sort(directory->entries.begin(), directory->entries.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    directory_ = std::move(directory);
    version_.fetch_add(1, std::memory_order_release);
  }

  std::atomic<uint64_t> version_{0};  // of directory_; read without the lock

  ForkSafeMutex mutex_;
  std::shared_ptr<const Directory> directory_ WEFT_GUARDED_BY(mutex_);
  std::list<Pool> pools_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<void*, Allocation> allocations_ WEFT_GUARDED_BY(mutex_);
  uint64_t last_serial_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Result<void*> window_alloc(size_t bytes) { return Windows::instance().allocate(bytes); }

Status window_free(void* window) {
  return window == nullptr ? Status() : Windows::instance().free(window, false);
}

Status window_retire(void* window) { return Windows::instance().free(window, true); }

Status window_discard(void* window) { return Windows::instance().discard(window); }

std::optional<WindowRef> find_window(const void* address, size_t bytes) {
  return Windows::instance().find(address, bytes);
}

}  // namespace weft::device
