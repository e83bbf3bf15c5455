// Decorator: a transport around another, to which it hands everything on as it is. What makes a transport
// busy, slow or wrong derives from it and overrides that alone, so that nothing the interface gains is lost
// on the way.
//
// Thread safety: as Transport.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/transport.h"

namespace weft::transport {

/// It offers the parts that the inner transport offers; GpuDirect is its own, the others are the inner one's.
class Decorator : public Transport, protected GpuDirect {
 public:
  explicit Decorator(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  std::string describe() const override { return inner_->describe(); }
  size_t eager_bytes() const override { return inner_->eager_bytes(); }
  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override {
    return inner_->send(peer, envelope, payload);
  }
  uint64_t ticket() const override { return inner_->ticket(); }
  bool flushed(uint64_t ticket) override { return inner_->flushed(ticket); }
  Status flush(Deadline deadline) override { return inner_->flush(deadline); }
  Result<int> poll(Sink& sink) override { return inner_->poll(sink); }
  int64_t due_ns() const override { return inner_->due_ns(); }
  bool prepare_sleep() override { return inner_->prepare_sleep(); }
  void finish_sleep() override { inner_->finish_sleep(); }
  Status watch(int epoll_fd) override { return inner_->watch(epoll_fd); }
  Counters counters() const override { return inner_->counters(); }

  Result<RemoteBuffer> expose(void* address, size_t bytes) override { return inner_->expose(address, bytes); }
  void unexpose(const RemoteBuffer& buffer) override { inner_->unexpose(buffer); }
  size_t brief_put_bytes() const override { return inner_->brief_put_bytes(); }
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override {
    return inner_->put(peer, envelope, source, bytes, target, offset, done);
  }
  void forget(const Completion* first, const Completion* last) override { inner_->forget(first, last); }
  bool reads_forgotten() const override { return inner_->reads_forgotten(); }

  PeerMapping* peer_mapping() override { return inner_->peer_mapping(); }
  GpuDirect* gpu_direct() override { return inner_->gpu_direct() ? this : nullptr; }
  ConnectionControl* connection_control() override { return inner_->connection_control(); }

 protected:
  Transport& inner() { return *inner_; }
  const Transport& inner() const { return *inner_; }

  // Called only where the inner transport has them.
  Status gpu_direct_with(int peer) const override { return inner_->gpu_direct()->gpu_direct_with(peer); }
  Result<RemoteBuffer> expose_gpu(void* address, size_t bytes) override {
    return inner_->gpu_direct()->expose_gpu(address, bytes);
  }
  Status takes_dma_bufs() const override { return inner_->gpu_direct()->takes_dma_bufs(); }
  Result<RemoteBuffer> expose_dma_buf(void* address, size_t bytes, int fd, uint64_t offset) override {
    return inner_->gpu_direct()->expose_dma_buf(address, bytes, fd, offset);
  }
  Result<Progress> put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                           const RemoteBuffer& target, uint64_t offset, Completion* done) override {
    return inner_->gpu_direct()->put_gpu(peer, envelope, source, bytes, target, offset, done);
  }
  void drop_unexposed_gpu() override { inner_->gpu_direct()->drop_unexposed_gpu(); }

 private:
  const std::unique_ptr<Transport> inner_;
};

}  // namespace weft::transport
