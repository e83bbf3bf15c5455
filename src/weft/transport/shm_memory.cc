#include "transport/shm_memory.h"

#include <errno.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "base/checked_copy.h"
#include "device/window.h"
#include "transport/lost_memory.h"

namespace weft::transport::shm {
namespace {

/// Reads the peer's nonce at its announced address, and writes it back: a filter of system calls may allow
/// one and forbid the other.
bool can_copy(const ShmAddress& address) {
  uint64_t nonce = 0;
  const iovec own{&nonce, sizeof(nonce)};
  const iovec theirs{reinterpret_cast<void*>(address.nonce_address), sizeof(nonce)};
  return process_vm_readv(address.pid, &own, 1, &theirs, 1, 0) == sizeof(nonce) && nonce == address.nonce &&
         process_vm_writev(address.pid, &own, 1, &theirs, 1, 0) == sizeof(nonce);
}

}  // namespace

Keys keys_of_memory(const void* address, size_t bytes) {
  const auto window = device::find_window(address, bytes);
  if (!window) return {};
  return {.serial = window->serial,
          .fd = window->segment.fd,
          .offset = window->offset,
          .segment_bytes = window->segment.bytes,
          .inode = window->segment.inode};
}

PeerMemory::PeerMemory(int rank, const ShmAddress& address, bool cma)
    : rank_(rank),
      pid_(address.pid),
      same_process_(ControlSegment::in_this_process(address)),
      single_copy_(same_process_ || (cma && can_copy(address))) {}

MappedBuffer PeerMemory::map(const RemoteBuffer& buffer) {
  auto* const address = static_cast<std::byte*>(find(buffer));
  if (address == nullptr || same_process_) return {address, nullptr};
  return {address, mapped_.front().segment};
}

Result<device::Segment> PeerMemory::open(const Keys& keys) const {
  return device::Segment::open(pid_, {.inode = keys.inode, .bytes = keys.segment_bytes, .fd = keys.fd});
}

void* PeerMemory::find(const RemoteBuffer& buffer) {
  if (same_process_) return reinterpret_cast<void*>(buffer.address);
  const auto keys = buffer.keys.as<Keys>();
  if (keys.serial == 0) return nullptr;
  auto found =
      std::find_if(mapped_.begin(), mapped_.end(), [&](const Mapped& m) { return m.serial == keys.serial; });
  if (found == mapped_.end()) {
    Result<device::Segment> segment = open(keys);
    if (!segment) return nullptr;
    if (mapped_.size() == kMappedSegments) mapped_.pop_back();
    found = mapped_.insert(mapped_.end(),
                           Mapped{keys.serial, std::make_shared<const device::Segment>(segment.take())});
  }
  std::rotate(mapped_.begin(), found, found + 1);
  const device::Segment& segment = *mapped_.front().segment;
  if (keys.offset > segment.bytes() || buffer.bytes > segment.bytes() - keys.offset) return nullptr;
  return segment.data() + keys.offset;
}

Status PeerMemory::why_unmapped(const RemoteBuffer& window) const {
  const Result<device::Segment> segment = open(window.keys.as<Keys>());
  if (!segment) return segment.status().in(fmt::format("the shared memory of rank {}", rank_));
  return fail(Code::protocol_error, "a buffer of rank {} does not lie in the shared memory that it names",
              rank_);
}

Status PeerMemory::read(const RemoteBuffer& from, uint64_t offset, void* into, size_t bytes) {
  return transfer(Direction::read, from, offset, into, bytes);
}

Status PeerMemory::write(const RemoteBuffer& into, uint64_t offset, const void* from, size_t bytes) {
  return transfer(Direction::write, into, offset, const_cast<void*>(from), bytes);
}

Status PeerMemory::transfer(Direction direction, const RemoteBuffer& buffer, uint64_t offset, void* own,
                            size_t bytes) {
  const auto syscall = direction == Direction::read ? process_vm_readv : process_vm_writev;
  uint64_t address = buffer.address + offset;
  if (bytes == 0) return {};  // addresses may be null
  if (same_process_) {
    auto* theirs = reinterpret_cast<void*>(address);
    std::memcpy(direction == Direction::read ? own : theirs, direction == Direction::read ? theirs : own,
                bytes);
    return {};
  }
  auto* next = static_cast<std::byte*>(own);
  while (bytes > 0) {  // one call moves 2 GiB at most, and stops where a page is missing
    const iovec here{next, bytes};
    const iovec there{reinterpret_cast<void*>(address), bytes};
    const ssize_t moved = syscall(pid_, &here, 1, &there, 1, 0);
    const int error = moved < 0 ? errno : EFAULT;
    if (moved <= 0 && error == EFAULT && !can_be_read(next)) return memory_is_gone(rank_);
    if (moved <= 0) return explain(error, direction, address, bytes);
    next += moved;
    address += static_cast<uint64_t>(moved);
    bytes -= static_cast<size_t>(moved);
  }
  return {};
}

Status PeerMemory::explain(int error, Direction direction, uint64_t address, size_t bytes) const {
  const char* verb = direction == Direction::read ? "read" : "write";
  switch (error) {
    case ESRCH:
      return fail(Code::remote_error, "cannot {} the memory of rank {}: its process {} is gone", verb, rank_,
                  pid_);
    case EFAULT:
      return fail(Code::remote_error, "cannot {} {} bytes at {:#x} of rank {} (process {}): not mapped there",
                  verb, bytes, address, rank_, pid_);
    default:
      return fail_errno(error,
                        fmt::format("cannot {} the memory of rank {} (process {})", verb, rank_, pid_));
  }
}

}  // namespace weft::transport::shm
