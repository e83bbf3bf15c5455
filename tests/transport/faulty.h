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

#include "transport/decorator.h"

namespace weft::transport {

class FaultyTransport final : public Decorator, private Sink {
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
      : Decorator(std::move(inner)), options_(options), random_(options.seed) {}

  std::string describe() const override { return "faulty " + inner().describe(); }
  Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override;
  Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                       const RemoteBuffer& target, uint64_t offset, Completion* done) override;
  Result<int> poll(Sink& sink) override;
  bool prepare_sleep() override;

 private:
  struct Arrival {
    uint64_t due;  // number of the poll that delivers it
    int peer;
    Envelope envelope;
    bool has_payload;
    std::vector<std::byte> payload;
  };

  Result<Progress> put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                           const RemoteBuffer& target, uint64_t offset, Completion* done) override;

  // What the inner transport calls.
  void* place(int peer, const Envelope& envelope) override;
  void arrived(int peer, const Envelope& envelope, const void* payload) override;
  bool expects(int peer, const Envelope& envelope) const override { return sink_->expects(peer, envelope); }
  bool takes_early(int peer) const override { return sink_->takes_early(peer); }
  void lost(int peer, const Status& why) override;

  bool happens(double probability);
  bool gone(int peer) const { return lost_ && peer == options_.lose_peer; }
  Status refuse(int peer) const;
  void deliver(int peer, const Envelope& envelope, const void* payload);
  int deliver_due();

  const Options options_;
  std::mt19937_64 random_;
  Sink* sink_ = nullptr;  // the engine's, inside poll()
  std::vector<Arrival> held_;
  uint64_t polls_ = 0;
  uint64_t delivered_ = 0;
  bool lost_ = false;  // options_.lose_peer, in pretence or truly
};

}  // namespace weft::transport
