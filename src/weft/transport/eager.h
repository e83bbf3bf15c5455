// The eager limits: how long a message each transport sends without asking its receiver first where it should
// go. Only this file has the numbers. The transports take them from here. weft_sim and weft_info
// --explain take them, too: they plan for machines on which no transport is open.
//
// Thread safety: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft::transport {

/// The network that carries messages between nodes. Inside a node shared memory does.
enum class Net : uint8_t {
  tcp,
  efa,  // libfabric's provider of that name
  ofi,  // any other provider of libfabric's
};
const char* name_of(Net net);  // "tcp", …
std::optional<Net> find_net(std::string_view name);
/// By libfabric's name of the provider.
Net net_of_provider(std::string_view provider);

/// Payload of the longest message. `asked`: the user's setting (WEFT_EAGER_INTRA_BYTES,
/// WEFT_EAGER_INTER_BYTES); 0: the transport's choice. A libfabric provider with shorter messages takes less,
/// which shows when it is opened.
size_t shm_eager_bytes(size_t asked = 0);
size_t net_eager_bytes(Net net, size_t asked = 0);

}  // namespace weft::transport
