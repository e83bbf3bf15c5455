#include "transport/shm_help.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory_watch.h"
#include "device/reduce.h"
#include "device/window.h"

namespace weft::transport::shm {
namespace {

constexpr uint64_t kOver = UINT64_MAX - 1, kNone = UINT64_MAX;

uint64_t chunks_of(uint64_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }

uint64_t chunk_bytes(uint64_t bytes, uint64_t chunk) {
  return std::min(kChunkBytes, bytes - chunk * kChunkBytes);
}

/// The chunk that the owner fills next, `next` or later. kNone if there is no room, kOver if the reading has
/// ended or needs no more.
uint64_t next_chunk(const HelpRequest& request, uint64_t next, HelpRing& ring) {
  const uint64_t wanted = std::atomic_ref(ring.wanted.value).load(std::memory_order_acquire);
  if (wanted >> 32 != request.number) return kOver;
  const uint64_t first = wanted & UINT32_MAX;
  if (next < first) next = first + 1;  // a reader that is ahead is reading the first one itself by now
  if (next >= chunks_of(request.bytes)) return kOver;
  return next < first + request.ahead ? next : kNone;
}

}  // namespace

// ---- the reader

HelpRings::~HelpRings() {
  if (Status freed = device::window_free(rings_); !freed) log::error("rings: {}", freed.message());
}

HelpRings::Lent HelpRings::take() {
  static_assert(kRings * sizeof(HelpRing) >= device::kLargeWindowBytes);
  if (resting_ > 0) {
    --resting_;
    return {};
  }
  if (rings_ == nullptr) {
    auto memory = device::window_alloc(kRings * sizeof(HelpRing));
    if (!memory) return {};  // nobody depends on help
    rings_ = static_cast<HelpRing*>(*memory);
    for (size_t i = 0; i < kRings; ++i) free_.push_back(new (rings_ + i) HelpRing);
  }
  if (free_.empty()) return {};
  HelpRing* const ring = free_.back();
  free_.pop_back();
  if (++number_ == 0) ++number_;  // 0 is nobody's
  return {ring, number_};
}

void HelpRings::give(HelpRing* ring) { free_.push_back(ring); }

HelpedReading::HelpedReading(const Range& range, HelpRings& rings, HelpRings::Lent lent,
                             ControlSegment& owner, Counters& counters)
    : range_(range),
      rings_(rings),
      ring_(lent.ring),
      number_(uint64_t{lent.number} << 32),
      owner_(owner),
      counters_(counters) {
  std::atomic_ref(ring_->wanted.value).store(number_, std::memory_order_release);
}

HelpedReading::~HelpedReading() {
  std::atomic_ref(ring_->wanted.value).store(0, std::memory_order_release);
  rings_.give(ring_);
}

uint64_t HelpedReading::piece() const {
  return chunk_ == chunks_of(range_.bytes) ? 0 : chunk_bytes(range_.bytes, chunk_);
}

const std::byte* HelpedReading::ready() const {
  if (declined_) return nullptr;
  const uint64_t filled = std::atomic_ref(ring_->filled[slot()].value).load(std::memory_order_acquire);
  return filled == (number_ | (chunk_ + 1)) ? ring_->chunks[slot()] : nullptr;
}

Status HelpedReading::fetch(void* into) {
  return range_.memory.read(range_.buffer, range_.offset + chunk_ * kChunkBytes, into, piece());
}

bool HelpedReading::judge(int64_t brought_ns, int64_t alone_ns) {
  if (declined_ || !rings_.judge(brought_ns, alone_ns)) return !declined_;
  std::atomic_ref(ring_->wanted.value).store(0, std::memory_order_release);
  declined_ = true;
  return false;
}

void HelpedReading::take() {
  counters_.bytes_read += piece();
  ++chunk_;
  if (declined_) return;
  std::atomic_ref(ring_->wanted.value).store(number_ | chunk_, std::memory_order_release);
  owner_.wake();
}

// ---- the owner

uint64_t Helper::expose(const void* address, uint64_t bytes) {
  exposures_.push_back({++serials_, reinterpret_cast<uintptr_t>(address), bytes});
  return serials_;
}

void Helper::unexpose(uint64_t exposure) {
  std::erase_if(exposures_, [&](const Exposure& e) { return e.serial == exposure; });
  std::erase_if(jobs_, [&](const Job& job) { return job.request.exposure == exposure; });
}

bool Helper::is_exposed(uint64_t exposure, uint64_t address, uint64_t bytes) const {
  const auto found = std::find_if(exposures_.begin(), exposures_.end(),
                                  [&](const Exposure& e) { return e.serial == exposure; });
  if (found == exposures_.end() || address < found->address) return false;
  const uint64_t offset = address - found->address;
  return offset <= found->bytes && bytes <= found->bytes - offset;
}

void Helper::accept(PeerMemory& reader, const HelpRequest& request) {
  if (!is_exposed(request.exposure, request.address, request.bytes)) return;
  if (request.ring.bytes != sizeof(HelpRing) || request.ahead == 0 || request.ahead > kChunks) return;
  jobs_.push_back({&reader, request});
}

int Helper::work() {
  int chunks = 0;
  std::erase_if(jobs_, [&](Job& job) {
    auto* const ring = static_cast<HelpRing*>(job.reader->find(job.request.ring));
    if (ring == nullptr) return true;
    uint64_t chunk = kNone;
    for (uint32_t i = 0; i < job.request.ahead; ++i) {  // a ring, then the caller's own work
      chunk = next_chunk(job.request, job.next, *ring);
      if (chunk >= kOver) break;
      const uint64_t slot = chunk % job.request.ahead;
      const int64_t begin = now_ns();
      device::copy(ring->chunks[slot],
                   reinterpret_cast<const std::byte*>(job.request.address) + chunk * kChunkBytes,
                   chunk_bytes(job.request.bytes, chunk));
      if (MemoryWatch::lost()) [[unlikely]]
        return true;  // the owner's operation fails, and its reader's with it
      HelpRing::Word& filled = ring->filled[slot];
      filled.took_ns = now_ns() - begin;
      std::atomic_ref(filled.value)
          .store(uint64_t{job.request.number} << 32 | (chunk + 1), std::memory_order_release);
      job.next = chunk + 1;
      ++chunks;
    }
    return chunk == kOver;
  });
  return chunks;
}

bool Helper::has_work() {
  return std::any_of(jobs_.begin(), jobs_.end(), [](const Job& job) {
    auto* const ring = static_cast<HelpRing*>(job.reader->find(job.request.ring));
    return ring == nullptr || next_chunk(job.request, job.next, *ring) != kNone;
  });
}

}  // namespace weft::transport::shm
