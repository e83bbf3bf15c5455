#include "group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "api/group.h"
#include "base/fork.h"
#include "export.h"
#include "report.h"

namespace weft::nccl_shim {
namespace {

struct Group {
  int depth = 0;
  bool in_weft = false, in_real = false;
  Status refused;  // the first call that was
  std::vector<std::pair<Comm_t*, Handle*>> creations;
  std::vector<std::pair<weftResult_t (*)(weftComm_t), weftComm_t>> ends;  // of Weft's communicators
};
thread_local Group t_group;
/// A group that is open when its thread forks stays the parent's.
const bool forgets_group = (on_fork_in_child([] { t_group = Group(); }), true);

/// The outermost end: leaves the thread outside groups, whatever comes next.
Group close() { return std::exchange(t_group, Group()); }

void forget_failures(const Group& group) {
  for (const auto& [out, handle] : group.creations)
    if (!handle->made() && *out == handle->as_comm()) *out = nullptr;
}

/// Of two results of one group, the one that matters more: a failure, then "in progress".
nccl::Result_t worse(nccl::Result_t first, nccl::Result_t second) {
  if (first == nccl::kSuccess || (first == nccl::kInProgress && second != nccl::kSuccess)) return second;
  return first;
}

/// Ends Weft's part by `end`, which starts nothing if a call was refused.
template <typename End>
nccl::Result_t end_own_part(const Group& group, End end) {
  if (!group.in_weft) return report(group.refused);
  if (!group.refused.ok()) api::spoil_group(group.refused);
  return from_weft(end(), nullptr);
}

nccl::Result_t run_ends(const Group& group) {
  nccl::Result_t result = nccl::kSuccess;
  for (const auto& [end, comm] : group.ends) result = worse(result, from_weft(end(comm), comm));
  return result;
}

Status not_open() {
  return fail(Code::invalid_usage, "no group is open on this thread: call ncclGroupStart first");
}

}  // namespace

Status join_group(Backend backend) {
  if (t_group.depth == 0) return {};
  bool& open = backend == Backend::nccl ? t_group.in_real : t_group.in_weft;
  if (open) return {};
  if (backend == Backend::nccl) {
    const Result<const nccl::Library*>& real = nccl::Library::get();
    if (!real.ok()) return real.status();
    WEFT_TRY((*real)->check((*real)->functions().GroupStart(), "ncclGroupStart", nullptr));
  } else {
    (void)weftGroupStart();  // cannot fail
  }
  open = true;
  return {};
}

bool in_group() { return t_group.depth > 0; }

nccl::Result_t refuse(const Status& why) {
  if (in_group() && t_group.refused.ok()) t_group.refused = why;
  return report(why);
}

bool in_group_of(Backend backend) {
  return in_group() && (backend == Backend::nccl ? t_group.in_real : t_group.in_weft);
}

void note_creation(Comm_t* out, Handle* handle) {
  if (in_group()) t_group.creations.emplace_back(out, handle);
}

bool is_being_made(const Handle* handle) {
  return std::any_of(t_group.creations.begin(), t_group.creations.end(),
                     [&](const auto& creation) { return creation.second == handle; });
}

void note_end(weftResult_t (*end)(weftComm_t), weftComm_t comm) { t_group.ends.emplace_back(end, comm); }

void forget_ends(weftComm_t comm) {
  std::erase_if(t_group.ends, [&](const auto& noted) { return noted.second == comm; });
}

}  // namespace weft::nccl_shim

using namespace weft;
using namespace weft::nccl_shim;

namespace weft::nccl {

Result_t pncclGroupStart() {
  ++t_group.depth;
  return kSuccess;
}
WEFT_NCCL_ALIAS(GroupStart)

// NCCL only starts what Weft, without a stream, waits for: so NCCL comes first.
Result_t pncclGroupEnd() {
  if (t_group.depth == 0) return report(not_open());
  if (t_group.depth > 1) {
    --t_group.depth;
    return kSuccess;
  }
  const Group group = close();
  const Result_t real = group.in_real ? from_real((*Library::get())->functions().GroupEnd()) : kSuccess;
  const Result_t own = end_own_part(group, weftGroupEnd);
  if (real != kInProgress) forget_failures(group);
  return worse(worse(real, own), run_ends(group));
}
WEFT_NCCL_ALIAS(GroupEnd)

Result_t pncclGroupSimulateEnd(SimInfo* info) {
  if (!info) return report(fail(Code::invalid_pointer, "simInfo is NULL"));
  if (info->magic != kSimInfoMagic || info->size < sizeof(SimInfo))
    return report(fail(Code::invalid_argument, "simInfo does not start as NCCL_SIM_INFO_INITIALIZER"));
  if (t_group.depth == 0) return report(not_open());
  if (t_group.depth > 1) {
    --t_group.depth;
    return kSuccess;
  }
  const Group group = close();
  Result_t result = kSuccess;
  if (group.in_real) {
    const Library& real = **Library::get();
    if (Status has = real.has(real.functions().GroupSimulateEnd, "ncclGroupSimulateEnd"); !has.ok()) {
      (void)real.functions().GroupEnd();
      result = report(has);
    } else {
      result = from_real(real.functions().GroupSimulateEnd(info));
    }
  }
  weftSimInfo_t own = WEFT_SIM_INFO_INITIALIZER;
  const Result_t own_result = end_own_part(group, [&] { return weftGroupSimulateEnd(&own); });
  // Both in one group: one after the other.
  if (own_result == kSuccess && own.estimatedTime >= 0)
    info->estimated_time =
        own.estimatedTime + (group.in_real && info->estimated_time > 0 ? info->estimated_time : 0);
  return worse(worse(result, own_result), run_ends(group));
}
WEFT_NCCL_ALIAS(GroupSimulateEnd)

}  // namespace weft::nccl
