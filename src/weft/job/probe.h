// Probe: measures the link between two ranks with the transport that their operations use, and nothing of the
// engine above it. Rank 0 leads and times; its peer follows the same script. Each message is an envelope with
// the number engine::kProbeNumber, which the context's inbox hands to the probe's.
//
// What is measured (model/cost.h defines the terms):
//   alpha, overhead   half the round trip of an empty message; what each message of a burst adds
//   sending_us        CPU time of the sender for a message that is written by itself
//   gathered_us       the same for a message of a burst, whose messages share writes
//   behind_us         CPU time of the receiver for a message when all of a burst have arrived
//   bytes_per_us      rate of long messages in both directions, or of a stream of puts
//   received_*, *_large_bytes_per_us  what an exchange of puts costs beyond that, in caches and beyond them
//   peer_*            reads of a peer's memory while the peer reads too: of memory that is not in its caches,
//                     and of memory that it has just written (peer_written)
//   mapped_*          slices that go through a peer's scratch, in both directions at the same time
//   nic_bytes_per_us  the network's rate, from a stream that leaves the CPU idle
//   burst_bytes       what the network takes at once after a pause
//   nic_message_us    time of headers at the network's rate
//
// Thread safety: none; the context's lock is taken within.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/context/context.h"
#include "engine/run/message_kind.h"
#include "model/cost.h"
#include "model/measure.h"

namespace weft::job {

using engine::Context;
using engine::MessageKind;
using engine::ScratchPool;

/// Receives the messages of probes. It exists on every rank from before the first probe until after the last
/// one, and serves one peer at a time.
class ProbeInbox final : public engine::MessageHandler {
 public:
  explicit ProbeInbox(Context& context);
  ~ProbeInbox() override;
  ProbeInbox(const ProbeInbox&) = delete;
  ProbeInbox& operator=(const ProbeInbox&) = delete;

  void* place(const transport::Envelope& envelope) override;
  void arrived(int peer, const transport::Envelope& envelope, const void* payload) override;

 private:
  friend class Probe;
  friend class IntraProbe;
  friend class InterProbe;
  Context& context_;
  std::vector<std::byte> landing_;
  transport::RemoteBuffer exposed_;  // the peer's
  std::span<std::byte> own_;         // what this rank exposes, where long puts go
  int peer_ = -1;                    // whose messages count; -1: anybody's
  uint32_t count_ = 0;               // messages so far
  uint32_t phase_ends_ = 0;  // not 0: the last message of a phase has come, or tells how many a stream has
};

/// What the probes of both kinds of link share: two ranks that exchange messages and wait for each other
/// (probe_intra.h, probe_inter.h).
class Probe {
 public:
  /// `comm` is the communicator whose id the messages bear, `peer` the other rank. Fails with Code::timeout
  /// past the deadline.
  Probe(Context& context, ProbeInbox& inbox, uint32_t comm, int peer, Deadline deadline);

  /// Why the leader doubts what it has measured: repeated measurements disagree. "" = it does not.
  const std::string& doubt() const { return doubt_; }

 protected:
  /// How a rank waits.
  enum class Idle : uint8_t { spin, sleep };
  transport::Envelope envelope_of(MessageKind kind, size_t bytes) const;
  Status send(const transport::Envelope& envelope, const void* payload);
  Status send(bool last = false, const void* payload = nullptr, size_t bytes = 0);
  Status swap(const transport::RemoteBuffer& mine);
  Result<bool> decided(bool decision);
  Status meet();
  Result<bool> both(bool mine);
  Status wait(uint32_t messages, Idle idle = Idle::spin);
  /// How long each message of a series took, µs.
  using Row = std::vector<double>;
  /// A message goes to the peer and back, and half of the time counts; or both ranks send at the same time.
  enum class Way : uint8_t { one, both };
  Result<Row> row_us(size_t bytes, int rounds, double seconds, Idle idle, Way way = Way::one);
  Result<double> message_us(size_t bytes, int rounds, double seconds, Way way = Way::one);
  Result<double> overhead_us(int rounds, double seconds);
  Status measure_messages(model::Link* link, int rounds, double seconds);
  /// Memory that the peer can reach. take_back() ends that after a phase without errors. After an error,
  /// messages may still be on their way, and the memory stays exposed.
  class Exposed {
   public:
    enum class In : uint8_t { plain, window };
    Exposed(Probe& probe, size_t bytes, In in = In::plain);
    ~Exposed();
    Exposed(const Exposed&) = delete;
    Exposed& operator=(const Exposed&) = delete;
    /// Null if there is no memory.
    std::byte* data() { return data_; }
    /// Each rank tells the other where its own is.
    Status exchange();
    void take_back();

   private:
    Probe& probe_;
    const size_t bytes_;
    std::vector<std::byte> memory_;  // or window_
    ScratchPool::Block window_;
    std::byte* data_ = nullptr;
    std::optional<transport::RemoteBuffer> buffer_;
  };
  struct Pieces {
    size_t bytes, span_bytes;  // pieces, and the memory through which they go
    int times;
  };

  Context& context_;
  ProbeInbox& inbox_;
  const uint32_t comm_;
  const int peer_;
  const bool leads_;
  transport::Transport& transport_;
  std::shared_ptr<const engine::AccessGate> gate_;  // of a peer of this process
  const bool network_;
  const Deadline deadline_;
  uint32_t taken_ = 0;  // messages that wait() has returned for
  std::string doubt_;
};

}  // namespace weft::job
