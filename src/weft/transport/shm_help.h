// Helped reads: how the owner of plain memory helps a peer of its node to read it. The kernel's single-copy
// call pins every page, and copies at half of a core's speed. Two ordinary copies by way of the cache are
// faster. So the reader of a long range lends the owner a ring of chunks, asks for the range, and takes
// chunks as the owner fills them. It reads chunks that are late through the kernel, so it depends on nobody:
// an owner that computes, sleeps or is gone costs the reader a few microseconds.
//
//   reader   lends a ring, asks (one message)                 takes chunk 0, says so           takes chunk 1
//   owner                                      fills chunks 0 to 31             fills chunk 32
//
// The ring lies in window memory of the reader. The reader writes `wanted`; the owner writes a `filled` word
// for each chunk. Both carry the number of the reading, so that nobody takes a word of an earlier reading for
// one of this.
//
// Thread safety: none, like the transport's. Both processes access shared words through std::atomic_ref.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/helped.h"
#include "transport/shm_memory.h"
#include "transport/shm_segment.h"
#include "transport/transport.h"

namespace weft::transport::shm {

inline constexpr uint64_t kChunkBytes = 64 << 10;
/// The owner is so far ahead that a chunk has left the owner's own cache for a shared one when the reader
/// takes it. The shared cache hands it over three times as fast. With more readers the owner is less far
/// ahead of each, and uses less of each ring.
inline constexpr uint64_t kChunks = kHelpAheadBytes / kChunkBytes;

struct HelpRing {
  struct alignas(64) Word {
    uint64_t value = 0;
    int64_t took_ns = 0;  // of a filled chunk
  };
  Word wanted;           // number << 32 | the first chunk that the reader still wants
  Word filled[kChunks];  // number << 32 | the chunk that is there + 1
  alignas(64) std::byte chunks[kChunks][kChunkBytes];
};

/// The reader's request; travels as the payload of a message.
struct HelpRequest {
  RemoteBuffer ring;      // the reader's
  uint64_t exposure = 0;  // the owner's, of expose()
  uint64_t address = 0;   // in the owner
  uint64_t bytes = 0;
  uint32_t number = 0;
  uint32_t ahead = 0;  // chunks that the owner may be ahead, and that take turns in the ring: 1 to kChunks
};

/// The reader's rings for one peer, made when the first is wanted, and kept.
class HelpRings {
 public:
  HelpRings() = default;
  ~HelpRings();
  HelpRings(const HelpRings&) = delete;
  HelpRings& operator=(const HelpRings&) = delete;

  struct Lent {
    HelpRing* ring = nullptr;  // null: none left
    uint32_t number = 0;       // of the reading
  };
  Lent take();
  void give(HelpRing* ring);
  /// Takes the reports of readings (Reading::judge). True: the reading's help ends, and the next reading gets
  /// none. Each further time twice as many readings get none.
  bool judge(int64_t brought_ns, int64_t alone_ns) {
    // A piece that is read alone often takes longer than it has to, and the best time changes slowly.
    const int64_t slower_ns = alone_ns_ + alone_ns_ / kForgets;
    alone_ns_ = alone_ns_ == 0 ? alone_ns : std::min(slower_ns, alone_ns);
    const bool worth = static_cast<double>(brought_ns) <= kTooLong * static_cast<double>(alone_ns_);
    if (worth) rest_ = 1;
    in_vain_ = worth ? 0 : in_vain_ + 1;
    if (in_vain_ < kInVain) return false;
    in_vain_ = 0;
    resting_ = rest_;
    rest_ = std::min(2 * rest_, kLongestRest);
    return true;
  }

 private:
  static constexpr size_t kRings = 4;
  static constexpr double kTooLong = 1.0;  // both ranks have to gain by it
  static constexpr int64_t kForgets = 64;  // judgements
  static constexpr int kInVain = 2;        // the first use of a ring is always slow
  static constexpr int kLongestRest = 64;  // readings
  HelpRing* rings_ = nullptr;  // a window of its own: an owner that is late writes into nobody else's memory
  std::vector<HelpRing*> free_;
  uint32_t number_ = 0;
  int resting_ = 0;  // so many more
  int rest_ = 1;     // the next time
  int in_vain_ = 0;
  int64_t alone_ns_ = 0;  // what a piece costs that is read alone; 0: not known
};

/// The reader's end of one reading.
class HelpedReading final : public Reading {
 public:
  /// The bytes to read: `bytes` from `offset` on of `buffer`, through `memory` where help is late.
  struct Range {
    PeerMemory& memory;
    RemoteBuffer buffer;
    uint64_t offset;
    uint64_t bytes;
    uint64_t ahead;  // as HelpRequest's
  };
  /// Wakes `owner` when there is room again, and counts bytes in `counters`.
  HelpedReading(const Range& range, HelpRings& rings, HelpRings::Lent lent, ControlSegment& owner,
                Counters& counters);
  ~HelpedReading() override;

  uint64_t piece() const override;
  const std::byte* ready() const override;
  int64_t bringing_ns() const override { return ring_->filled[slot()].took_ns; }
  Status fetch(void* into) override;
  void take() override;
  bool judge(int64_t brought_ns, int64_t alone_ns) override;

 private:
  uint64_t slot() const { return chunk_ % range_.ahead; }

  Range range_;
  HelpRings& rings_;
  HelpRing* ring_;
  uint64_t number_;     // << 32
  uint64_t chunk_ = 0;  // the next one
  bool declined_ = false;
  ControlSegment& owner_;
  Counters& counters_;
};

/// The owner's end: the memory that it has exposed, and the readings that it helps with.
class Helper {
 public:
  /// Serial numbers of ranges that peers may ask for; never 0.
  uint64_t expose(const void* address, uint64_t bytes);
  /// No reading touches that memory any more.
  void unexpose(uint64_t exposure);

  /// Whether a range lies in memory that is exposed under that number.
  bool is_exposed(uint64_t exposure, uint64_t address, uint64_t bytes) const;

  /// Drops a request that is not for exposed memory, or whose ring cannot be mapped: its reader goes without
  /// help.
  void accept(PeerMemory& reader, const HelpRequest& request);
  /// Fills the chunks that have room; returns how many.
  int work();
  bool has_work();
  bool idle() const { return jobs_.empty(); }

 private:
  struct Exposure {
    uint64_t serial;
    uint64_t address;
    uint64_t bytes;
  };
  struct Job {
    PeerMemory* reader;
    HelpRequest request;
    uint64_t next = 0;  // chunk
  };
  std::vector<Exposure> exposures_;
  std::vector<Job> jobs_;
  uint64_t serials_ = 0;
};

}  // namespace weft::transport::shm
