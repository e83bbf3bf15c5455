// InterProbe: measures a link between nodes: messages, and a stream of puts. If the stream is limited by
// CPUs, it also measures what each end does for it.
//
// Thread safety: as Probe's.
#pragma once

#include "job/probe.h"

namespace weft::job {

class InterProbe : public Probe {
 public:
  using Probe::Probe;

  /// A stream: the length of its blocks, how many are on their way, and how ranks wait.
  struct Flow {
    size_t block_bytes;
    size_t window;
    Idle idle;
  };

  /// As IntraProbe::measure().
  Status measure(model::Machine* machine);

 private:
  /// The CPUs are idle as often as the network allows.
  static constexpr Flow kSparing{.block_bytes = 256 << 10, .window = 4, .idle = Idle::sleep};
  /// The CPUs are busy.
  static constexpr Flow kBusy{.block_bytes = 512 << 10, .window = 8, .idle = Idle::spin};

  Status measure_burst(model::Link* link);
  Status look() WEFT_REQUIRES(engine::context_lock);
  Result<double> find(uint32_t messages, double arrival_us);
  struct Stream {
    double bytes_per_us = 0;
    double busy = 1;  // the part of the time in which the sender's CPU worked
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
};

}  // namespace weft::job
