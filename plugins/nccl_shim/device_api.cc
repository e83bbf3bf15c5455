// NCCL's device API: kernels that communicate themselves. Only the real NCCL has it. Of a communicator of
// Weft, teams can be asked, and the rest is refused.
#include "export.h"
#include "route.h"

using namespace weft;
using namespace weft::nccl_shim;

namespace weft::nccl {
namespace {

/// No two ranks of Weft reach each other's memory by loads and stores of a kernel, so each is a team of its
/// own.
constexpr Team kAlone{1, 0, 1};

Team world_of(weftComm_t comm) {
  Team team{0, 0, 1};
  (void)weftCommCount(comm, &team.ranks);
  (void)weftCommUserRank(comm, &team.rank);
  return team;
}

/// A function that returns no error: of the real NCCL, or `own` of Weft's communicator, or `wrong` with a
/// sentence.
template <typename Value, typename... Parameters, typename Own, typename... Arguments>
Value answer(const char* name, Value (*Functions::*member)(Parameters...), Value wrong, Comm_t comm, Own own,
             Arguments... arguments) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return (void)report(handle.status().in(name)), wrong;
  if ((*handle)->backend == Backend::weft) return own((*handle)->weft);
  const Library& real = **Library::get();
  Value (*function)(Parameters...) = real.functions().*member;
  if (Status has = real.has(function, name); !has.ok()) return (void)report(has), wrong;
  return function(*(*handle)->real, arguments...);
}

/// A function of communicators that Weft's do not have.
template <typename... Parameters, typename... Arguments>
Result_t only_real(const char* name, Result_t (*Functions::*member)(Comm_t, Parameters...), Comm_t comm,
                   Arguments... arguments) {
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in(name));
  if ((*handle)->backend == Backend::nccl) return call_real(name, member, *(*handle)->real, arguments...);
  return report(fail(
      Code::unsupported,
      "{}: this communicator is Weft's, which has no device API; WEFT_BACKEND=nccl gives it to NCCL", name));
}

}  // namespace

Result_t pncclDevCommCreate(Comm_t comm, const void* requirements, void* made) {
  return only_real("ncclDevCommCreate", &Functions::DevCommCreate, comm, requirements, made);
}
WEFT_NCCL_ALIAS(DevCommCreate)

Result_t pncclDevCommDestroy(Comm_t comm, const void* device_comm) {
  return only_real("ncclDevCommDestroy", &Functions::DevCommDestroy, comm, device_comm);
}
WEFT_NCCL_ALIAS(DevCommDestroy)

Result_t pncclGinBarrierCreateRequirement(Comm_t comm, Team team, int barriers, void* handle,
                                          void* requirement) {
  return only_real("ncclGinBarrierCreateRequirement", &Functions::GinBarrierCreateRequirement, comm, team,
                   barriers, handle, requirement);
}
WEFT_NCCL_ALIAS(GinBarrierCreateRequirement)

Result_t pncclLsaBarrierCreateRequirement(Team team, int barriers, void* handle, void* requirement) {
  return call_real("ncclLsaBarrierCreateRequirement", &Functions::LsaBarrierCreateRequirement, team, barriers,
                   handle, requirement);
}
WEFT_NCCL_ALIAS(LsaBarrierCreateRequirement)

Result_t pncclLLA2ACreateRequirement(int blocks, int slots, void* handle, void* requirement) {
  return call_real("ncclLLA2ACreateRequirement", &Functions::LLA2ACreateRequirement, blocks, slots, handle,
                   requirement);
}
WEFT_NCCL_ALIAS(LLA2ACreateRequirement)

int pncclLLA2ACalcSlots(int elements, int element_bytes) {
  const Result<const Library*> real = real_nccl();
  if (!real.ok()) return (void)report(real.status().in("ncclLLA2ACalcSlots")), 0;
  const auto function = (*real)->functions().LLA2ACalcSlots;
  if (Status has = (*real)->has(function, "ncclLLA2ACalcSlots"); !has.ok()) return (void)report(has), 0;
  return function(elements, element_bytes);
}
WEFT_NCCL_ALIAS(LLA2ACalcSlots)

Team pncclTeamWorld(Comm_t comm) {
  return answer("ncclTeamWorld", &Functions::TeamWorld, Team{}, comm, world_of);
}
WEFT_NCCL_ALIAS(TeamWorld)

Team pncclTeamLsa(Comm_t comm) {
  return answer("ncclTeamLsa", &Functions::TeamLsa, Team{}, comm, [](weftComm_t) { return kAlone; });
}
WEFT_NCCL_ALIAS(TeamLsa)

Team pncclTeamRail(Comm_t comm) {
  return answer("ncclTeamRail", &Functions::TeamRail, Team{}, comm, world_of);
}
WEFT_NCCL_ALIAS(TeamRail)

int pncclTeamRankToWorld(Comm_t comm, Team team, int rank) {
  return answer(
      "ncclTeamRankToWorld", &Functions::TeamRankToWorld, -1, comm,
      [&](weftComm_t own) { return world_of(own).rank + (rank - team.rank) * team.stride; }, team, rank);
}
WEFT_NCCL_ALIAS(TeamRankToWorld)

int pncclTeamRankToLsa(Comm_t comm, Team team, int rank) {
  return answer(
      "ncclTeamRankToLsa", &Functions::TeamRankToLsa, -1, comm,
      [&](weftComm_t) { return kAlone.rank + (rank - team.rank) * team.stride; }, team, rank);
}
WEFT_NCCL_ALIAS(TeamRankToLsa)

}  // namespace weft::nccl
