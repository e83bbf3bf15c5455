// A network that reaches the fake driver's device memory: libfabric's own providers, between which and the
// library it stands, by functions of its own in the library's table (transport/ofi_library.h). They claim
// FI_HMEM, take registrations of CUDA memory, and hand the host memory behind it to the provider. As a card
// does, a registration holds its pages until it is closed, also those of memory that has been freed
// meanwhile; after that nothing reaches them. What a real network would refuse is refused: a write from
// device memory that its registration does not cover.
//
// What it says nothing of: whether a provider takes these calls with a real device, and ordering.
//
// Thread safety: every function.
#pragma once

#include <cstdint>

namespace weft::testing {

class GpuNetwork {
 public:
  /// How many of the next transports are offered FI_HMEM, and how many registrations of device memory
  /// succeed; none by default, all with FAKE_GPU_NETWORK=1 in the environment, with `files` all that are by
  /// dma-bufs, with 0 transports but no registrations. FAKE_GPU_REGISTRATIONS is a number for the latter.
  /// Both are this process's.
  static void offer(int transports, int registrations = 1 << 30);
  static void offer_nothing();
  /// Registers device memory by dma-bufs alone from now on, as providers do that cannot ask the driver.
  static void take_files_only(bool alone);
  // That aligned 128 bytes are written in order is granted with FAKE_GPU_ORDER=1 in the environment.

  static uint64_t registrations();       // of device memory, so far
  static uint64_t open_registrations();  // of them, not closed
  static uint64_t writes();              // from device memory
};

}  // namespace weft::testing
