// The plugin's functions as NCCL means them, once for all versions of the ABI: arguments are checked, C++ is
// called, errors become sentences and codes, and no exception gets out. tables.cc puts them into tables.
//
// Thread safety: NCCL's rules. Connections are made, registered with and closed by one thread; sends,
// receives and tests of them come from another; different connections are used by any threads at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi.h"
#include "context.h"

namespace weft::nccl_net::plugin {

inline constexpr char kName[] = "Weft";

/// The process's context, for versions of the ABI that know none.
Context& process_context();

/// Finds devices. Fails where there are none or a setting is wrong.
abi::Result init(abi::Logger logger);
/// The same, and a context for one communicator, whose packets have a traffic class, or a negative number.
abi::Result init_context(void** context, int traffic_class, abi::Logger logger);
abi::Result finalize_context(void* context);

abi::Result devices(int* count);
/// What can be said of a device; any version's properties are filled from it.
struct Properties {
  const Device* device;
  int memory;  // bits, as in abi.h
  bool needs_flush;
  int port;
  int most_connections;
};
abi::Result properties(int device, Properties* properties);
abi::Result make_virtual_device(int* device, const int* parts, int count);

abi::Result listen(Context& context, int device, void* handle, void** listener);
abi::Result connect(Context& context, int device, void* handle, int traffic_class, void** sender);
abi::Result accept(void* listener, void** receiver);
abi::Result close_sender(void* sender);
abi::Result close_receiver(void* receiver);
abi::Result close_listener(void* listener);

abi::Result register_memory(void* connection, void* data, size_t bytes, int type, void** memory);
abi::Result register_dma_buf(void* connection, void* data, size_t bytes, int type, uint64_t offset, int fd,
                             void** memory);
abi::Result deregister_memory(void* connection, void* memory);

abi::Result send(void* sender, const void* data, size_t bytes, int tag, void* memory, void** request);
abi::Result receive(void* receiver, int count, void* const* data, const size_t* bytes, const int* tags,
                    void* const* memory, void** request);
/// Over when it returns, which a null request says.
abi::Result flush(void* receiver, int count, void* const* data, const int* bytes, void* const* memory,
                  void** request);
abi::Result test(void* request, int* done, int* bytes);

}  // namespace weft::nccl_net::plugin
