#include "handle.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "bootstrap/sha256.h"
#include "wire.h"

namespace weft::nccl_net {
namespace {

constexpr uint32_t kMagic = 0x57664e48;          // "WfNH"
constexpr uint32_t kGreetingMagic = 0x57664e47;  // "WfNG"

uint64_t checksum(Handle handle) {
  handle.dialing = 0;
  handle.checksum = 0;
  const auto digest = bootstrap::sha256("weft nccl_net handle", std::as_bytes(std::span(&handle, 1)));
  uint64_t sum = 0;
  std::memcpy(&sum, digest.data(), sizeof sum);
  return sum;
}

std::array<uint8_t, 16> address_bytes(const bootstrap::SocketAddress& address) {
  std::array<uint8_t, 16> bytes{};
  if (address.family() == AF_INET6) {
    std::memcpy(bytes.data(), &address.as_v6().sin6_addr, bytes.size());
  } else {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &address.as_v4().sin_addr, 4);
  }
  return bytes;
}

}  // namespace

bootstrap::SocketAddress Handle::address(size_t rail) const {
  in6_addr six;
  std::memcpy(&six, addresses[rail].data(), sizeof six);
  if (!IN6_IS_ADDR_V4MAPPED(&six)) return bootstrap::SocketAddress::v6(six, port);
  in_addr four;
  std::memcpy(&four, addresses[rail].data() + 12, sizeof four);
  return bootstrap::SocketAddress::v4(four, port);
}

Handle write_handle(const Device& device, uint16_t port, uint64_t endpoint, const bootstrap::Secret& secret) {
  Handle handle;
  handle.magic = kMagic;
  handle.version = kProtocolVersion;
  handle.way = static_cast<uint8_t>(device.way);
  handle.rails = static_cast<uint8_t>(device.addresses.size());
  handle.port = port;
  handle.endpoint = endpoint;
  handle.secret = secret;
  for (size_t rail = 0; rail < device.addresses.size(); ++rail)
    handle.addresses[rail] = address_bytes(device.addresses[rail]);
  handle.checksum = checksum(handle);
  return handle;
}

Result<Handle> read_handle(const void* bytes) {
  Handle handle;
  std::memcpy(&handle, bytes, sizeof handle);
  if (handle.magic != kMagic)
    return fail(
        Code::invalid_argument,
        "the handle to connect to was not written by this plugin: do all ranks use it, on hosts of one "
        "byte order?");
  if (handle.version != kProtocolVersion)
    return fail(Code::mismatch,
                "the handle to connect to is of version {} of this plugin's protocol, must be {}: use one "
                "version of libnccl-net-weft.so on all ranks",
                handle.version, kProtocolVersion);
  if (handle.checksum != checksum(handle) || handle.rails < 1 || handle.rails > kMostRails)
    return fail(Code::invalid_argument, "the handle to connect to is damaged: its checksum is wrong");
  return handle;
}

Greeting greeting_for(const Handle& handle) {
  Greeting greeting;
  greeting.secret = handle.secret;
  greeting.magic = kGreetingMagic;
  greeting.version = kProtocolVersion;
  greeting.way = handle.way;
  return greeting;
}

Terms terms_of(const Greeting& greeting, const Answer& answer) {
  const size_t landing = answer.landing_bytes;
  return {std::min({size_t{greeting.eager_bytes}, size_t{answer.eager_bytes}, landing / kMessagesInGrant}),
          landing};
}

Status check_greeting(const Greeting& greeting, Way way) {
  if (greeting.magic != kGreetingMagic || greeting.sockets < 1 || greeting.sockets > 1 + kMostRails ||
      greeting.socket >= greeting.sockets)
    return fail(Code::protocol_error, "a peer that knows the secret sent no greeting of this plugin");
  if (greeting.version != kProtocolVersion)
    return fail(Code::mismatch, "a peer speaks version {} of this plugin's protocol, must be {}",
                greeting.version, kProtocolVersion);
  if (greeting.way != static_cast<uint8_t>(way))
    return fail(Code::mismatch, "one side uses libfabric, the other sockets: set WEFT_NET alike everywhere");
  return {};
}

bootstrap::Proof proof_of(const bootstrap::Secret& secret) {
  const bootstrap::Digest digest = bootstrap::sha256("weft nccl_net proof", secret);
  bootstrap::Proof proof;
  std::copy_n(digest.begin(), proof.size(), proof.begin());
  return proof;
}

uint64_t random_number() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace weft::nccl_net
