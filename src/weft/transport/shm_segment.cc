#include "transport/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <unordered_map>

#include "base/fork.h"
#include "base/membarrier.h"
#include "base/mutex.h"

namespace weft::transport::shm {
namespace {

constexpr uint16_t kLayoutVersion = 2;
constexpr size_t kSlotsBytes = kSlots * sizeof(Slot);
constexpr size_t kPageBytes = 4096;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Offsets in the segment; a function of what the address says.
struct Layout {
  /// After the header comes a flag for each peer.
  Layout(size_t header_bytes, size_t locals, size_t ring_bytes) {
    consumed = round_up(header_bytes + locals * sizeof(uint32_t), kLineBytes);
    revocations = round_up(consumed + locals * sizeof(Consumed), kPageBytes);
    slots = round_up(revocations + sizeof(Revocations), kPageBytes);
    rings = slots + locals * kSlotsBytes;
    bytes = rings + locals * ring_bytes;
  }
  size_t consumed, revocations, slots, rings, bytes;
};

/// The control segments that live in this process, by nonce.
class Residents {
 public:
  static Residents& instance() {
    static Residents* const residents = std::make_unique<Residents>().release();  // outlives every thread
    return *residents;
  }
  void add(uint64_t nonce, const std::shared_ptr<ControlSegment>& segment) {
    const MutexLock lock(mutex_);
    by_nonce_[nonce] = segment;
  }
  void remove(uint64_t nonce) {
    const MutexLock lock(mutex_);
    by_nonce_.erase(nonce);
  }
  std::shared_ptr<ControlSegment> find(uint64_t nonce) {
    const MutexLock lock(mutex_);
    auto found = by_nonce_.find(nonce);
    return found == by_nonce_.end() ? nullptr : found->second.lock();
  }

 private:
  ForkSafeMutex mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<ControlSegment>> by_nonce_ WEFT_GUARDED_BY(mutex_);
};

Result<UniqueFd> make_doorbell() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return fail_errno(errno, "pipe2, for a doorbell");
  const UniqueFd reader(ends[0]), writer(ends[1]);
  return device::open_peer_descriptor(getpid(), reader.get());
}

Status not_the_same_process(const ShmAddress& address) {
  return fail(
      Code::remote_error,
      "process {} is not the one that announced itself: it has ended, or lives in another container whose "
      "process numbers mean something else here",
      address.pid);
}

}  // namespace

Result<std::shared_ptr<ControlSegment>> ControlSegment::create(int locals, uint32_t ring_bytes) {
  ShmAddress address;
  if (getrandom(&address.nonce, sizeof(address.nonce), 0) != sizeof(address.nonce)) {
    return fail_errno(errno, "getrandom");
  }
  Result<device::Segment> segment = device::Segment::create(Layout(sizeof(Header), locals, ring_bytes).bytes);
  if (!segment) return segment.status();
  Result<device::SegmentName> name = segment->name();
  if (!name) return name.status();
  Result<UniqueFd> doorbell = make_doorbell();
  if (!doorbell) return doorbell.status();

  auto* header = reinterpret_cast<Header*>(segment->data());
  header->nonce = address.nonce;
  header->owner_has_membarrier = has_membarrier();
  address.nonce_address = reinterpret_cast<uintptr_t>(&header->nonce);
  address.segment = *name;
  address.pid = getpid();
  address.doorbell_fd = doorbell->get();
  address.ring_bytes = ring_bytes;
  address.locals = static_cast<uint16_t>(locals);
  address.layout = kLayoutVersion;
  std::shared_ptr<ControlSegment> made(new ControlSegment(segment.take(), doorbell.take(), address));
  Residents::instance().add(address.nonce, made);
  return made;
}

ControlSegment::ControlSegment(device::Segment segment, UniqueFd doorbell, const ShmAddress& address)
    : segment_(std::move(segment)),
      doorbell_(std::move(doorbell)),
      address_(address),
      header_(reinterpret_cast<Header*>(segment_.data())),
      revocations_(reinterpret_cast<Revocations*>(
          at(Layout(sizeof(Header), address.locals, address.ring_bytes).revocations))),
      senders_fence_(!has_membarrier() || header_->owner_has_membarrier == 0) {}

ControlSegment::~ControlSegment() {
  if (in_this_process(address_)) Residents::instance().remove(address_.nonce);
}

bool ControlSegment::in_this_process(const ShmAddress& address) { return address.pid == getpid(); }

Result<std::shared_ptr<ControlSegment>> ControlSegment::open(const ShmAddress& address) {
  if (in_this_process(address)) {
    if (auto resident = Residents::instance().find(address.nonce)) return resident;
    return not_the_same_process(address);
  }
  return map(address);
}

Result<std::shared_ptr<ControlSegment>> ControlSegment::map(const ShmAddress& address) {
  if (address.segment.bytes < Layout(sizeof(Header), address.locals, address.ring_bytes).bytes) {
    return fail(Code::protocol_error, "the shared memory of process {} has {} bytes, too few for {} ranks",
                address.pid, address.segment.bytes, address.locals);
  }
  Result<device::Segment> segment = device::Segment::open(address.pid, address.segment);
  if (!segment) return segment.status();
  if (reinterpret_cast<const Header*>(segment->data())->nonce != address.nonce)
    return not_the_same_process(address);
  Result<UniqueFd> doorbell = device::open_peer_descriptor(address.pid, address.doorbell_fd);
  if (!doorbell) return doorbell.status();
  struct stat info;
  if (fstat(doorbell->get(), &info) != 0 || !S_ISFIFO(info.st_mode)) return not_the_same_process(address);
  return std::shared_ptr<ControlSegment>(new ControlSegment(segment.take(), doorbell.take(), address));
}

Status ControlSegment::probe(const ShmAddress& address) {
  if (address.pid == 0) return fail(Code::remote_error, "it has none, as its own log says");
  if (address.layout != kLayoutVersion) {
    return fail(Code::mismatch,
                "process {} lays out its shared memory in version {}, this one in version {}: all "
                "ranks must run the same Weft",
                address.pid, address.layout, kLayoutVersion);
  }
  if (in_this_process(address)) return open(address).status();
  Result<UniqueFd> fd = device::open_peer_descriptor(address.pid, address.segment.fd);
  if (!fd) return fd.status();
  uint64_t nonce = 0;
  if (pread(fd->get(), &nonce, sizeof(nonce), offsetof(Header, nonce)) != sizeof(nonce) ||
      nonce != address.nonce) {
    return not_the_same_process(address);
  }
  return {};
}

FifoMemory ControlSegment::fifo(int sender) const {
  const Layout layout(sizeof(Header), address_.locals, address_.ring_bytes);
  const auto index = static_cast<size_t>(sender);
  return {.slots = reinterpret_cast<Slot*>(at(layout.slots + index * kSlotsBytes)),
          .ring = at(layout.rings + index * address_.ring_bytes),
          .consumed = reinterpret_cast<Consumed*>(at(layout.consumed + index * sizeof(Consumed))),
          .ring_bytes = address_.ring_bytes};
}

void ControlSegment::announce(int sender) {
  announcement(sender).store(1, std::memory_order_release);
  std::atomic_ref(header_->announced).fetch_add(1, std::memory_order_release);
}

void ControlSegment::lie_down() {
  std::atomic_ref(header_->sleeping).exchange(1, std::memory_order_acq_rel);
  if (header_->owner_has_membarrier != 0) membarrier();
}

void ControlSegment::get_up() {
  std::atomic_ref(header_->sleeping).store(0, std::memory_order_relaxed);
  std::array<char, 64> rings;
  while (::read(doorbell_.get(), rings.data(), rings.size()) > 0) {
  }
}

}  // namespace weft::transport::shm
