// FaultyTransport: a decorator that makes any transport behave as badly as it is allowed to, the same way for
// the same seed: it answers busy, holds back and reorders arrivals, and at a given point pretends that a peer
// is gone. For tests of what stands above a transport. Not a way to damage bytes: transports deliver what was
// sent, or nothing.
//
// Thread safety: as Transport.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace weft::transport {

class FaultyTransport final : public Transport, private GpuDirect, private Sink {
 public:
  struct Options {
    uint64_t seed = 1;
    double busy = 0;          // probability that a send or put is answered with busy
    double hold = 0;          // probability that an arrival is held back while later ones pass
    int hold_polls = 16;      // for so many polls at most
    int lose_peer = -1;       // a rank that will seem to be gone, or -1
    uint64_t lose_after = 0;  // when this many arrivals, from anyone, have been delivered
  };

  FaultyTransport(std::unique_ptr<Transport> inner, const Options& options)
      : inner_(std::move(inner)), options_(options), random_(options.seed) {}

  std::string describe() const override { return "faulty " + inner_->describe(); }
  size_t eager_bytes() const override { return inner_->eager_bytes(); }
  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override;
  Result<RemoteBuffer> expose(void* address, size_t bytes) override { return inner_->expose(address, bytes); }
  void unexpose(const RemoteBuffer& buffer) override { inner_->unexpose(buffer); }
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  void forget(const Completion* first, const Completion* last) override { inner_->forget(first, last); }
  uint64_t ticket() const override { return inner_->ticket(); }
  bool departed(uint64_t ticket) override { return inner_->departed(ticket); }
  void* map(int peer, const RemoteBuffer& target) override { return inner_->map(peer, target); }
  Status read(int peer, const RemoteBuffer& target, uint64_t offset, void* into, size_t bytes) override {
    return inner_->read(peer, target, offset, into, bytes);
  }
  bool reads_peers() const override { return inner_->reads_peers(); }
  GpuDirect* gpu_direct() override { return inner_->gpu_direct() ? this : nullptr; }
  Result<int> poll(Sink& sink) override;
  bool prepare_sleep() override;
  void finish_sleep() override { inner_->finish_sleep(); }
  Status watch(int epoll_fd) override { return inner_->watch(epoll_fd); }
  Counters counters() const override { return inner_->counters(); }

 private:
  struct Arrival {
    uint64_t due;  // number of the poll that delivers it
    int peer;
    Envelope envelope;
    bool has_payload;
    std::vector<std::byte> payload;
  };

  // The inner transport's GPUDirect, if it has one.
  Status gpu_direct_with(int peer) const override { return inner_->gpu_direct()->gpu_direct_with(peer); }
  Result<RemoteBuffer> expose_gpu(void* address, size_t bytes) override {
    return inner_->gpu_direct()->expose_gpu(address, bytes);
  }
  Status takes_dma_bufs() const override { return inner_->gpu_direct()->takes_dma_bufs(); }
  Result<RemoteBuffer> expose_dma_buf(void* address, size_t bytes, int fd, uint64_t offset) override {
    return inner_->gpu_direct()->expose_dma_buf(address, bytes, fd, offset);
  }
  Result<Progress> put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                           const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  void drop_unexposed_gpu() override { inner_->gpu_direct()->drop_unexposed_gpu(); }

  // What the inner transport calls.
  void* place(int peer, const Envelope& envelope) override;
  void arrived(int peer, const Envelope& envelope, const void* payload) override;
  void lost(int peer, const Status& why) override;

  bool happens(double probability);
  bool gone(int peer) const { return lost_ && peer == options_.lose_peer; }
  Status refuse(int peer) const;
  void deliver(int peer, const Envelope& envelope, const void* payload);
  int deliver_due();

  const std::unique_ptr<Transport> inner_;
  const Options options_;
  std::mt19937_64 random_;
  Sink* sink_ = nullptr;  // the engine's, inside poll()
  std::vector<Arrival> held_;
  uint64_t polls_ = 0;
  uint64_t delivered_ = 0;
  bool lost_ = false;  // options_.lose_peer, in pretence or truly
};

}  // namespace weft::transport
