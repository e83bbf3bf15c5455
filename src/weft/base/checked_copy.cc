#include "base/checked_copy.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weft {

bool copy_checked(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const iovec here{const_cast<std::byte*>(source), bytes}, there{target, bytes};
    const ssize_t copied = process_vm_writev(getpid(), &here, 1, &there, 1, 0);
    if (copied <= 0 && errno == EFAULT) return false;
    if (copied <= 0) return std::memcpy(target, source, bytes), true;
    target += copied, source += copied, bytes -= static_cast<size_t>(copied);
  }
  return true;
}

bool can_be_read(const void* byte) {
  std::byte copy;
  const iovec here{&copy, 1}, there{const_cast<void*>(byte), 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

}  // namespace weft
