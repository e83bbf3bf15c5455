// NCCL's device API: kernels that communicate themselves. Only the real NCCL has it. Of a communicator of
// Weft, teams can be asked, and the rest is refused.
#include <cstring>

#include "export.h"
#include "route.h"
#include "windows.h"

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

constexpr const char* kNoDeviceApi = "no device API";

/// A function of a window that a kernel uses.
template <typename... Parameters, typename... Arguments>
Result_t of_window(const char* name, Result_t (*Functions::*member)(Window_t, Parameters...), Window_t window,
                   Arguments... arguments) {
  if (!window)
    return report(
        fail(Code::invalid_pointer, "{}: window is NULL: pass one that ncclCommWindowRegister gave", name));
  if (is_own_window(window))
    return report(fail(Code::unsupported,
                       "{}: the window is of a communicator of Weft's, which has {}; WEFT_BACKEND=nccl gives "
                       "it to NCCL",
                       name, kNoDeviceApi));
  return call_real(name, member, window, arguments...);
}

}  // namespace

Result_t pncclDevCommCreate(Comm_t comm, const void* requirements, void* made) {
  return only_real("ncclDevCommCreate", kNoDeviceApi, comm, [&](Comm_t real) {
    return call_real("ncclDevCommCreate", &Functions::DevCommCreate, real, requirements, made);
  });
}
WEFT_NCCL_ALIAS(DevCommCreate)

Result_t pncclDevCommDestroy(Comm_t comm, const void* device_comm) {
  return only_real("ncclDevCommDestroy", kNoDeviceApi, comm, [&](Comm_t real) {
    return call_real("ncclDevCommDestroy", &Functions::DevCommDestroy, real, device_comm);
  });
}
WEFT_NCCL_ALIAS(DevCommDestroy)

Result_t pncclGinBarrierCreateRequirement(Comm_t comm, Team team, int barriers, void* handle,
                                          void* requirement) {
  return only_real("ncclGinBarrierCreateRequirement", kNoDeviceApi, comm, [&](Comm_t real) {
    return call_real("ncclGinBarrierCreateRequirement", &Functions::GinBarrierCreateRequirement, real, team,
                     barriers, handle, requirement);
  });
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

Team pncclTeamCft(Comm_t comm, int mode) {
  return answer(
      "ncclTeamCft", &Functions::TeamCft, Team{}, comm, [](weftComm_t) { return kAlone; }, mode);
}
WEFT_NCCL_ALIAS(TeamCft)

Team pncclTeamCftMultimem(Comm_t comm) {
  return answer("ncclTeamCftMultimem", &Functions::TeamCftMultimem, Team{}, comm,
                [](weftComm_t) { return kAlone; });
}
WEFT_NCCL_ALIAS(TeamCftMultimem)

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

// A program asks for these before it uses the device API, and does without it where they say so.
Result_t pncclCommQueryProperties(Comm_t comm, CommProperties* properties) {
  constexpr const char* kName = "ncclCommQueryProperties";
  const Result<Handle*> handle = usable(comm);
  if (!handle.ok()) return report(handle.status().in(kName));
  if ((*handle)->backend == Backend::nccl)
    return call_real(kName, &Functions::CommQueryProperties, *(*handle)->real, properties);
  if (!properties) return report(fail(Code::invalid_pointer, "{}: props is NULL", kName));
  if (properties->magic != kConfigMagic || properties->size < offsetof(CommProperties, lsa_teams))
    return report(
        fail(Code::invalid_argument, "{}: props does not start as NCCL_COMM_PROPERTIES_INITIALIZER", kName));
  constexpr size_t kAsked = offsetof(CommProperties, rank);
  std::memset(reinterpret_cast<std::byte*>(properties) + kAsked, 0, properties->size - kAsked);
  const Team world = world_of((*handle)->weft);
  properties->rank = world.rank;
  properties->ranks = world.ranks;
  properties->cuda_device = (*handle)->device;
  properties->nvml_device = -1;
  if (properties->size >= sizeof *properties) properties->lsa_teams = world.ranks;
  return kSuccess;
}
WEFT_NCCL_ALIAS(CommQueryProperties)

Result_t pncclGetLsaMultimemDevicePointer(Window_t window, size_t offset, void** pointer) {
  return of_window("ncclGetLsaMultimemDevicePointer", &Functions::GetLsaMultimemDevicePointer, window, offset,
                   pointer);
}
WEFT_NCCL_ALIAS(GetLsaMultimemDevicePointer)

Result_t pncclGetMultimemDevicePointer(Window_t window, size_t offset, MultimemHandle handle,
                                       void** pointer) {
  return of_window("ncclGetMultimemDevicePointer", &Functions::GetMultimemDevicePointer, window, offset,
                   handle, pointer);
}
WEFT_NCCL_ALIAS(GetMultimemDevicePointer)

Result_t pncclGetLsaDevicePointer(Window_t window, size_t offset, int rank, void** pointer) {
  return of_window("ncclGetLsaDevicePointer", &Functions::GetLsaDevicePointer, window, offset, rank, pointer);
}
WEFT_NCCL_ALIAS(GetLsaDevicePointer)

Result_t pncclGetPeerDevicePointer(Window_t window, size_t offset, int peer, void** pointer) {
  return of_window("ncclGetPeerDevicePointer", &Functions::GetPeerDevicePointer, window, offset, peer,
                   pointer);
}
WEFT_NCCL_ALIAS(GetPeerDevicePointer)

Result_t pncclGetMultimemDeviceLeInfo(Window_t window, size_t offset, uint32_t* id, size_t* id_offset) {
  return of_window("ncclGetMultimemDeviceLeInfo", &Functions::GetMultimemDeviceLeInfo, window, offset, id,
                   id_offset);
}
WEFT_NCCL_ALIAS(GetMultimemDeviceLeInfo)

Result_t pncclGetCftDeviceLeInfo(Window_t window, size_t offset, int peer, Team team, uint32_t* id,
                                 size_t* id_offset) {
  return of_window("ncclGetCftDeviceLeInfo", &Functions::GetCftDeviceLeInfo, window, offset, peer, team, id,
                   id_offset);
}
WEFT_NCCL_ALIAS(GetCftDeviceLeInfo)

Result_t pncclGetPeerDeviceLeInfo(Window_t window, size_t offset, int peer, uint32_t* id, size_t* id_offset) {
  return of_window("ncclGetPeerDeviceLeInfo", &Functions::GetPeerDeviceLeInfo, window, offset, peer, id,
                   id_offset);
}
WEFT_NCCL_ALIAS(GetPeerDeviceLeInfo)

Result_t pncclGinOutboxCreateRequirement(int blocks, int bytes_log2, void* handle, void* requirement) {
  return call_real("ncclGinOutboxCreateRequirement", &Functions::GinOutboxCreateRequirement, blocks,
                   bytes_log2, handle, requirement);
}
WEFT_NCCL_ALIAS(GinOutboxCreateRequirement)

Result_t pncclGinInboxA2ACreateRequirement(Team peers, int blocks, int bytes_log2, void* handle,
                                           void* requirement) {
  return call_real("ncclGinInboxA2ACreateRequirement", &Functions::GinInboxA2ACreateRequirement, peers,
                   blocks, bytes_log2, handle, requirement);
}
WEFT_NCCL_ALIAS(GinInboxA2ACreateRequirement)

}  // namespace weft::nccl
