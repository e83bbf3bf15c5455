// Envelope: what travels beside the payload of a message or put. A transport carries envelopes without
// reading their meaning, which is the engine's.
//
// Thread safety: values.
#pragma once

#include <cstdint>

namespace weft::transport {

struct Envelope {
  uint32_t comm = 0;       // communicator
  uint32_t op = 0;         // number of the operation in the communicator
  uint32_t signature = 0;  // hash of what the sender was asked to do
  uint16_t tag_low = 0;    // tag = tag_high << 16 | tag_low
  uint8_t kind = 0;        // Kind, the engine's
  uint8_t space = 0;       // plan::Space: where the payload goes, or which space is exposed
  uint64_t offset = 0;     // in that space, bytes
  uint32_t bytes = 0;      // of a message's payload; of a put, envelope_bytes()
  uint16_t tag_high = 0;
  uint16_t reserved = 0;  // the transport's own on the network: the engine sends 0 and ignores it on arrival

  uint32_t tag() const { return uint32_t{tag_high} << 16 | tag_low; }
  /// Whether the payload lies within the first `room` bytes of its space.
  bool fits_in(uint64_t room) const { return offset <= room && bytes <= room - offset; }
  void set_tag(uint32_t tag) {
    tag_low = static_cast<uint16_t>(tag), tag_high = static_cast<uint16_t>(tag >> 16);
  }
};
static_assert(sizeof(Envelope) == 32);

/// Envelope::bytes of a put: its size, or 2^32 - 1 for all longer puts.
inline uint32_t envelope_bytes(uint64_t put_bytes) {
  return put_bytes < UINT32_MAX ? static_cast<uint32_t>(put_bytes) : UINT32_MAX;
}

}  // namespace weft::transport
