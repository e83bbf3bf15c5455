// Weft's declarations of NCCL's ABI beside the real header, where there is one: sizes, places and values.
// What a header that is older or newer does not have in common is left out.
#define NCCL_OS_LINUX  // without it, 2.30's header has no ncclResetDebugInit
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "nccl/abi.h"

namespace {

namespace ours = weft::nccl;

#define SAME_PLACE(theirs, own) static_assert(offsetof(ncclConfig_t, theirs) == offsetof(ours::Config, own))
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cgaClusterSize, cga_cluster_size);
SAME_PLACE(minCTAs, min_ctas);
SAME_PLACE(maxCTAs, max_ctas);
SAME_PLACE(netName, net_name);
SAME_PLACE(splitShare, split_share);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
SAME_PLACE(trafficClass, traffic_class);
SAME_PLACE(commName, comm_name);
SAME_PLACE(collnetEnable, collnet_enable);
SAME_PLACE(CTAPolicy, cta_policy);
SAME_PLACE(shrinkShare, shrink_share);
SAME_PLACE(nvlsCTAs, nvls_ctas);
SAME_PLACE(nChannelsPerNetPeer, channels_per_net_peer);
SAME_PLACE(nvlinkCentricSched, nvlink_centric_sched);
static_assert(sizeof(ncclSimInfo_t) == sizeof(ours::SimInfo));
static_assert(offsetof(ncclSimInfo_t, estimatedTime) == offsetof(ours::SimInfo, estimated_time));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
SAME_PLACE(graphUsageMode, graph_usage_mode);
SAME_PLACE(numRmaCtx, rma_contexts);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
SAME_PLACE(maxP2pPeers, max_p2p_peers);
static_assert(int{ncclTimeout} == ours::kTimeout);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 7)
SAME_PLACE(graphStreamOrdering, graph_stream_ordering);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
SAME_PLACE(launchOrderImplicit, launch_order_implicit);
SAME_PLACE(numRmaSig, rma_signals);
SAME_PLACE(rmaEagerInit, rma_eager_init);
SAME_PLACE(hostCftMode, host_cft_mode);
#define SAME_IN_CALL(theirs, own) \
  static_assert(offsetof(ncclCollConfig_t, theirs) == offsetof(ours::CollConfig, own))
SAME_IN_CALL(magic, magic);
SAME_IN_CALL(ext, extensions);
SAME_IN_CALL(minCTAs, min_ctas);
SAME_IN_CALL(cgaClusterSize, cga_cluster_size);
SAME_IN_CALL(algSelection, algorithms);
SAME_IN_CALL(forceAlgSelection, force_algorithms);
SAME_IN_CALL(CTAPolicy, cta_policy);
SAME_IN_CALL(userProfilerTag, profiler_tag);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
SAME_PLACE(nvlsHostMode, nvls_host_mode);
SAME_IN_CALL(launchCompletionEvent, launch_completion_event);
static_assert(offsetof(ncclEncryptionConfig_t, mode) == offsetof(ours::EncryptionConfig, mode));
static_assert(offsetof(ncclEncryptionConfig_t, psk) == offsetof(ours::EncryptionConfig, key));
static_assert(int{NCCL_ENCRYPTION_MODE_NONE} == ours::kNoEncryption);
#endif
#if NCCL_VERSION_CODE == NCCL_VERSION(2, 32, 3)
static_assert(NCCL_VERSION_CODE == ours::kVersionCode);
static_assert(sizeof(ncclConfig_t) == sizeof(ours::Config));
static_assert(sizeof(ncclCollConfig_t) == sizeof(ours::CollConfig));
static_assert(sizeof(ncclEncryptionConfig_t) == sizeof(ours::EncryptionConfig));
#endif
#ifdef NCCL_WIN_STRICT_ORDERING
static_assert(NCCL_WIN_COLL_SYMMETRIC == ours::kWindowSymmetric &&
              NCCL_WIN_STRICT_ORDERING == ours::kWindowStrictOrdering);
#endif
static_assert(sizeof(ncclUniqueId) == sizeof(ours::UniqueId));
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
              sizeof(ncclRedOp_t) == sizeof(int) && sizeof(ncclScalarResidence_t) == sizeof(int));
static_assert(int{ncclSuccess} == ours::kSuccess && int{ncclInProgress} == ours::kInProgress &&
              int{ncclRemoteError} == ours::kRemoteError && int{ncclInvalidUsage} == ours::kInvalidUsage);
static_assert(NCCL_CONFIG_UNDEF_INT == ours::kUndefined && NCCL_SPLIT_NOCOLOR == ours::kNoColor);

/// Functions of equal shape: as many parameters, each as large as its counterpart, and the same for what is
/// returned.
template <typename Theirs, typename Own>
struct Alike : std::false_type {};
template <typename R, typename... P, typename OwnR, typename... OwnP>
struct Alike<R(P...), OwnR(OwnP...)> {
  template <typename A, typename B>
  static constexpr bool same() {
    if constexpr (std::is_void_v<A> || std::is_void_v<B>) return std::is_void_v<A> && std::is_void_v<B>;
    else return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
  }
  static constexpr bool value = [] {
    if constexpr (sizeof...(P) != sizeof...(OwnP)) return false;
    else return same<R, OwnR>() && (same<P, OwnP>() && ...);
  }();
};

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 9) && NCCL_VERSION_CODE <= NCCL_VERSION(2, 32, 3)
namespace shapes {
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // ncclResetDebugInit
using namespace weft::nccl;
#define SAME_SHAPE(name, returns, parameters)                            \
  static_assert(Alike<decltype(pnccl##name), returns parameters>::value, \
                #name " has another shape in nccl.h");
WEFT_NCCL_HOST_FUNCTIONS(SAME_SHAPE)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
WEFT_NCCL_HOST_FUNCTIONS_2_29(SAME_SHAPE)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 7)
WEFT_NCCL_HOST_FUNCTIONS_2_30(SAME_SHAPE)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
WEFT_NCCL_HOST_FUNCTIONS_2_31(SAME_SHAPE)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
WEFT_NCCL_HOST_FUNCTIONS_2_32(SAME_SHAPE)
#endif
}  // namespace shapes
#endif

}  // namespace
