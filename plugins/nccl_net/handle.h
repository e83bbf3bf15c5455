// Handle: the 128 bytes by which one side finds the other. listen() writes it, NCCL carries it, connect()
// reads it: where to knock, and the secret that opens. Also the first words that the two sides then exchange.
// Plain memory is the format of both; magic numbers tell hosts of the other byte order, and other versions.
//
// Thread safety: values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "abi.h"
#include "base/status.h"
#include "bootstrap/unique_id.h"
#include "devices.h"

namespace weft::nccl_net {

/// What a handle and a greeting must agree on. Changes with anything that travels.
inline constexpr uint16_t kProtocolVersion = 8;
inline constexpr size_t kFabricAddressBytes = 512;  // OfiTransport's

struct Handle {
  uint32_t magic = 0;
  uint16_t version = 0;
  uint8_t way = 0;  // Way
  uint8_t rails = 0;
  uint16_t port = 0;
  uint16_t reserved = 0;
  uint32_t dialing = 0;   // the connecting side's note of a connection that is being made; 0: none yet
  uint64_t endpoint = 0;  // who listens: one number for all connections of an endpoint
  bootstrap::Secret secret{};
  std::array<std::array<uint8_t, 16>, kMostRails> addresses{};  // IPv6, or IPv4 inside it
  uint64_t checksum = 0;                                        // of all but `dialing`

  bootstrap::SocketAddress address(size_t rail) const;
};
static_assert(sizeof(Handle) == abi::kHandleBytes);

/// By what a connection works, the same on both sides.
struct Terms {
  size_t blind_bytes = 0;    // the longest message to be sent before its receive is known
  size_t landing_bytes = 0;  // for such messages at the receiver, until their receive is posted
};

Handle write_handle(const Device& device, uint16_t port, uint64_t endpoint, const bootstrap::Secret& secret);
/// Errors: invalid_argument for bytes that are no handle, or one that was damaged; mismatch for one of
/// another version of this plugin.
Result<Handle> read_handle(const void* bytes);

/// Opens every socket to a listener.
struct Greeting {
  bootstrap::Secret secret{};
  uint32_t magic = 0;
  uint16_t version = 0;
  uint8_t way = 0;
  uint8_t socket = 0;   // which of the connection's this is
  uint8_t sockets = 0;  // of the connection: one, and over TCP one for each rail
  uint8_t reserved = 0;
  int16_t traffic_class = -1;  // of both sides' packets; -1: as the system has it
  uint32_t connection = 0;     // number of the connection at the greeter's endpoint
  uint64_t dial = 0;           // random: which sockets belong together
  uint64_t endpoint = 0;       // the greeter's
  uint32_t peer_number = 0;    // of the listener, among the peers of the greeter's endpoint
  uint32_t eager_bytes = 0;
  std::array<std::byte, kFabricAddressBytes> fabric_address{};
};

/// The listener's answer, on the first socket alone.
struct Answer {
  bootstrap::Proof proof{};
  uint32_t code = 0;  // 0, or a Code, and then `text` says why
  uint32_t connection = 0;
  uint32_t peer_number = 0;  // of the greeter, among the peers of the listener's endpoint
  uint32_t eager_bytes = 0;
  uint64_t landing_bytes = 0;  // granted to the greeter
  char text[160] = {};
  std::array<std::byte, kFabricAddressBytes> fabric_address{};
};

/// What the two have agreed on.
Terms terms_of(const Greeting& greeting, const Answer& answer);
Greeting greeting_for(const Handle& handle);
/// Errors: mismatch for a greeting of another version, protocol_error for anything else. The secret is
/// compared before.
Status check_greeting(const Greeting& greeting, Way way);
bootstrap::Proof proof_of(const bootstrap::Secret& secret);
uint64_t random_number();

}  // namespace weft::nccl_net
