// A libfabric transport over TCP for the fuzzers: libfabric opens once, and every run begins with peers that
// nobody has heard.
#pragma once

#include "transport/ofi.h"

namespace fuzz {

inline constexpr int kOfiRanks = 3;

/// Rank 0; null where there is no libfabric.
inline weft::transport::OfiTransport* opened_ofi() {
  using weft::transport::OfiTransport;
  static const std::unique_ptr<OfiTransport> transport = [] {
    OfiTransport::Options options;
    options.provider = "tcp";
    options.careful = true;
    auto made = OfiTransport::create(0, kOfiRanks, options);
    return made.ok() ? made.take() : nullptr;
  }();
  if (transport == nullptr) return nullptr;
  for (int peer = 0; peer < kOfiRanks; ++peer) transport->peers_[peer] = {};
  transport->incoming_.due_.clear();
  (void)transport->peers_.take_losses();
  return transport.get();
}

}  // namespace fuzz
