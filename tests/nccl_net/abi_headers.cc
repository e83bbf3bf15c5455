// Weft's declarations of NCCL's ABI for network plugins beside NCCL's own, where its sources are at hand: the
// place and kind of every member, and the parameters of every function. Compiled, never run
// (NCCL_NET_HEADERS).
#include <net.h>

#include <cstddef>
#include <type_traits>

#include "../../plugins/nccl_net/abi.h"

namespace {

namespace ours = weft::nccl_net::abi;

/// The same for a caller: pointers for pointers, and numbers of the same size and kind.
template <typename A, typename B>
struct Alike {
  static constexpr bool number = std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
                                 !std::is_pointer_v<A> && !std::is_pointer_v<B>;
  static constexpr bool value =
      sizeof(A) == sizeof(B) && (number || (std::is_pointer_v<A> && std::is_pointer_v<B>));
};
template <>
struct Alike<void, void> : std::true_type {};
template <typename A, typename B, typename... As, typename... Bs>
struct Alike<A (*)(As...), B (*)(Bs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(As) == sizeof...(Bs)) return Alike<A, B>::value && (Alike<As, Bs>::value && ...);
    else return false;
  }();
};
template <typename A, typename B, typename... As, typename... Bs>
struct Alike<A (*)(As..., ...), B (*)(Bs..., ...)> : Alike<A (*)(As...), B (*)(Bs...)> {};

#define SAME(theirs, member, own, ours_member)                                                       \
  static_assert(offsetof(theirs, member) == offsetof(ours::own, ours_member), #theirs "::" #member); \
  static_assert(Alike<decltype(theirs::member), decltype(ours::own::ours_member)>::value,            \
                #theirs "::" #member)
#define SAME_SIZE(theirs, own) static_assert(sizeof(theirs) == sizeof(ours::own), #theirs)

#define SAME_PROPERTIES(theirs, own)                        \
  SAME_SIZE(theirs, own);                                   \
  SAME(theirs, name, own, name);                            \
  SAME(theirs, pciPath, own, pci_path);                     \
  SAME(theirs, guid, own, guid);                            \
  SAME(theirs, ptrSupport, own, memory);                    \
  SAME(theirs, regIsGlobal, own, registrations_are_global); \
  SAME(theirs, speed, own, speed);                          \
  SAME(theirs, port, own, port);                            \
  SAME(theirs, latency, own, latency);                      \
  SAME(theirs, maxComms, own, most_connections);            \
  SAME(theirs, maxRecvs, own, most_receives);               \
  SAME(theirs, netDeviceType, own, offload_type);           \
  SAME(theirs, netDeviceVersion, own, offload_version)
#define SAME_PARTS(theirs, own)                                      \
  SAME(theirs, forceFlush, own, force_flush);                        \
  SAME(theirs, vProps.ndevs, own, parts.count);                      \
  SAME(theirs, vProps.devs, own, parts.devices);                     \
  static_assert(sizeof(theirs::vProps) == sizeof(ours::own::parts)); \
  SAME(theirs, maxP2pBytes, own, longest_message);                   \
  SAME(theirs, maxCollBytes, own, longest_collective)

SAME_PROPERTIES(ncclNetProperties_v8_t, PropertiesV8);
SAME_PROPERTIES(ncclNetProperties_v9_t, PropertiesV9);
SAME_PARTS(ncclNetProperties_v9_t, PropertiesV9);
SAME_PROPERTIES(ncclNetProperties_v10_t, PropertiesV9);
SAME_PARTS(ncclNetProperties_v10_t, PropertiesV9);
SAME_PROPERTIES(ncclNetProperties_v11_t, PropertiesV11);
SAME_PARTS(ncclNetProperties_v11_t, PropertiesV11);
SAME(ncclNetProperties_v11_t, maxMultiRequestSize, PropertiesV11, most_in_multi_request);
SAME_PROPERTIES(ncclNetProperties_v12_t, PropertiesV12);
SAME_PARTS(ncclNetProperties_v12_t, PropertiesV12);
SAME(ncclNetProperties_v12_t, maxMultiRequestSize, PropertiesV12, most_in_multi_request);
SAME(ncclNetProperties_v12_t, railId, PropertiesV12, rail);
SAME(ncclNetProperties_v12_t, planeId, PropertiesV12, plane);

#define SAME_TABLE(theirs, own)                     \
  SAME_SIZE(theirs, own);                           \
  SAME(theirs, name, own, name);                    \
  SAME(theirs, init, own, init);                    \
  SAME(theirs, devices, own, devices);              \
  SAME(theirs, getProperties, own, get_properties); \
  SAME(theirs, listen, own, listen);                \
  SAME(theirs, connect, own, connect);              \
  SAME(theirs, accept, own, accept);                \
  SAME(theirs, regMr, own, register_memory);        \
  SAME(theirs, regMrDmaBuf, own, register_dma_buf); \
  SAME(theirs, deregMr, own, deregister_memory);    \
  SAME(theirs, isend, own, send);                   \
  SAME(theirs, irecv, own, receive);                \
  SAME(theirs, iflush, own, flush);                 \
  SAME(theirs, test, own, test);                    \
  SAME(theirs, closeSend, own, close_sender);       \
  SAME(theirs, closeRecv, own, close_receiver);     \
  SAME(theirs, closeListen, own, close_listener);   \
  SAME(theirs, getDeviceMr, own, device_memory);    \
  SAME(theirs, irecvConsumed, own, receive_consumed)
#define SAME_CONTEXTS(theirs, own)       \
  SAME(theirs, finalize, own, finalize); \
  SAME(theirs, setNetAttr, own, set_attributes)

SAME_TABLE(ncclNet_v8_t, NetV8);
SAME_TABLE(ncclNet_v9_t, NetV9);
SAME(ncclNet_v9_t, makeVDevice, NetV9, make_virtual_device);
SAME_TABLE(ncclNet_v10_t, NetV10);
SAME(ncclNet_v10_t, makeVDevice, NetV10, make_virtual_device);
SAME_TABLE(ncclNet_v11_t, NetV11);
SAME(ncclNet_v11_t, makeVDevice, NetV11, make_virtual_device);
SAME_CONTEXTS(ncclNet_v11_t, NetV11);
SAME_TABLE(ncclNet_v12_t, NetV12);
SAME(ncclNet_v12_t, makeVDevice, NetV12, make_virtual_device);
SAME_CONTEXTS(ncclNet_v12_t, NetV12);

SAME_SIZE(ncclNetCommConfig_v10_t, Config);
SAME_SIZE(ncclNetCommConfig_v12_t, Config);
static_assert(Alike<ncclDebugLogger_t, ours::Logger>::value);
static_assert(Alike<ncclProfilerCallback_t, ours::Profiler>::value);
static_assert(NCCL_NET_HANDLE_MAXSIZE == ours::kHandleBytes && NCCL_NET_MAX_REQUESTS == ours::kMostRequests);
static_assert(NCCL_NET_OPTIONAL_RECV_COMPLETION == ours::kOptionalCompletion);
static_assert(NCCL_PTR_HOST == ours::kHostMemory && NCCL_PTR_CUDA == ours::kCudaMemory &&
              NCCL_PTR_DMABUF == ours::kDmaBuf);
static_assert(NCCL_NET_DEVICE_HOST == 0);
static_assert(int{NCCL_LOG_WARN} == int{ours::kLogWarn} && int{NCCL_LOG_INFO} == int{ours::kLogInfo} &&
              NCCL_NET == ours::kLogNet);
static_assert(int{ncclSuccess} == int{ours::kSuccess} && int{ncclSystemError} == int{ours::kSystemError} &&
              int{ncclInternalError} == int{ours::kInternalError} &&
              int{ncclInvalidArgument} == int{ours::kInvalidArgument} &&
              int{ncclInvalidUsage} == int{ours::kInvalidUsage} &&
              int{ncclRemoteError} == int{ours::kRemoteError});

}  // namespace
