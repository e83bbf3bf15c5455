// Collectives with a configuration of their own, which came with NCCL 2.31. On communicators of Weft they are
// those without: what a configuration says of NCCL's kernels and profilers has no meaning there. Two things
// Weft would have to do otherwise, and refuses: an algorithm that must be taken, and an event to record.
#include <mutex>

#include "base/log.h"
#include "export.h"
#include "route.h"

using namespace weft;
using namespace weft::nccl_shim;

namespace weft::nccl {
namespace {

/// Whether Weft can do a collective as its configuration asks.
Status check(const CollConfig& config) {
  if (config.magic != kConfigMagic || config.size < offsetof(CollConfig, launch_completion_event))
    return fail(Code::invalid_argument,
                "config does not start as NCCL_COLLCONFIG_INITIALIZER (size {}, magic {:#x})", config.size,
                config.magic);
  if (config.size >= sizeof config && config.launch_completion_event)
    return fail(Code::unsupported,
                "config.launchCompletionEvent is set, but this communicator is Weft's, which records no such "
                "event: record one of your own after the call");
  if (!config.algorithms || !*config.algorithms) return {};
  if (config.force_algorithms != 0)
    return fail(Code::unsupported,
                "config.algSelection is '{}' and forceAlgSelection is {}, but this communicator is Weft's, "
                "which selects its own algorithms: forceAlgSelection 0 allows it to",
                config.algorithms, config.force_algorithms);
  static std::once_flag told;
  std::call_once(told, [&] {
    log::warn("config.algSelection is '{}': ignored, Weft's communicators select their own algorithms",
              config.algorithms);
  });
  return {};
}

/// `real` is NCCL's function, `plain` its sibling without a configuration, which does the same where there is
/// none; `ours` is Weft's.
template <typename Real, typename Plain, typename Ours, typename... Arguments>
Result_t operate_as(const CollConfig* config, const char* name, Real real, Plain plain, Ours ours,
                    Comm_t comm, Stream_t stream, Arguments... arguments) {
  if (!config) return operate(name, plain, ours, comm, stream, arguments...);
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return refuse(handle.status().in(name));
  if ((*handle)->backend == Backend::weft) {
    if (Status possible = check(*config); !possible.ok()) return refuse(possible.in(name));
    return operate(name, plain, ours, comm, stream, arguments...);
  }
  tally::count_call(Backend::nccl);
  if (Status joined = join_group(Backend::nccl); !joined.ok()) return refuse(joined.in(name));
  return call_real(name, real, arguments..., *(*handle)->real, stream, config);
}

}  // namespace

Result_t pncclAllReduceConfig(const void* send, void* recv, size_t count, int type, int op, Comm_t comm,
                              Stream_t stream, const CollConfig* config) {
  return operate_as(config, "ncclAllReduceConfig", &Functions::AllReduceConfig, &Functions::AllReduce,
                    weftAllReduce, comm, stream, send, recv, count, type, op);
}
WEFT_NCCL_ALIAS(AllReduceConfig)

Result_t pncclBroadcastConfig(const void* send, void* recv, size_t count, int type, int root, Comm_t comm,
                              Stream_t stream, const CollConfig* config) {
  return operate_as(config, "ncclBroadcastConfig", &Functions::BroadcastConfig, &Functions::Broadcast,
                    weftBroadcast, comm, stream, send, recv, count, type, root);
}
WEFT_NCCL_ALIAS(BroadcastConfig)

Result_t pncclReduceConfig(const void* send, void* recv, size_t count, int type, int op, int root,
                           Comm_t comm, Stream_t stream, const CollConfig* config) {
  return operate_as(config, "ncclReduceConfig", &Functions::ReduceConfig, &Functions::Reduce, weftReduce,
                    comm, stream, send, recv, count, type, op, root);
}
WEFT_NCCL_ALIAS(ReduceConfig)

Result_t pncclAllGatherConfig(const void* send, void* recv, size_t count, int type, Comm_t comm,
                              Stream_t stream, const CollConfig* config) {
  return operate_as(config, "ncclAllGatherConfig", &Functions::AllGatherConfig, &Functions::AllGather,
                    weftAllGather, comm, stream, send, recv, count, type);
}
WEFT_NCCL_ALIAS(AllGatherConfig)

Result_t pncclReduceScatterConfig(const void* send, void* recv, size_t count, int type, int op, Comm_t comm,
                                  Stream_t stream, const CollConfig* config) {
  return operate_as(config, "ncclReduceScatterConfig", &Functions::ReduceScatterConfig,
                    &Functions::ReduceScatter, weftReduceScatter, comm, stream, send, recv, count, type, op);
}
WEFT_NCCL_ALIAS(ReduceScatterConfig)

Result_t pncclAlltoAllConfig(const void* send, void* recv, size_t count, int type, Comm_t comm,
                             Stream_t stream, const CollConfig* config) {
  return operate_as(config, "ncclAlltoAllConfig", &Functions::AlltoAllConfig,
                    OrMade{&Functions::AlltoAll, all_to_all}, weftAlltoAll, comm, stream, send, recv, count,
                    type);
}
WEFT_NCCL_ALIAS(AlltoAllConfig)

Result_t pncclGatherConfig(const void* send, void* recv, size_t count, int type, int root, Comm_t comm,
                           Stream_t stream, const CollConfig* config) {
  return operate_as(config, "ncclGatherConfig", &Functions::GatherConfig, OrMade{&Functions::Gather, gather},
                    weftGather, comm, stream, send, recv, count, type, root);
}
WEFT_NCCL_ALIAS(GatherConfig)

Result_t pncclScatterConfig(const void* send, void* recv, size_t count, int type, int root, Comm_t comm,
                            Stream_t stream, const CollConfig* config) {
  return operate_as(config, "ncclScatterConfig", &Functions::ScatterConfig,
                    OrMade{&Functions::Scatter, scatter}, weftScatter, comm, stream, send, recv, count, type,
                    root);
}
WEFT_NCCL_ALIAS(ScatterConfig)

}  // namespace weft::nccl
