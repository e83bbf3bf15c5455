// GpuDirect: the part of a network's transport that reaches GPU memory without a copy in host memory. Only
// transports that were opened for a device offer it. GPU memory that a transport cannot reach this way goes
// through host memory.
//
// Thread safety: none; as MessageTransport.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "transport/memory_access.h"

namespace weft::transport {

class GpuDirect {
 public:
  virtual ~GpuDirect() = default;
  /// ok if puts go between the GPU memory of this rank and of `peer`; both ends give the same answer. For the
  /// own rank: whether this rank offers it. Otherwise the reason, of either end.
  virtual Status gpu_direct_with(int peer) const = 0;
  /// As MemoryAccess::expose, for GPU memory; MemoryAccess::unexpose ends it. Errors: unsupported if this
  /// particular memory cannot be registered. The caller then stages it.
  virtual Result<RemoteBuffer> expose_gpu(void* address, size_t bytes) = 0;
  /// ok if expose_dma_buf() works here, otherwise the reason.
  virtual Status takes_dma_bufs() const = 0;
  /// As expose_gpu, through a dma-buf of the memory that the caller has; the memory begins at `offset` of it.
  /// The caller may close `fd` afterwards.
  virtual Result<RemoteBuffer> expose_dma_buf(void* address, size_t bytes, int fd, uint64_t offset) = 0;
  /// As MemoryAccess::put, from GPU memory.
  virtual Result<Progress> put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                                   const RemoteBuffer& target, uint64_t offset, Completion* done) = 0;
  /// Withdraws the keys of all GPU memory that is no longer exposed: after a failure, when a peer may still
  /// write.
  virtual void drop_unexposed_gpu() = 0;
};

}  // namespace weft::transport
