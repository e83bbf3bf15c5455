// The control segment of a rank: the memory in which its peers of the node leave messages for it, and the
// word and pipe by which they wake it. Its owner makes it. Each peer maps it when it first sends; peers of
// the same process share the owner's mapping.
//
//   line 0    identity: a random nonce, so that no reused pid or descriptor can pass for the owner
//   line 1    the sleep word: 1 while the owner sleeps or is about to
//   line 2    how many peers have opened their FIFO; then a flag for each
//   …         a Consumed line for each FIFO, then the owner's Revocations, then the FIFOs' slots (a page
//             each) and their byte rings
//
// The memory is sparse: an idle pair of ranks touches none of it. The owner polls only FIFOs that were
// opened.
//
// Sleeping is Dekker's protocol. The owner sets the sleep word and then looks for messages; a sender
// publishes a message and then reads the sleep word. Each needs a full barrier between its two halves. The
// owner pays for both with membarrier(2), so that sending costs no fence. Where the kernel has none, senders
// use a read-modify-write on the word.
//
// Thread safety: the owner's calls by one thread at a time, the calls of one peer by one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "base/status.h"
#include "device/segment.h"
#include "transport/shm_fifo.h"
#include "transport/shm_revocations.h"

namespace weft::transport {

/// How ranks of the node find this one; travels through the bootstrap as plain bytes.
struct ShmAddress {
  uint64_t nonce = 0;
  uint64_t nonce_address = 0;  // of the nonce in the owner's address space
  device::SegmentName segment;
  int32_t pid = 0;
  int32_t doorbell_fd = -1;
  uint32_t ring_bytes = 0;
  uint16_t locals = 0;
  uint16_t layout = 0;  // version of what this file describes
};
static_assert(sizeof(ShmAddress) <= 64);

namespace shm {

class ControlSegment {
 public:
  /// For a rank with `locals` ranks on its node, itself included. `ring_bytes` is a power of two.
  static Result<std::shared_ptr<ControlSegment>> create(int locals, uint32_t ring_bytes);
  /// Maps a peer's, or shares it if the peer lives in this process. remote_error if the peer is gone.
  static Result<std::shared_ptr<ControlSegment>> open(const ShmAddress& address);
  /// Whether open() would succeed, as far as that shows without mapping anything.
  static Status probe(const ShmAddress& address);

  ~ControlSegment();
  ControlSegment(const ControlSegment&) = delete;
  ControlSegment& operator=(const ControlSegment&) = delete;

  const ShmAddress& address() const { return address_; }
  /// Whether the owner is a thread of this process.
  static bool in_this_process(const ShmAddress& address);

  /// The FIFO through which the node's rank number `sender` speaks to the owner.
  FifoMemory fifo(int sender) const;
  /// Exposures that the owner has revoked.
  Revocations& revocations() const { return *revocations_; }

  /// For a peer, before its first message: the owner polls fifo(sender) from now on.
  void announce(int sender);
  /// For a peer, after every message: wakes the owner if it sleeps.
  void wake();

  /// For the owner: how many peers have announced themselves, and whether a certain one has.
  uint32_t announced() const { return std::atomic_ref(header_->announced).load(std::memory_order_acquire); }
  bool has_announced(int sender) const { return announcement(sender).load(std::memory_order_acquire) != 0; }
  /// For the owner: from now on wake() rings. The owner must look for messages once more before it sleeps.
  void lie_down();
  void get_up();
  /// Readable when a peer rang.
  int doorbell() const { return doorbell_.get(); }

 private:
  struct Header {
    alignas(kLineBytes) uint64_t nonce;
    uint32_t owner_has_membarrier;
    alignas(kLineBytes) uint32_t sleeping;
    alignas(kLineBytes) uint32_t announced;
  };

  ControlSegment(device::Segment segment, UniqueFd doorbell, const ShmAddress& address);
  static Result<std::shared_ptr<ControlSegment>> map(const ShmAddress& address);
  std::byte* at(size_t offset) const { return segment_.data() + offset; }
  std::atomic_ref<uint32_t> announcement(int sender) const {
    return std::atomic_ref(reinterpret_cast<uint32_t*>(at(sizeof(Header)))[sender]);
  }

  device::Segment segment_;
  UniqueFd doorbell_;  // open for reading and writing, so that nobody ever gets SIGPIPE
  ShmAddress address_;
  Header* header_;
  Revocations* revocations_;
  bool senders_fence_;  // this process cannot rely on the owner's membarrier
};

inline void ControlSegment::wake() {
  std::atomic_ref sleeping(header_->sleeping);
  if (senders_fence_) [[unlikely]] {
    if (sleeping.fetch_add(0, std::memory_order_acq_rel) == 0) return;
  } else {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the other half is the owner's membarrier
    if (sleeping.load(std::memory_order_relaxed) == 0) [[likely]]
      return;
  }
  if (sleeping.exchange(0, std::memory_order_acq_rel) == 0) return;  // somebody else rings
  constexpr char kRing = 1;
  (void)!::write(doorbell_.get(), &kRing, 1);
}

}  // namespace shm
}  // namespace weft::transport
