#include "group.h"

#include <utility>
#include <vector>

#include "export.h"
#include "report.h"

namespace weft::nccl_shim {
namespace {

struct Group {
  int depth = 0;
  bool in_weft = false, in_real = false;
  std::vector<std::pair<Comm_t*, Handle*>> creations;
};
thread_local Group t_group;

/// The outermost end: leaves the thread outside groups, whatever comes next.
Group close() { return std::exchange(t_group, Group()); }

void forget_failures(const Group& group) {
  for (const auto& [out, handle] : group.creations)
    if (!handle->made() && *out == handle->as_comm()) *out = nullptr;
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

void note_creation(Comm_t* out, Handle* handle) {
  if (in_group()) t_group.creations.emplace_back(out, handle);
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
  const Result_t own = group.in_weft ? from_weft(weftGroupEnd(), nullptr) : kSuccess;
  if (real != kInProgress) forget_failures(group);
  return own != kSuccess && real == kSuccess ? own : real;
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
  if (!group.in_weft) return result;
  weftSimInfo_t own = WEFT_SIM_INFO_INITIALIZER;
  const Result_t own_result = from_weft(weftGroupSimulateEnd(&own), nullptr);
  // Both in one group: one after the other.
  if (own_result == kSuccess && own.estimatedTime >= 0)
    info->estimated_time =
        own.estimatedTime + (group.in_real && info->estimated_time > 0 ? info->estimated_time : 0);
  return result == kSuccess ? own_result : result;
}
WEFT_NCCL_ALIAS(GroupSimulateEnd)

}  // namespace weft::nccl
