// NCCL's ABI for network plugins, versions 8 to 12, as plain declarations: what NCCL looks up with dlsym()
// and calls. Written from the facts of that ABI; no header of NCCL is needed to build. Nothing here does
// anything: plugin.h implements it once, tables.cc makes the tables.
//
// What changed between versions:
// * 9: sizes are size_t; properties have virtual devices, flushes and limits
// * 10: a configuration at connect, and handles for NCCL's profiler
// * 11: a context for every communicator, finalize, attributes
// * 12: more devices in a virtual one; rail and plane
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl/abi.h"

namespace weft::nccl_net::abi {

using Result = nccl::Result_t;
using enum nccl::Result_t;

/// ncclDebugLogLevel, and subsystems, as bits. NCCL drops what has no subsystem in common with its mask
/// (NCCL_DEBUG_SUBSYS; by default initialization, bootstrap and settings), errors too.
enum LogLevel : int { kLogWarn = 2, kLogInfo = 3 };
inline constexpr unsigned long kLogInit = 0x1, kLogNet = 0x10, kLogAll = ~0ul;
using Logger = void (*)(LogLevel level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
using Profiler = Result (*)(void** event, int type, void* parent, int64_t plugin, void* data);

// Where memory lies, as bits: what a device takes, and what a registration is of.
inline constexpr int kHostMemory = 1, kCudaMemory = 2, kDmaBuf = 4;

inline constexpr size_t kHandleBytes = 128;
/// Requests under way on one connection; a sender has so many for every one of a group of receives.
inline constexpr int kMostRequests = 32;
/// What a request's pointer holds on the way into irecv() where NCCL does not need to be told of completion.
inline constexpr uintptr_t kOptionalCompletion = 1;

struct VirtualDevice4 {
  int count;
  int devices[4];
};
struct VirtualDevice8 {
  int count;
  int devices[8];
};
struct Config {
  int traffic_class;
};
/// Only for plugins that offload to the GPU: a place for one, always left alone here.
struct DeviceHandle;

struct PropertiesV8 {
  char* name;
  char* pci_path;  // in /sys, or null
  uint64_t guid;
  int memory;  // bits, as above
  int registrations_are_global;
  int speed;  // Mb/s
  int port;
  float latency;  // us; 0 = not known
  int most_connections;
  int most_receives;  // in a group
  int offload_type;   // 0: none
  int offload_version;
};

struct PropertiesV9 {  // and 10
  char* name;
  char* pci_path;
  uint64_t guid;
  int memory;
  int registrations_are_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int most_connections;
  int most_receives;
  int offload_type;
  int offload_version;
  VirtualDevice4 parts;
  size_t longest_message;
  size_t longest_collective;
};

struct PropertiesV11 {  // not derived from 9: only of one struct does C++ promise how it lies in memory
  char* name;
  char* pci_path;
  uint64_t guid;
  int memory;
  int registrations_are_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int most_connections;
  int most_receives;
  int offload_type;
  int offload_version;
  VirtualDevice4 parts;
  size_t longest_message;
  size_t longest_collective;
  int most_in_multi_request;
};

struct PropertiesV12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int memory;
  int registrations_are_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int most_connections;
  int most_receives;
  int offload_type;
  int offload_version;
  VirtualDevice8 parts;
  size_t longest_message;
  size_t longest_collective;
  int most_in_multi_request;
  int16_t rail;   // -1: not known
  int16_t plane;  // -1: not known
};

// The members of the tables, in the order in which NCCL reads them.

struct NetV8 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV8* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** sender, DeviceHandle** offload);
  Result (*accept)(void* listener, void** receiver, DeviceHandle** offload);
  Result (*register_memory)(void* connection, void* data, size_t bytes, int type, void** memory);
  Result (*register_dma_buf)(void* connection, void* data, size_t bytes, int type, uint64_t offset, int fd,
                             void** memory);
  Result (*deregister_memory)(void* connection, void* memory);
  Result (*send)(void* sender, void* data, int bytes, int tag, void* memory, void** request);
  Result (*receive)(void* receiver, int count, void** data, int* bytes, int* tags, void** memory,
                    void** request);
  Result (*flush)(void* receiver, int count, void** data, int* bytes, void** memory, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_sender)(void* sender);
  Result (*close_receiver)(void* receiver);
  Result (*close_listener)(void* listener);
  Result (*device_memory)(void* connection, void* memory, void** device_memory);
  Result (*receive_consumed)(void* receiver, int count, void* request);
};

struct NetV9 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** sender, DeviceHandle** offload);
  Result (*accept)(void* listener, void** receiver, DeviceHandle** offload);
  Result (*register_memory)(void* connection, void* data, size_t bytes, int type, void** memory);
  Result (*register_dma_buf)(void* connection, void* data, size_t bytes, int type, uint64_t offset, int fd,
                             void** memory);
  Result (*deregister_memory)(void* connection, void* memory);
  Result (*send)(void* sender, void* data, size_t bytes, int tag, void* memory, void** request);
  Result (*receive)(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memory,
                    void** request);
  Result (*flush)(void* receiver, int count, void** data, int* bytes, void** memory, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_sender)(void* sender);
  Result (*close_receiver)(void* receiver);
  Result (*close_listener)(void* listener);
  Result (*device_memory)(void* connection, void* memory, void** device_memory);
  Result (*receive_consumed)(void* receiver, int count, void* request);
  Result (*make_virtual_device)(int* device, VirtualDevice4* parts);
};

struct NetV10 {
  const char* name;
  Result (*init)(Logger logger, Profiler profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, Config* config, void* handle, void** sender, DeviceHandle** offload);
  Result (*accept)(void* listener, void** receiver, DeviceHandle** offload);
  Result (*register_memory)(void* connection, void* data, size_t bytes, int type, void** memory);
  Result (*register_dma_buf)(void* connection, void* data, size_t bytes, int type, uint64_t offset, int fd,
                             void** memory);
  Result (*deregister_memory)(void* connection, void* memory);
  Result (*send)(void* sender, void* data, size_t bytes, int tag, void* memory, void* profile,
                 void** request);
  Result (*receive)(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memory,
                    void** profiles, void** request);
  Result (*flush)(void* receiver, int count, void** data, int* bytes, void** memory, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_sender)(void* sender);
  Result (*close_receiver)(void* receiver);
  Result (*close_listener)(void* listener);
  Result (*device_memory)(void* connection, void* memory, void** device_memory);
  Result (*receive_consumed)(void* receiver, int count, void* request);
  Result (*make_virtual_device)(int* device, VirtualDevice4* parts);
};

/// 11 and 12 differ in their properties and virtual devices only.
template <typename Properties, typename VirtualDevice>
struct NetWithContext {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, Config* config, Logger logger, Profiler profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, Properties* properties);
  Result (*listen)(void* context, int device, void* handle, void** listener);
  Result (*connect)(void* context, int device, void* handle, void** sender, DeviceHandle** offload);
  Result (*accept)(void* listener, void** receiver, DeviceHandle** offload);
  Result (*register_memory)(void* connection, void* data, size_t bytes, int type, void** memory);
  Result (*register_dma_buf)(void* connection, void* data, size_t bytes, int type, uint64_t offset, int fd,
                             void** memory);
  Result (*deregister_memory)(void* connection, void* memory);
  Result (*send)(void* sender, void* data, size_t bytes, int tag, void* memory, void* profile,
                 void** request);
  Result (*receive)(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memory,
                    void** profiles, void** request);
  Result (*flush)(void* receiver, int count, void** data, int* bytes, void** memory, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_sender)(void* sender);
  Result (*close_receiver)(void* receiver);
  Result (*close_listener)(void* listener);
  Result (*device_memory)(void* connection, void* memory, void** device_memory);
  Result (*receive_consumed)(void* receiver, int count, void* request);
  Result (*make_virtual_device)(int* device, VirtualDevice* parts);
  Result (*finalize)(void* context);
  Result (*set_attributes)(void* context, void* attributes);
};
using NetV11 = NetWithContext<PropertiesV11, VirtualDevice4>;
using NetV12 = NetWithContext<PropertiesV12, VirtualDevice8>;

}  // namespace weft::nccl_net::abi
