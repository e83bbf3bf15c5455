// Probe: measures the link between two ranks with the transport that their operations use, and nothing of the
// engine above it. Rank 0 leads and times; its peer follows the same script. Each message is an envelope with
// the number engine::kProbeNumber, which the context's inbox hands to the probe's.
//
// What is measured, in the words of model/cost.h:
//   alpha, overhead   half a round trip of an empty message, of several rows the quickest; what each of a
//                     burst of them adds
//   sending_us        CPU time that a sender takes for a message that goes by itself
//   gathered_us       the same for one of a burst, whose messages share writes
//   behind_us         how long a receiver takes for each once all have come
//   bytes_per_us      what a long message adds in both directions at once, or a stream of puts reaches
//   received_*, *_large_bytes_per_us  what an exchange of puts takes beyond that, in caches and beyond them
//   peer_*            reads of a peer's memory, both ranks reading at once as collectives do: of what is as
//                     it was, like inputs, and of what it has just written (peer_written)
//   mapped_*          slices put into a peer's scratch and taken out of it, in both directions at once
//   nic_bytes_per_us  a stream that leaves the CPU idle is as fast as the network
//   burst_bytes       what a block after a pause takes less than by that rate
//   nic_message_us    what headers take at that rate
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

/// Where probes' messages arrive. Exists on every rank from before the first meeting until after the last
/// one, and counts for one peer at a time.
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
  Context& context_;
  std::vector<std::byte> landing_;
  transport::RemoteBuffer exposed_;  // the peer's
  std::span<std::byte> own_;         // what this rank exposes, where long puts go
  int peer_ = -1;                    // whose messages count; -1: anybody's
  uint32_t count_ = 0;               // messages so far
  uint32_t phase_ends_ = 0;  // if not 0, one ends its phase, of so many in a stream; whoever looks takes it
};

class Probe {
 public:
  /// What a rank does that waits.
  enum class Idle : uint8_t { spin, sleep };
  /// Of a stream: blocks, and how many of them are on their way.
  struct Flow {
    size_t block_bytes;
    size_t window;
    Idle idle;
  };

  /// `comm` is the communicator whose id the messages bear, `peer` the other rank. Fails with Code::timeout
  /// past the deadline.
  Probe(Context& context, ProbeInbox& inbox, uint32_t comm, int peer, Deadline deadline);

  /// Both ranks call the same one. The leader passes the machine to put results in, the peer null. What was
  /// measured before an error is in the machine.
  Status measure_intra(model::Machine* machine);
  Status measure_inter(model::Machine* machine);
  /// Why the leader does not believe what it has measured: rows of the same messages disagreed. "" = it does.
  const std::string& doubt() const { return doubt_; }

 private:
  // Messages: probe.cc.
  transport::Envelope envelope_of(MessageKind kind, size_t bytes) const;
  Status send(const transport::Envelope& envelope, const void* payload);
  Status send(bool last = false, const void* payload = nullptr, size_t bytes = 0);
  Status swap(const transport::RemoteBuffer& mine);
  Result<bool> decided(bool decision);
  Status meet();
  Result<bool> both(bool mine);
  Status wait(uint32_t messages, Idle idle = Idle::spin);
  /// How long a message took, for each of them.
  using Row = std::vector<double>;
  /// There and back again, of which one way counts, or in both directions at once.
  enum class Way : uint8_t { one, both };
  Result<Row> row_us(size_t bytes, int rounds, double seconds, Idle idle, Way way = Way::one);
  Result<double> message_us(size_t bytes, int rounds, double seconds, Way way = Way::one);
  Result<double> overhead_us(int rounds, double seconds);
  Status measure_messages(model::Link* link, int rounds, double seconds);
  /// Memory that the peer can reach. take_back() after a phase that has gone well; after another nobody knows
  /// what is still on its way to it or from it, and it stays as it is.
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
    std::vector<std::byte> memory_;  // one of the two
    ScratchPool::Block window_;
    std::byte* data_ = nullptr;
    std::optional<transport::RemoteBuffer> buffer_;
  };
  struct Pieces {
    size_t bytes, span_bytes;  // they follow each other in so much memory
    int times;
  };

  // Inside a node: probe_intra.cc.
  struct Reads {
    size_t bytes = 0;
    int times = 0;
    size_t span_bytes = 0;     // if not 0: pieces that follow each other in so much, instead of one piece
    std::byte* own = nullptr;  // if not null: what each rank writes before every read, which counts, too
  };
  Result<double> read_us(std::byte* into, const Reads& reads);
  Status measure_reads(model::Memory* memory);
  Result<double> hand_over_us(std::byte* window, std::byte* theirs, const Pieces& pieces);
  Status measure_slices(std::byte* window, std::byte* theirs, model::Memory* memory);
  Status measure_mapped(model::Memory* memory);

  // Between nodes: probe_inter.cc.
  Status measure_burst(model::Link* link);
  Status look() WEFT_REQUIRES(engine::context_lock);
  Result<double> find(uint32_t messages, double arrival_us);
  struct Stream {
    double bytes_per_us = 0;
    double busy = 1;  // the share of its time in which the sender's CPU worked for it
  };
  using Puts = std::vector<std::unique_ptr<transport::Completion>>;
  Status put(transport::Envelope envelope, const std::byte* from, size_t to, Puts* puts);
  void forget(const Puts& puts);
  Status wait_for_departure(const Puts& puts);
  Result<Stream> send_stream(std::byte* memory, const Flow& flow);
  Status receive_stream(Idle idle);
  Result<Stream> stream(std::byte* memory, const Flow& flow);
  Status put_and_wait(const transport::Envelope& envelope, const std::byte* from, size_t to);
  Result<double> burst_bytes(std::byte* memory, double bytes_per_us, double one_way_us);
  Result<double> exchange_us(std::byte* memory, const Pieces& pieces);
  Status measure_ends(model::Link* link);

  Context& context_;
  ProbeInbox& inbox_;
  const uint32_t comm_;
  const int peer_;
  const bool leads_;
  transport::Transport& transport_;
  std::shared_ptr<const engine::AccessGate> gate_;  // of a peer of this process
  const bool network_;
  const Deadline deadline_;
  uint32_t taken_ = 0;  // messages that wait() has answered for
  std::string doubt_;
};

}  // namespace weft::job
