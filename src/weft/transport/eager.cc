#include "transport/eager.h"

#include <iterator>

#include "transport/ofi_protocol.h"

namespace weft::transport {
namespace {

constexpr const char* kNames[] = {"tcp", "efa", "ofi"};

constexpr size_t kShmBytes = 16 << 10, kTcpBytes = 64 << 10;
// Over libfabric a message and its header share a buffer.
constexpr size_t kEfaBytes = (8 << 10) - sizeof(ofi::Header), kOfiBytes = (16 << 10) - sizeof(ofi::Header);

}  // namespace

const char* name_of(Net net) { return kNames[static_cast<size_t>(net)]; }

std::optional<Net> find_net(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Net>(i);
  return std::nullopt;
}

Net net_of_provider(std::string_view provider) { return provider == "efa" ? Net::efa : Net::ofi; }

size_t shm_eager_bytes(size_t asked) { return asked > 0 ? asked : kShmBytes; }

size_t net_eager_bytes(Net net, size_t asked) {
  if (asked > 0) return asked;
  switch (net) {
    case Net::tcp: return kTcpBytes;
    case Net::efa: return kEfaBytes;
    case Net::ofi: break;
  }
  return kOfiBytes;
}

}  // namespace weft::transport
