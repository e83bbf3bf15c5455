// The symbols that NCCL looks for: a table of functions for each version of the ABI, all over plugin.h.
#include <algorithm>
#include <array>

#include "plugin.h"

namespace weft::nccl_net {
namespace {

using abi::Result;

char* c_string(const std::string& text) { return const_cast<char*>(text.c_str()); }

/// What every version's properties have.
template <typename T>
void fill_common(const plugin::Properties& from, T* to) {
  *to = T{};
  to->name = c_string(from.device->name);
  to->pci_path = from.device->pci_path.empty() ? nullptr : c_string(from.device->pci_path);
  to->guid = from.device->guid;
  to->memory = from.memory;
  to->registrations_are_global = (from.memory & abi::kCudaMemory) != 0;
  to->speed = from.device->megabit_per_s;
  to->port = from.port;
  to->most_connections = from.most_connections;
  to->most_receives = kMostReceives;
}

/// What version 9 added.
template <typename T>
void fill_parts(const plugin::Properties& from, T* to) {
  to->parts.count = static_cast<int>(from.device->parts.size());
  std::copy(from.device->parts.begin(), from.device->parts.end(), to->parts.devices);
  to->longest_message = to->longest_collective = kLongestMessage;
  to->force_flush = from.needs_flush;
}

template <typename T>
Result get_properties(int device, T* into) {
  plugin::Properties properties{};
  const Result result = plugin::properties(device, &properties);
  if (result != abi::kSuccess) return result;
  fill_common(properties, into);
  if constexpr (requires { into->parts; }) fill_parts(properties, into);
  if constexpr (requires { into->most_in_multi_request; }) into->most_in_multi_request = 1;
  if constexpr (requires { into->rail; })
    into->rail = into->plane = -1;  // how NICs are wired is not known here
  return result;
}

template <typename T>
Result make_virtual_device(int* device, T* parts) {
  static_assert(kMostRails <= std::size(T{}.devices));  // of more, none is read
  return plugin::make_virtual_device(device, parts->devices, parts->count);
}

constexpr int kNoTrafficClass = -1;

int traffic_class_of(const abi::Config* config) { return config ? config->traffic_class : kNoTrafficClass; }

// ---- Without a context: 8, 9, 10

Result init_8(abi::Logger logger) { return plugin::init(logger); }
Result init_10(abi::Logger logger, abi::Profiler) { return plugin::init(logger); }
Result listen_8(int device, void* handle, void** listener) {
  return plugin::listen(plugin::process_context(), device, handle, listener);
}
Result connect_8(int device, void* handle, void** sender, abi::DeviceHandle**) {
  return plugin::connect(plugin::process_context(), device, handle, kNoTrafficClass, sender);
}
Result connect_10(int device, abi::Config* config, void* handle, void** sender, abi::DeviceHandle**) {
  return plugin::connect(plugin::process_context(), device, handle, traffic_class_of(config), sender);
}

// ---- With one: 11, 12

Result init_11(void** context, uint64_t, abi::Config* config, abi::Logger logger, abi::Profiler) {
  return plugin::init_context(context, traffic_class_of(config), logger);
}
Context& context_of(void* context) {
  return context ? *static_cast<Context*>(context) : plugin::process_context();
}
Result listen_11(void* context, int device, void* handle, void** listener) {
  return plugin::listen(context_of(context), device, handle, listener);
}
Result connect_11(void* context, int device, void* handle, void** sender, abi::DeviceHandle**) {
  Context& own = context_of(context);
  return plugin::connect(own, device, handle, own.traffic_class(), sender);
}

// ---- Alike in all, or nearly

Result accept(void* listener, void** receiver, abi::DeviceHandle**) {
  return plugin::accept(listener, receiver);
}
Result flush(void* receiver, int count, void** data, int* bytes, void** memory, void** request) {
  return plugin::flush(receiver, count, data, bytes, memory, request);
}

Result send_8(void* sender, void* data, int bytes, int tag, void* memory, void** request) {
  return plugin::send(sender, data, bytes < 0 ? SIZE_MAX : static_cast<size_t>(bytes), tag, memory, request);
}
Result send_9(void* sender, void* data, size_t bytes, int tag, void* memory, void** request) {
  return plugin::send(sender, data, bytes, tag, memory, request);
}
Result send_10(void* sender, void* data, size_t bytes, int tag, void* memory, void*, void** request) {
  return plugin::send(sender, data, bytes, tag, memory, request);
}

Result receive_8(void* receiver, int count, void** data, int* bytes, int* tags, void** memory,
                 void** request) {
  std::array<size_t, kMostReceives> wide{};
  for (int i = 0; i < std::min(count, kMostReceives); ++i)
    wide[static_cast<size_t>(i)] = bytes[i] < 0 ? SIZE_MAX : static_cast<size_t>(bytes[i]);
  return plugin::receive(receiver, count, data, wide.data(), tags, memory, request);
}
Result receive_9(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memory,
                 void** request) {
  return plugin::receive(receiver, count, data, bytes, tags, memory, request);
}
Result receive_10(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memory, void**,
                  void** request) {
  return plugin::receive(receiver, count, data, bytes, tags, memory, request);
}

/// The members whose types no version changed.
template <typename Table>
constexpr Table with_common(Table table) {
  table.name = plugin::kName;
  table.devices = plugin::devices;
  table.accept = accept;
  table.register_memory = plugin::register_memory;
  table.register_dma_buf = plugin::register_dma_buf;
  table.deregister_memory = plugin::deregister_memory;
  table.flush = flush;
  table.test = plugin::test;
  table.close_sender = plugin::close_sender;
  table.close_receiver = plugin::close_receiver;
  table.close_listener = plugin::close_listener;
  return table;
}

constexpr abi::NetV8 table_8() {
  abi::NetV8 table{};
  table.init = init_8;
  table.get_properties = get_properties<abi::PropertiesV8>;
  table.listen = listen_8;
  table.connect = connect_8;
  table.send = send_8;
  table.receive = receive_8;
  return with_common(table);
}

constexpr abi::NetV9 table_9() {
  abi::NetV9 table{};
  table.init = init_8;
  table.get_properties = get_properties<abi::PropertiesV9>;
  table.listen = listen_8;
  table.connect = connect_8;
  table.send = send_9;
  table.receive = receive_9;
  table.make_virtual_device = make_virtual_device<abi::VirtualDevice4>;
  return with_common(table);
}

constexpr abi::NetV10 table_10() {
  abi::NetV10 table{};
  table.init = init_10;
  table.get_properties = get_properties<abi::PropertiesV9>;
  table.listen = listen_8;
  table.connect = connect_10;
  table.send = send_10;
  table.receive = receive_10;
  table.make_virtual_device = make_virtual_device<abi::VirtualDevice4>;
  return with_common(table);
}

template <typename Properties, typename VirtualDevice>
constexpr abi::NetWithContext<Properties, VirtualDevice> table_11() {
  abi::NetWithContext<Properties, VirtualDevice> table{};
  table.init = init_11;
  table.get_properties = get_properties<Properties>;
  table.listen = listen_11;
  table.connect = connect_11;
  table.send = send_10;
  table.receive = receive_10;
  table.make_virtual_device = make_virtual_device<VirtualDevice>;
  table.finalize = plugin::finalize_context;
  return with_common(table);
}

}  // namespace
}  // namespace weft::nccl_net

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT const weft::nccl_net::abi::NetV8 ncclNetPlugin_v8;
WEFT_EXPORT const weft::nccl_net::abi::NetV9 ncclNetPlugin_v9;
WEFT_EXPORT const weft::nccl_net::abi::NetV10 ncclNetPlugin_v10;
WEFT_EXPORT const weft::nccl_net::abi::NetV11 ncclNetPlugin_v11;
WEFT_EXPORT const weft::nccl_net::abi::NetV12 ncclNetPlugin_v12;

constexpr weft::nccl_net::abi::NetV8 ncclNetPlugin_v8 = weft::nccl_net::table_8();
constexpr weft::nccl_net::abi::NetV9 ncclNetPlugin_v9 = weft::nccl_net::table_9();
constexpr weft::nccl_net::abi::NetV10 ncclNetPlugin_v10 = weft::nccl_net::table_10();
constexpr weft::nccl_net::abi::NetV11 ncclNetPlugin_v11 =
    weft::nccl_net::table_11<weft::nccl_net::abi::PropertiesV11, weft::nccl_net::abi::VirtualDevice4>();
constexpr weft::nccl_net::abi::NetV12 ncclNetPlugin_v12 =
    weft::nccl_net::table_11<weft::nccl_net::abi::PropertiesV12, weft::nccl_net::abi::VirtualDevice8>();
