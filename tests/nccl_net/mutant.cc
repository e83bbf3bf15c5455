// The seam of a plugin that does wrong, to see that the conformance suite notices. MUTATION says what:
// corrupt, reorder or missize; each harms one message in a few. "none" does nothing
// wrong, but as badly as is allowed: it is busy now and then and delivers in any order; "unasked" breaks a
// connection that asks for the clear of any message but the first ones; "late" holds withdrawals that answer
// nothing back for a while; "tardy" takes in nothing for a while, as if the network had to send all again.
// Without it the plugin is as it should be; it then serves tests of GPU memory, for which its network is
// cuda/fake_network.
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gpu.h"
#include "seam.h"
#include "transport/faulty.h"
#include "wire.h"

namespace weft::nccl_net {
namespace {

using transport::Completion;
using transport::Envelope;
using transport::Progress;
using transport::RemoteBuffer;

constexpr uint32_t kFirstOnes = 8;
constexpr int kPollsHeld = 300;
constexpr int64_t kTardyNs = 500'000'000;

class Mutant final : public transport::Decorator {
 public:
  Mutant(std::unique_ptr<Transport> inner, std::string mutation)
      : Decorator(std::move(inner)), mutation_(std::move(mutation)) {}

  Result<int> poll(transport::Sink& sink) override {
    if (mutation_ == "tardy" && now_ns() - created_ns_ < kTardyNs) return 0;
    if (mutation_ != "late") return inner().poll(sink);
    while (!held_.empty() && --held_.front().polls <= 0) {
      sink.arrived(held_.front().peer, held_.front().envelope, nullptr);
      held_.pop_front();
    }
    Holding holding(sink, held_);
    return inner().poll(holding);
  }

  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override {
    if (mutation_ == "unasked" && static_cast<Kind>(envelope.kind) == Kind::ask && envelope.op >= kFirstOnes)
      return fail(Code::internal_error, "the clear of message {} was asked for", envelope.op);
    size_t bytes = envelope.bytes;
    const Envelope wrong = mutated(envelope, &payload, &bytes);
    return inner().send(peer, wrong, payload);
  }
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override {
    const Envelope wrong = mutated(envelope, &source, &bytes);
    return inner().put(peer, wrong, source, bytes, target, offset, done);
  }

 private:
  struct Held {
    int peer;
    Envelope envelope;
    int polls = kPollsHeld;
  };
  class Holding final : public transport::Sink {
   public:
    Holding(transport::Sink& sink, std::deque<Held>& held) : sink_(sink), held_(held) {}
    void* place(int peer, const Envelope& envelope) override { return sink_.place(peer, envelope); }
    void arrived(int peer, const Envelope& envelope, const void* payload) override {
      if (static_cast<Kind>(envelope.kind) == Kind::withdrawn && envelope.bytes == 0)
        held_.push_back({peer, envelope});
      else sink_.arrived(peer, envelope, payload);
    }
    bool expects(int peer, const Envelope& envelope) const override { return sink_.expects(peer, envelope); }
    bool takes_early(int peer) const override { return sink_.takes_early(peer); }
    void lost(int peer, const Status& why) override { sink_.lost(peer, why); }

   private:
    transport::Sink& sink_;
    std::deque<Held>& held_;
  };

  Result<Progress> put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                           const RemoteBuffer& target, uint64_t offset, Completion* done) override {
    const Envelope wrong = mutated(envelope, nullptr, &bytes);
    const bool corrupts = mutation_ == "corrupt" && is_harmed(envelope, bytes);
    const std::byte* middle = static_cast<const std::byte*>(source) + bytes / 2;
    if (corrupts) WEFT_TRY(flip(middle));
    const Result<Progress> put = Decorator::put_gpu(peer, wrong, source, bytes, target, offset, done);
    if (corrupts && !(put.ok() && *put == Progress::accepted))
      WEFT_TRY(flip(middle));  // it will be put again
    return put;
  }

  /// One bit of GPU memory, in place: the network reaches nothing but what is registered.
  static Status flip(const std::byte* at) {
    std::byte value{};
    WEFT_TRY(gpu::copy_in(0, &value, at, 1));
    value ^= std::byte{1};
    return gpu::copy_in(0, const_cast<std::byte*>(at), &value, 1);
  }

  static bool is_harmed(const Envelope& envelope, size_t bytes) {
    const auto kind = static_cast<Kind>(envelope.kind);
    return (kind == Kind::eager || kind == Kind::put) && envelope.op % 5 == 3 && bytes >= 2;
  }

  /// `data` is null where a CPU cannot read it.
  Envelope mutated(const Envelope& envelope, const void** data, size_t* bytes) {
    Envelope wrong = envelope;
    const auto kind = static_cast<Kind>(envelope.kind);
    if (kind != Kind::eager && kind != Kind::put) return wrong;
    if (mutation_ == "reorder") wrong.op ^= 1;  // each takes the place of its neighbour
    if (!is_harmed(envelope, *bytes)) return wrong;
    if (mutation_ == "missize") wrong.bytes = static_cast<uint32_t>(--*bytes);
    if (mutation_ == "corrupt" && data) {
      const auto* right = static_cast<const std::byte*>(*data);
      std::vector<std::byte>& copy = copies_.emplace_back(right, right + *bytes);
      copy[*bytes / 2] ^= std::byte{1};
      *data = copy.data();
    }
    return wrong;
  }

  const std::string mutation_;
  const int64_t created_ns_ = now_ns();
  std::deque<std::vector<std::byte>> copies_;
  std::deque<Held> held_;
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
