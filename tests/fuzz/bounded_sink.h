// BoundedSink: the engine's side of a transport for the fuzzers. It has a window for payloads, takes what
// fits there, and throws the rest away.
#pragma once

#include <array>
#include <cstring>

#include "fuzz.h"
#include "transport/message_transport.h"

namespace fuzz {

class BoundedSink final : public weft::transport::Sink {
 public:
  explicit BoundedSink(int ranks) : ranks_(ranks) {}

  void* place(int peer, const weft::transport::Envelope& envelope) override {
    check(peer);
    return envelope.space % 2 == 0 && envelope.fits_in(window_.size()) ? window_.data() + envelope.offset
                                                                       : nullptr;
  }
  void arrived(int peer, const weft::transport::Envelope& envelope, const void* payload) override {
    check(peer);
    if (payload == nullptr) return;
    // All of it must be readable.
    unsigned sum = 0;
    for (size_t i = 0; i < envelope.bytes; ++i) sum += static_cast<const uint8_t*>(payload)[i];
    sum_ = sum;
  }
  bool expects(int, const weft::transport::Envelope& envelope) const override {
    return envelope.kind % 2 == 0;
  }
  void lost(int peer, const weft::Status& why) override {
    check(peer);
    require(!why.ok(), "a loss has a reason");
  }

 private:
  void check(int peer) const { require(peer >= 0 && peer < ranks_, "a message is from a rank of the job"); }

  const int ranks_;
  std::array<std::byte, 4096> window_{};
  volatile unsigned sum_ = 0;
};

}  // namespace fuzz
