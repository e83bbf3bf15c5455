// The seam of a plugin that does wrong, to see that the conformance suite notices. MUTATION says what:
// corrupt (host memory alone), reorder or missize; each harms one message in a few. "none" does nothing
// wrong, but as badly as is allowed: it is busy now and then and delivers in any order. Without it the plugin
// is as it should be; it then serves tests of GPU memory, for which its network is cuda/fake_network.
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "seam.h"
#include "transport/faulty.h"
#include "wire.h"

namespace weft::nccl_net {
namespace {

using transport::Completion;
using transport::Envelope;
using transport::Progress;
using transport::RemoteBuffer;

class Mutant final : public transport::Transport, private transport::GpuDirect {
 public:
  Mutant(std::unique_ptr<Transport> inner, std::string mutation)
      : inner_(std::move(inner)), mutation_(std::move(mutation)) {}

  std::string describe() const override { return inner_->describe(); }
  size_t eager_bytes() const override { return inner_->eager_bytes(); }
  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override {
    size_t bytes = envelope.bytes;
    const Envelope wrong = mutated(envelope, &payload, &bytes);
    return inner_->send(peer, wrong, payload);
  }
  Result<RemoteBuffer> expose(void* address, size_t bytes) override { return inner_->expose(address, bytes); }
  void unexpose(const RemoteBuffer& buffer) override { inner_->unexpose(buffer); }
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override {
    const Envelope wrong = mutated(envelope, &source, &bytes);
    return inner_->put(peer, wrong, source, bytes, target, offset, done);
  }
  GpuDirect* gpu_direct() override { return inner_->gpu_direct() ? this : nullptr; }
  void forget(const Completion* first, const Completion* last) override { inner_->forget(first, last); }
  uint64_t ticket() const override { return inner_->ticket(); }
  bool departed(uint64_t ticket) override { return inner_->departed(ticket); }
  Result<int> poll(transport::Sink& sink) override { return inner_->poll(sink); }
  bool prepare_sleep() override { return inner_->prepare_sleep(); }
  void finish_sleep() override { inner_->finish_sleep(); }
  Status watch(int epoll_fd) override { return inner_->watch(epoll_fd); }
  transport::Counters counters() const override { return inner_->counters(); }

 private:
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
    const Envelope wrong = mutated(envelope, nullptr, &bytes);
    return inner_->gpu_direct()->put_gpu(peer, wrong, source, bytes, target, offset, done);
  }
  void drop_unexposed_gpu() override { inner_->gpu_direct()->drop_unexposed_gpu(); }

  /// `data` is null where a CPU cannot read it.
  Envelope mutated(const Envelope& envelope, const void** data, size_t* bytes) {
    Envelope wrong = envelope;
    const auto kind = static_cast<Kind>(envelope.kind);
    if (kind != Kind::eager && kind != Kind::put) return wrong;
    if (mutation_ == "reorder") wrong.op ^= 1;  // each takes the place of its neighbour
    if (envelope.op % 5 != 3 || *bytes < 2) return wrong;
    if (mutation_ == "missize") wrong.bytes = static_cast<uint32_t>(--*bytes);
    if (mutation_ == "corrupt" && data) {
      const auto* right = static_cast<const std::byte*>(*data);
      std::vector<std::byte>& copy = copies_.emplace_back(right, right + *bytes);
      copy[*bytes / 2] ^= std::byte{1};
      *data = copy.data();
    }
    return wrong;
  }

  const std::unique_ptr<Transport> inner_;
  const std::string mutation_;
  std::deque<std::vector<std::byte>> copies_;
};

}  // namespace

std::unique_ptr<transport::Transport> decorate(std::unique_ptr<transport::Transport> transport) {
  const char* mutation = std::getenv("MUTATION");
  if (!mutation) return transport;
  if (std::string(mutation) != "none") return std::make_unique<Mutant>(std::move(transport), mutation);
  transport::FaultyTransport::Options options;
  options.busy = 0.2;
  options.hold = 0.3;
  return std::make_unique<transport::FaultyTransport>(std::move(transport), options);
}

}  // namespace weft::nccl_net
