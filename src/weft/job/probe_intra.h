// IntraProbe: measures a link inside a node: messages through shared memory, reads of a peer's memory, and
// pieces that go through mapped memory.
//
// Thread safety: as Probe's.
#pragma once

#include "job/probe.h"

namespace weft::job {

class IntraProbe : public Probe {
 public:
  using Probe::Probe;

  /// Both ranks call it. The leader passes the machine to put results in, the peer null. What was measured
  /// before an error is in the machine.
  Status measure(model::Machine* machine);

 private:
  struct Reads {
    size_t bytes = 0;
    int times = 0;
    size_t span_bytes = 0;     // not 0: successive pieces of so much memory, instead of one
    std::byte* own = nullptr;  // not null: each rank first writes this; that time counts, too
  };
  Result<double> read_us(std::byte* into, const Reads& reads);
  Status measure_reads(model::Memory* memory);
  Result<double> hand_over_us(std::byte* window, std::byte* theirs, const Pieces& pieces);
  Status measure_slices(std::byte* window, std::byte* theirs, model::Memory* memory);
  Status measure_mapped(model::Memory* memory);
};

}  // namespace weft::job
