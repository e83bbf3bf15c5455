// ShapedTransport: a decorator that makes any transport as slow as a given network, for tests and studies
// that have no network namespaces. Each rank gets an uplink of a given rate that its messages and puts pass
// one after the other, and a latency after it; whatever is handed over is passed to the inner transport when
// it would have arrived, whole. Not modelled: the receiver's downlink, and packets.
//
// Reads and mappings of a peer's memory are not shaped.
//
// Thread safety: as Transport.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transport/decorator.h"

namespace weft::transport {

class ShapedTransport final : public Decorator {
 public:
  struct Options {
    double bytes_per_s = 0;        // 0 = without bound
    double latency_s = 0;          // from the last byte on the uplink to arrival
    size_t queue_bytes = 1 << 20;  // of messages on their way, before send() answers busy
  };

  static Result<std::unique_ptr<ShapedTransport>> create(std::unique_ptr<Transport> inner,
                                                         const Options& options);

  std::string describe() const override;
  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override;
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  void forget(const Completion* first, const Completion* last) override;
  bool flushed(uint64_t ticket) override { return items_.empty() && inner().flushed(ticket); }
  GpuDirect* gpu_direct() override { return nullptr; }  // puts of GPU memory would pass by the uplink
  Result<int> poll(Sink& sink) override;
  bool prepare_sleep() override;
  Status watch(int epoll_fd) override;

 private:
  struct Item {  // a message, with its payload, or a put, by reference
    int64_t due_ns = 0;
    int peer = 0;
    Envelope envelope;
    std::vector<std::byte> payload;
    const void* source = nullptr;
    size_t bytes = 0;
    RemoteBuffer target;
    uint64_t offset = 0;
    Completion* done = nullptr;  // null: a message
  };

  ShapedTransport(std::unique_ptr<Transport> inner, const Options& options, UniqueFd timer)
      : Decorator(std::move(inner)), options_(options), timer_(std::move(timer)) {}
  int64_t occupy_uplink(size_t bytes);
  Result<Progress> pass_on(const Item& item);

  const Options options_;
  UniqueFd timer_;  // wakes a sleeper when the next item is due
  int64_t uplink_free_ns_ = 0;
  std::list<Item> items_;  // by due_ns
  size_t queued_bytes_ = 0;
};

}  // namespace weft::transport
