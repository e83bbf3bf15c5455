// NCCL's C ABI as of 2.32.3, as plain declarations: what a libnccl.so.2 exports, and how its arguments lie in
// memory. Written from the facts of that ABI; no header of NCCL is needed to build. Nothing here does
// anything: library.h fills a table of these functions from an NCCL that is found at run time, and
// plugins/nccl_shim defines them.
//
// Opaque things stay void pointers where a type of our own would say no more. Enumerations are int, as in the
// ABI of C.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace weft::nccl {

/// ncclResult_t.
enum Result_t : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,  // 2.30
};

/// ncclComm_t, ncclWindow_t, cudaStream_t.
using Comm_t = struct CommOfNccl*;
using Window_t = struct WindowOfNccl*;
using Stream_t = void*;
/// ncclParamHandle_t.
using Param_t = struct ParamOfNccl*;

struct UniqueId {
  char internal[128];
};

/// What the shim's ncclGetVersion says: the newest version all of whose functions the shim exports. Each
/// works on Weft's communicators or is an error that says what they lack (docs/reference/nccl-shim.md lists
/// those).
inline constexpr int kMajor = 2, kMinor = 32, kPatch = 3;
/// ncclGetVersion's way to put a version into one integer, since 2.9.
inline constexpr int kVersionCode = kMajor * 10000 + kMinor * 100 + kPatch;

inline constexpr int kUndefined = INT_MIN;  // a member of a configuration that was left alone
inline constexpr int kNoColor = -1;
inline constexpr unsigned kConfigMagic = 0xcafebeefu, kSimInfoMagic = 0x74685283u;

/// ncclConfig_t. It has grown at its end from version to version: `size` says how much of it is there.
struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net_name;
  int split_share;
  int traffic_class;  // 2.26
  const char* comm_name;
  int collnet_enable;
  int cta_policy;
  int shrink_share;
  int nvls_ctas;
  int channels_per_net_peer;  // 2.28
  int nvlink_centric_sched;
  int graph_usage_mode;  // 2.29
  int rma_contexts;
  int max_p2p_peers;  // 2.30
  int graph_stream_ordering;
  int launch_order_implicit;  // 2.31
  int rma_signals;
  int rma_eager_init;
  int host_cft_mode;
  int nvls_host_mode;  // 2.32
};

/// ncclCollConfig_t: a configuration of one call. It grows at its end as a communicator's does.
struct CollConfig {
  size_t size;
  unsigned magic;  // a communicator's
  unsigned version;
  void* extensions;
  int min_ctas;
  int max_ctas;
  int nvls_ctas;
  int cga_cluster_size;
  const char* algorithms;
  int force_algorithms;
  int cta_policy;
  uint64_t profiler_tag;
  void* launch_completion_event;  // 2.32
};

/// ncclEncryptionConfig_t.
struct EncryptionConfig {
  size_t size;
  unsigned magic;  // a communicator's
  unsigned version;
  int mode;
  const char* key;
};
inline constexpr int kNoEncryption = 0;

/// What ncclCommWindowRegister's flags may hold.
inline constexpr int kWindowSymmetric = 1, kWindowStrictOrdering = 2;

struct SimInfo {
  size_t size;
  unsigned magic;
  unsigned version;
  float estimated_time;  // us
};

/// ncclTeam_t: ranks of a communicator at equal distances.
struct Team {
  int ranks, rank, stride;
};

/// ncclMultimemHandle_t.
struct MultimemHandle {
  void* base;
};

/// ncclCommProperties_t. It grows at its end as a configuration does.
struct CommProperties {
  size_t size;
  unsigned magic;  // a configuration's
  unsigned version;
  int rank;
  int ranks;
  int cuda_device;
  int nvml_device;
  bool device_api;
  bool multimem;
  int gin_type;
  int lsa_teams;  // 2.29.7
};

// Every function of nccl.h, and of nccl_device.h, once, in a list of its own for each version after 2.28.9:
// F(name without its prefix, what it returns, parameters). The one list from which the table, the loader and
// the comparison of symbols are made.
#define WEFT_NCCL_HOST_FUNCTIONS(F)                                                    \
  F(GetVersion, Result_t, (int*))                                                      \
  F(GetErrorString, const char*, (int))                                                \
  F(GetLastError, const char*, (Comm_t))                                               \
  F(ResetDebugInit, void, ())                                                          \
  F(GetUniqueId, Result_t, (UniqueId*))                                                \
  F(CommInitRank, Result_t, (Comm_t*, int, UniqueId, int))                             \
  F(CommInitRankConfig, Result_t, (Comm_t*, int, UniqueId, int, Config*))              \
  F(CommInitRankScalable, Result_t, (Comm_t*, int, int, int, UniqueId*, Config*))      \
  F(CommInitAll, Result_t, (Comm_t*, int, const int*))                                 \
  F(CommSplit, Result_t, (Comm_t, int, int, Comm_t*, Config*))                         \
  F(CommShrink, Result_t, (Comm_t, int*, int, Comm_t*, Config*, int))                  \
  F(CommFinalize, Result_t, (Comm_t))                                                  \
  F(CommDestroy, Result_t, (Comm_t))                                                   \
  F(CommAbort, Result_t, (Comm_t))                                                     \
  F(CommRevoke, Result_t, (Comm_t, int))                                               \
  F(CommGetAsyncError, Result_t, (Comm_t, Result_t*))                                  \
  F(CommCount, Result_t, (Comm_t, int*))                                               \
  F(CommCuDevice, Result_t, (Comm_t, int*))                                            \
  F(CommUserRank, Result_t, (Comm_t, int*))                                            \
  F(MemAlloc, Result_t, (void**, size_t))                                              \
  F(MemFree, Result_t, (void*))                                                        \
  F(CommRegister, Result_t, (Comm_t, void*, size_t, void**))                           \
  F(CommDeregister, Result_t, (Comm_t, void*))                                         \
  F(CommWindowRegister, Result_t, (Comm_t, void*, size_t, Window_t*, int))             \
  F(CommWindowDeregister, Result_t, (Comm_t, Window_t))                                \
  F(RedOpCreatePreMulSum, Result_t, (int*, void*, int, int, Comm_t))                   \
  F(RedOpDestroy, Result_t, (int, Comm_t))                                             \
  F(Reduce, Result_t, (const void*, void*, size_t, int, int, int, Comm_t, Stream_t))   \
  F(Bcast, Result_t, (void*, size_t, int, int, Comm_t, Stream_t))                      \
  F(Broadcast, Result_t, (const void*, void*, size_t, int, int, Comm_t, Stream_t))     \
  F(AllReduce, Result_t, (const void*, void*, size_t, int, int, Comm_t, Stream_t))     \
  F(ReduceScatter, Result_t, (const void*, void*, size_t, int, int, Comm_t, Stream_t)) \
  F(AllGather, Result_t, (const void*, void*, size_t, int, Comm_t, Stream_t))          \
  F(AlltoAll, Result_t, (const void*, void*, size_t, int, Comm_t, Stream_t))           \
  F(Gather, Result_t, (const void*, void*, size_t, int, int, Comm_t, Stream_t))        \
  F(Scatter, Result_t, (const void*, void*, size_t, int, int, Comm_t, Stream_t))       \
  F(Send, Result_t, (const void*, size_t, int, int, Comm_t, Stream_t))                 \
  F(Recv, Result_t, (void*, size_t, int, int, Comm_t, Stream_t))                       \
  F(GroupStart, Result_t, ())                                                          \
  F(GroupEnd, Result_t, ())                                                            \
  F(GroupSimulateEnd, Result_t, (SimInfo*))
#define WEFT_NCCL_HOST_FUNCTIONS_2_29(F)                                                     \
  F(CommGetUniqueId, Result_t, (Comm_t, UniqueId*))                                          \
  F(CommGrow, Result_t, (Comm_t, int, const UniqueId*, int, Comm_t*, Config*))               \
  F(CommSuspend, Result_t, (Comm_t, int))                                                    \
  F(CommResume, Result_t, (Comm_t))                                                          \
  F(CommMemStats, Result_t, (Comm_t, int, uint64_t*))                                        \
  F(WinGetUserPtr, Result_t, (Comm_t, Window_t, void**))                                     \
  F(PutSignal, Result_t,                                                                     \
    (const void*, size_t, int, int, Window_t, size_t, int, int, unsigned, Comm_t, Stream_t)) \
  F(Signal, Result_t, (int, int, int, unsigned, Comm_t, Stream_t))                           \
  F(WaitSignal, Result_t, (int, void*, Comm_t, Stream_t))
#define WEFT_NCCL_HOST_FUNCTIONS_2_30(F)                            \
  F(ParamBind, Result_t, (Param_t*, const char*))                   \
  F(ParamGetI8, Result_t, (Param_t, int8_t*))                       \
  F(ParamGetI16, Result_t, (Param_t, int16_t*))                     \
  F(ParamGetI32, Result_t, (Param_t, int32_t*))                     \
  F(ParamGetI64, Result_t, (Param_t, int64_t*))                     \
  F(ParamGetU8, Result_t, (Param_t, uint8_t*))                      \
  F(ParamGetU16, Result_t, (Param_t, uint16_t*))                    \
  F(ParamGetU32, Result_t, (Param_t, uint32_t*))                    \
  F(ParamGetU64, Result_t, (Param_t, uint64_t*))                    \
  F(ParamGetStr, Result_t, (Param_t, const char**))                 \
  F(ParamGet, Result_t, (Param_t, void*, int, int*))                \
  F(ParamGetParameter, Result_t, (const char*, const char**, int*)) \
  F(ParamGetAllParameterKeys, Result_t, (const char***, int*))      \
  F(ParamDumpAll, void, ())
#define WEFT_NCCL_HOST_FUNCTIONS_2_31(F)                                                                    \
  F(AllReduceConfig, Result_t, (const void*, void*, size_t, int, int, Comm_t, Stream_t, const CollConfig*)) \
  F(BroadcastConfig, Result_t, (const void*, void*, size_t, int, int, Comm_t, Stream_t, const CollConfig*)) \
  F(ReduceConfig, Result_t,                                                                                 \
    (const void*, void*, size_t, int, int, int, Comm_t, Stream_t, const CollConfig*))                       \
  F(AllGatherConfig, Result_t, (const void*, void*, size_t, int, Comm_t, Stream_t, const CollConfig*))      \
  F(ReduceScatterConfig, Result_t,                                                                          \
    (const void*, void*, size_t, int, int, Comm_t, Stream_t, const CollConfig*))                            \
  F(AlltoAllConfig, Result_t, (const void*, void*, size_t, int, Comm_t, Stream_t, const CollConfig*))       \
  F(GatherConfig, Result_t, (const void*, void*, size_t, int, int, Comm_t, Stream_t, const CollConfig*))    \
  F(ScatterConfig, Result_t, (const void*, void*, size_t, int, int, Comm_t, Stream_t, const CollConfig*))
#define WEFT_NCCL_HOST_FUNCTIONS_2_32(F) F(SetEncryption, Result_t, (const EncryptionConfig*))
#define WEFT_NCCL_DEVICE_FUNCTIONS(F)                                         \
  F(DevCommCreate, Result_t, (Comm_t, const void*, void*))                    \
  F(DevCommDestroy, Result_t, (Comm_t, const void*))                          \
  F(TeamWorld, Team, (Comm_t))                                                \
  F(TeamLsa, Team, (Comm_t))                                                  \
  F(TeamRail, Team, (Comm_t))                                                 \
  F(TeamRankToWorld, int, (Comm_t, Team, int))                                \
  F(TeamRankToLsa, int, (Comm_t, Team, int))                                  \
  F(GinBarrierCreateRequirement, Result_t, (Comm_t, Team, int, void*, void*)) \
  F(LsaBarrierCreateRequirement, Result_t, (Team, int, void*, void*))         \
  F(LLA2ACalcSlots, int, (int, int))                                          \
  F(LLA2ACreateRequirement, Result_t, (int, int, void*, void*))
#define WEFT_NCCL_DEVICE_FUNCTIONS_2_29(F)                                          \
  F(CommQueryProperties, Result_t, (Comm_t, CommProperties*))                       \
  F(GetLsaMultimemDevicePointer, Result_t, (Window_t, size_t, void**))              \
  F(GetMultimemDevicePointer, Result_t, (Window_t, size_t, MultimemHandle, void**)) \
  F(GetLsaDevicePointer, Result_t, (Window_t, size_t, int, void**))                 \
  F(GetPeerDevicePointer, Result_t, (Window_t, size_t, int, void**))                \
  F(GinOutboxCreateRequirement, Result_t, (int, int, void*, void*))                 \
  F(GinInboxA2ACreateRequirement, Result_t, (Team, int, int, void*, void*))
#define WEFT_NCCL_DEVICE_FUNCTIONS_2_31(F)                                           \
  F(TeamCft, Team, (Comm_t, int))                                                    \
  F(TeamCftMultimem, Team, (Comm_t))                                                 \
  F(GetMultimemDeviceLeInfo, Result_t, (Window_t, size_t, uint32_t*, size_t*))       \
  F(GetCftDeviceLeInfo, Result_t, (Window_t, size_t, int, Team, uint32_t*, size_t*)) \
  F(GetPeerDeviceLeInfo, Result_t, (Window_t, size_t, int, uint32_t*, size_t*))
#define WEFT_NCCL_FUNCTIONS(F)       \
  WEFT_NCCL_HOST_FUNCTIONS(F)        \
  WEFT_NCCL_HOST_FUNCTIONS_2_29(F)   \
  WEFT_NCCL_HOST_FUNCTIONS_2_30(F)   \
  WEFT_NCCL_HOST_FUNCTIONS_2_31(F)   \
  WEFT_NCCL_HOST_FUNCTIONS_2_32(F)   \
  WEFT_NCCL_DEVICE_FUNCTIONS(F)      \
  WEFT_NCCL_DEVICE_FUNCTIONS_2_29(F) \
  WEFT_NCCL_DEVICE_FUNCTIONS_2_31(F)

}  // namespace weft::nccl
