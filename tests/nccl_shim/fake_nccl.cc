// A libnccl.so.2 for tests: NCCL's functions for ranks that are threads of one process, on host memory, and
// on device memory of the driver that the test has loaded. It does not follow streams. It keeps a record of
// its calls, and can be told to fail. Built as several versions of NCCL: FAKE_VERSION, FAKE_OLD for one that
// lacks what came after 2.18, and FAKE_NEW for one with something of what came after 2.28.
//
// Its own calls of its own functions go by their exported names, as NCCL's may: ncclBcast calls
// ncclBroadcast, on rank 0 by a pointer.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/abi.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace weft::nccl {

struct Part {
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  int type = 0, op = 0, root = 0, color = 0, key = 0;
  Comm_t* child = nullptr;
};

/// One collective of all ranks; the last to come does it for all.
struct Meeting {
  std::vector<Part> parts;
  int come = 0;
  bool over = false;
};

struct World {
  int size;
  std::map<std::string, std::shared_ptr<Meeting>> meetings;
};

struct CommOfNccl {
  std::shared_ptr<World> world;
  int rank;
  int collectives = 0;
  std::map<int, int> sent, received;            // by peer
  std::vector<std::pair<int, double>> scalars;  // pre-multiplied sums
  std::atomic<int> questions{0};                // that threads are inside of
};

namespace {

std::mutex mutex;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<World>> worlds;
std::vector<std::string> calls;
Result_t async_error = kSuccess;
thread_local int depth = 0;
thread_local std::vector<std::shared_ptr<Meeting>> pending;

size_t size_of(int type) {
  constexpr size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

template <typename Function>
Function* bind(void* library, const char* symbol) {
  return reinterpret_cast<Function*>(dlsym(library, symbol));
}

/// The driver that the test has loaded; null if none.
void* driver() {
  const char* file = std::getenv("WEFT_CUDA_LIBRARY");
  return file ? dlopen(file, RTLD_NOW | RTLD_NOLOAD) : nullptr;
}

/// Copies between any two of host and device memory. The CPU cannot touch device memory, so the driver does.
void copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  using Address = unsigned long long;
  const auto address = [](const void* pointer) -> Address { return reinterpret_cast<uintptr_t>(pointer); };
  void* const library = driver();
  const auto is_device = [&](const void* pointer) {
    constexpr int kMemoryType = 2;
    constexpr unsigned kDevice = 2;
    unsigned type = 0;
    return library &&
           bind<int(void*, int, Address)>(library, "cuPointerGetAttribute")(&type, kMemoryType,
                                                                            address(pointer)) == 0 &&
           type == kDevice;
  };
  if (!is_device(to) && !is_device(from)) {
    std::memmove(to, from, bytes);
    return;
  }
  void* context = nullptr;
  bind<int(void**, int)>(library, "cuDevicePrimaryCtxRetain")(&context, 0);
  bind<int(void*)>(library, "cuCtxPushCurrent_v2")(context);
  bind<int(Address, Address, size_t, void*)>(library, "cuMemcpyAsync")(address(to), address(from), bytes,
                                                                       nullptr);
  bind<int(void*)>(library, "cuStreamSynchronize")(nullptr);
  bind<int(void**)>(library, "cuCtxPopCurrent_v2")(&context);
}

/// Records which device NCCL would take: the calling thread's.
void note_device() {
  void* const library = driver();
  int device = -1;
  if (!library || bind<int(int*)>(library, "cuCtxGetDevice")(&device) != 0) return;
  const std::lock_guard guard(mutex);
  calls.push_back("CommInitRank on device " + std::to_string(device));
}

/// Records the call, and whether it was in a group; a failure if the test has asked for one.
Result_t called(const char* name) {
  const std::lock_guard guard(mutex);
  calls.push_back(name);
  if (depth > 0) calls.push_back(std::string(name) + " in a group");
  const char* fail = std::getenv("FAKE_NCCL_FAIL");
  return fail && std::strcmp(fail, name) == 0 ? kInternalError : kSuccess;
}

void settle(const std::vector<std::shared_ptr<Meeting>>& meetings) {
  std::unique_lock lock(mutex);
  for (const auto& meeting : meetings) changed.wait(lock, [&] { return meeting->over; });
}

/// Brings one rank's part to the meeting of that name; `act` does the work when all `size` have come.
Result_t meet(Comm_t comm, const std::string& name, int size, int seat, const Part& part,
              const std::function<void(std::vector<Part>&)>& act) {
  std::shared_ptr<Meeting> meeting;
  {
    const std::lock_guard guard(mutex);
    auto& slot = comm->world->meetings[name];
    if (!slot) slot = std::make_shared<Meeting>();
    meeting = slot;
    meeting->parts.resize(static_cast<size_t>(size));
    meeting->parts[static_cast<size_t>(seat)] = part;
    if (++meeting->come == size) {
      act(meeting->parts);
      meeting->over = true;
      comm->world->meetings.erase(name);
      changed.notify_all();
    }
  }
  if (depth > 0) pending.push_back(meeting);
  else settle({meeting});
  return kSuccess;
}

Result_t collective(const char* name, Comm_t comm, const Part& part,
                    const std::function<void(std::vector<Part>&)>& act) {
  if (const Result_t failed = called(name); failed != kSuccess) return failed;
  return meet(comm, std::to_string(comm->collectives++), comm->world->size, comm->rank, part, act);
}

std::string transfer_name(int from, int to, int number) {
  char name[64];
  std::snprintf(name, sizeof name, "%d to %d, %d", from, to, number);
  return name;
}

const char* at(const void* base, size_t elements, int type) {
  return static_cast<const char*>(base) + elements * size_of(type);
}

/// Sums floats; every other type and operator is the business of the real one.
std::vector<float> sum(const std::vector<Part>& parts, size_t first, size_t count) {
  std::vector<float> total(count, 0.f);
  std::vector<float> values(count);
  for (const Part& part : parts) {
    copy(values.data(), static_cast<const float*>(part.send) + first, count * sizeof(float));
    for (size_t i = 0; i < count; ++i) total[i] += values[i];
  }
  if (parts[0].op == 4)
    for (float& value : total) value /= static_cast<float>(parts.size());
  return total;
}

Comm_t new_comm(std::shared_ptr<World> world, int rank) {
  return new CommOfNccl{std::move(world), rank, 0, {}, {}, {}};
}

void join(Comm_t* comm, int ranks, const UniqueId& id, int rank) {
  const std::lock_guard guard(mutex);
  auto& world = worlds[id.internal];
  if (!world) world = std::make_shared<World>(World{ranks, {}});
  *comm = new_comm(world, rank);
}

}  // namespace

// ---- For the test

EXPORT int fakeNcclCalls(const char* name) {
  const std::lock_guard guard(mutex);
  return static_cast<int>(std::count(calls.begin(), calls.end(), name));
}
EXPORT void fakeNcclSetAsyncError(Result_t error) { async_error = error; }

// ---- NCCL

EXPORT Result_t ncclGetVersion(int* version) {
  std::free(realpath("/", nullptr));  // libc's memory, as NCCL reads the paths of cards
  *version = FAKE_VERSION;
  return kSuccess;
}
EXPORT const char* ncclGetErrorString(int result) { return result == kSuccess ? "no error" : "fake error"; }
EXPORT const char* ncclGetLastError(Comm_t) { return "the fake was told to fail"; }
EXPORT Result_t ncclGetUniqueId(UniqueId* id) {
  static int number = 0;
  if (const Result_t failed = called("GetUniqueId"); failed != kSuccess) return failed;
  const std::lock_guard guard(mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "fake %d", ++number);
  return kSuccess;
}
EXPORT Result_t ncclCommInitRankConfig(Comm_t* comm, int ranks, UniqueId id, int rank, Config*) {
  *comm = nullptr;
  if (const Result_t failed = called("CommInitRankConfig"); failed != kSuccess) return failed;
  join(comm, ranks, id, rank);
  return kSuccess;
}
EXPORT Result_t ncclCommInitRank(Comm_t* comm, int ranks, UniqueId id, int rank) {
  *comm = nullptr;
  if (const Result_t failed = called("CommInitRank"); failed != kSuccess) return failed;
  note_device();
  join(comm, ranks, id, rank);
  return kSuccess;
}
EXPORT Result_t ncclCommInitAll(Comm_t* comms, int count, const int*) {
  if (const Result_t failed = called("CommInitAll"); failed != kSuccess) return failed;
  auto world = std::make_shared<World>(World{count, {}});
  for (int rank = 0; rank < count; ++rank) comms[rank] = new_comm(world, rank);
  return kSuccess;
}
EXPORT Result_t ncclCommSplit(Comm_t comm, int color, int key, Comm_t* child, Config*) {
  *child = nullptr;
  return collective("CommSplit", comm, {.color = color, .key = key, .child = child},
                    [](std::vector<Part>& parts) {
                      std::map<int, std::vector<std::pair<int, size_t>>> colors;
                      for (size_t rank = 0; rank < parts.size(); ++rank)
                        if (parts[rank].color >= 0)
                          colors[parts[rank].color].push_back({parts[rank].key, rank});
                      for (auto& [unused, members] : colors) {
                        std::sort(members.begin(), members.end());
                        auto world = std::make_shared<World>(World{static_cast<int>(members.size()), {}});
                        for (size_t i = 0; i < members.size(); ++i)
                          *parts[members[i].second].child = new_comm(world, static_cast<int>(i));
                      }
                    });
}
EXPORT Result_t ncclCommFinalize(Comm_t) { return called("CommFinalize"); }
EXPORT Result_t ncclCommDestroy(Comm_t comm) {
  const Result_t result = called("CommDestroy");
  delete comm;
  return result;
}
EXPORT Result_t ncclCommAbort(Comm_t comm) {
  static auto& aborted = *new std::vector<Comm_t>;  // kept: a thread may still be in it
  const Result_t result = called("CommAbort");
  const std::lock_guard guard(mutex);
  if (comm->questions > 0) calls.push_back("CommAbort while it is asked");
  aborted.push_back(comm);
  return result;
}
EXPORT Result_t ncclCommGetAsyncError(Comm_t comm, Result_t* error) {
  *error = async_error;
  ++comm->questions;
  if (std::getenv("FAKE_NCCL_SLOW")) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  --comm->questions;
  return called("CommGetAsyncError");
}
EXPORT Result_t ncclCommCount(Comm_t comm, int* count) {
  *count = comm->world->size;
  return called("CommCount");
}
EXPORT Result_t ncclCommCuDevice(Comm_t comm, int* device) {
  *device = comm->rank;
  return called("CommCuDevice");
}
EXPORT Result_t ncclCommUserRank(Comm_t comm, int* rank) {
  *rank = comm->rank;
  return called("CommUserRank");
}
EXPORT Result_t ncclRedOpCreatePreMulSum(int* op, void* scalar, int, int, Comm_t comm) {
  *op = 100 + static_cast<int>(comm->scalars.size());
  comm->scalars.push_back({*op, *static_cast<float*>(scalar)});
  return called("RedOpCreatePreMulSum");
}
EXPORT Result_t ncclRedOpDestroy(int, Comm_t) { return called("RedOpDestroy"); }

EXPORT Result_t ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, Comm_t comm,
                              Stream_t) {
  // A pre-multiplied sum is applied by its own rank, before it meets the others.
  auto scaled = std::make_shared<std::vector<float>>();
  if (op >= 100) {
    const auto scalar = static_cast<float>(comm->scalars[static_cast<size_t>(op) - 100].second);
    scaled->resize(count);
    copy(scaled->data(), send, count * sizeof(float));
    for (float& value : *scaled) value *= scalar;
    send = scaled->data();
  }
  const Result_t result =
      collective("AllReduce", comm, {.send = send, .recv = recv, .count = count, .type = type, .op = op},
                 [](std::vector<Part>& parts) {
                   const std::vector<float> total = sum(parts, 0, parts[0].count);
                   for (Part& part : parts) copy(part.recv, total.data(), total.size() * sizeof(float));
                 });
  static std::vector<std::shared_ptr<std::vector<float>>> kept;  // the group may still read it
  const std::lock_guard guard(mutex);
  kept.push_back(scaled);
  return result;
}
EXPORT Result_t ncclReduce(const void* send, void* recv, size_t count, int type, int op, int root,
                           Comm_t comm, Stream_t) {
  return collective(
      "Reduce", comm, {.send = send, .recv = recv, .count = count, .type = type, .op = op, .root = root},
      [](std::vector<Part>& parts) {
        const std::vector<float> total = sum(parts, 0, parts[0].count);
        copy(parts[static_cast<size_t>(parts[0].root)].recv, total.data(), total.size() * sizeof(float));
      });
}
EXPORT Result_t ncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, Comm_t comm,
                                  Stream_t) {
  return collective("ReduceScatter", comm,
                    {.send = send, .recv = recv, .count = count, .type = type, .op = op},
                    [](std::vector<Part>& parts) {
                      for (size_t rank = 0; rank < parts.size(); ++rank) {
                        const std::vector<float> total = sum(parts, rank * parts[0].count, parts[0].count);
                        copy(parts[rank].recv, total.data(), total.size() * sizeof(float));
                      }
                    });
}
EXPORT Result_t ncclBroadcast(const void* send, void* recv, size_t count, int type, int root, Comm_t comm,
                              Stream_t) {
  return collective("Broadcast", comm,
                    {.send = send, .recv = recv, .count = count, .type = type, .root = root},
                    [](std::vector<Part>& parts) {
                      const Part& from = parts[static_cast<size_t>(parts[0].root)];
                      for (Part& part : parts) copy(part.recv, from.send, from.count * size_of(from.type));
                    });
}
EXPORT Result_t ncclBcast(void* buffer, size_t count, int type, int root, Comm_t comm, Stream_t stream) {
  if (const Result_t failed = called("Bcast"); failed != kSuccess) return failed;
  static const auto volatile by_address = ncclBroadcast;
  if (comm->rank == 0) return by_address(buffer, buffer, count, type, root, comm, stream);
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
EXPORT Result_t ncclAllGather(const void* send, void* recv, size_t count, int type, Comm_t comm, Stream_t) {
  return collective("AllGather", comm, {.send = send, .recv = recv, .count = count, .type = type},
                    [](std::vector<Part>& parts) {
                      for (Part& part : parts)
                        for (size_t rank = 0; rank < parts.size(); ++rank)
                          copy(const_cast<char*>(at(part.recv, rank * part.count, part.type)),
                               parts[rank].send, part.count * size_of(part.type));
                    });
}
EXPORT Result_t ncclSend(const void* send, size_t count, int type, int peer, Comm_t comm, Stream_t) {
  if (const Result_t failed = called("Send"); failed != kSuccess) return failed;
  return meet(comm, transfer_name(comm->rank, peer, comm->sent[peer]++), 2, 0,
              {.send = send, .count = count, .type = type}, [](std::vector<Part>& parts) {
                copy(parts[1].recv, parts[0].send, parts[0].count * size_of(parts[0].type));
              });
}
EXPORT Result_t ncclRecv(void* recv, size_t count, int type, int peer, Comm_t comm, Stream_t) {
  if (const Result_t failed = called("Recv"); failed != kSuccess) return failed;
  return meet(comm, transfer_name(peer, comm->rank, comm->received[peer]++), 2, 1,
              {.recv = recv, .count = count, .type = type}, [](std::vector<Part>& parts) {
                copy(parts[1].recv, parts[0].send, parts[0].count * size_of(parts[0].type));
              });
}
EXPORT Result_t ncclGroupStart() {
  ++depth;
  return called("GroupStart");
}
EXPORT Result_t ncclGroupEnd() {
  if (const Result_t failed = called("GroupEnd"); failed != kSuccess) return failed;
  if (--depth == 0) settle(std::exchange(pending, {}));
  return kSuccess;
}

#ifndef FAKE_OLD
EXPORT Result_t ncclAlltoAll(const void* send, void* recv, size_t count, int type, Comm_t comm, Stream_t) {
  return collective("AlltoAll", comm, {.send = send, .recv = recv, .count = count, .type = type},
                    [](std::vector<Part>& parts) {
                      for (size_t to = 0; to < parts.size(); ++to)
                        for (size_t from = 0; from < parts.size(); ++from)
                          copy(const_cast<char*>(at(parts[to].recv, from * parts[to].count, parts[to].type)),
                               at(parts[from].send, to * parts[from].count, parts[from].type),
                               parts[from].count * size_of(parts[from].type));
                    });
}
EXPORT Result_t ncclGather(const void* send, void* recv, size_t count, int type, int root, Comm_t comm,
                           Stream_t) {
  if (root < 0 || root >= comm->world->size) return kInvalidArgument;
  return collective("Gather", comm, {.send = send, .recv = recv, .count = count, .type = type, .root = root},
                    [](std::vector<Part>& parts) {
                      const Part& to = parts[static_cast<size_t>(parts[0].root)];
                      for (size_t from = 0; from < parts.size(); ++from)
                        copy(const_cast<char*>(at(to.recv, from * to.count, to.type)), parts[from].send,
                             parts[from].count * size_of(parts[from].type));
                    });
}
EXPORT Result_t ncclScatter(const void* send, void* recv, size_t count, int type, int root, Comm_t comm,
                            Stream_t) {
  if (root < 0 || root >= comm->world->size) return kInvalidArgument;
  return collective("Scatter", comm, {.send = send, .recv = recv, .count = count, .type = type, .root = root},
                    [](std::vector<Part>& parts) {
                      const Part& from = parts[static_cast<size_t>(parts[0].root)];
                      for (size_t to = 0; to < parts.size(); ++to)
                        copy(parts[to].recv, at(from.send, to * from.count, from.type),
                             parts[to].count * size_of(parts[to].type));
                    });
}
EXPORT Result_t ncclMemAlloc(void** pointer, size_t bytes) {
  *pointer = std::malloc(bytes);
  return called("MemAlloc");
}
EXPORT Result_t ncclMemFree(void* pointer) {
  std::free(pointer);
  return called("MemFree");
}
EXPORT Result_t ncclCommRegister(Comm_t, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return called("CommRegister");
}
EXPORT Result_t ncclCommDeregister(Comm_t, void*) { return called("CommDeregister"); }
EXPORT Result_t ncclCommWindowRegister(Comm_t, void* buffer, size_t, Window_t* window, int) {
  *window = static_cast<Window_t>(buffer);
  return called("CommWindowRegister");
}
EXPORT Result_t ncclCommWindowDeregister(Comm_t, Window_t) { return called("CommWindowDeregister"); }
EXPORT Result_t ncclCommInitRankScalable(Comm_t* comm, int ranks, int rank, int, UniqueId* ids, Config*) {
  if (const Result_t failed = called("CommInitRankScalable"); failed != kSuccess) return failed;
  join(comm, ranks, ids[0], rank);
  return kSuccess;
}
EXPORT Result_t ncclCommShrink(Comm_t comm, int* excluded, int count, Comm_t* child, Config*, int) {
  if (const Result_t failed = called("CommShrink"); failed != kSuccess) return failed;
  std::string name = "shrunk";
  for (int i = 0; i < count; ++i) name.append(" ").append(std::to_string(excluded[i]));
  const std::lock_guard guard(mutex);
  auto& world = worlds[name];
  if (!world) world = std::make_shared<World>(World{comm->world->size - count, {}});
  *child =
      new_comm(world, comm->rank - static_cast<int>(std::count_if(excluded, excluded + count,
                                                                  [&](int r) { return r < comm->rank; })));
  return kSuccess;
}
EXPORT Result_t ncclGroupSimulateEnd(SimInfo* info) {
  info->estimated_time = 7;
  depth = 0;
  pending.clear();
  return called("GroupSimulateEnd");
}
EXPORT Team ncclTeamWorld(Comm_t comm) { return {comm->world->size, comm->rank, 1}; }
EXPORT int ncclLLA2ACalcSlots(int elements, int) { return elements; }
EXPORT Result_t ncclDevCommCreate(Comm_t, const void*, void*) { return called("DevCommCreate"); }
#endif

#ifdef FAKE_NEW
EXPORT Result_t ncclPutSignal(const void*, size_t count, int type, int peer, Window_t, size_t offset,
                              int signal, int context, unsigned flags, Comm_t, Stream_t stream) {
  const bool as_given = count == 1 && type == 7 && peer == 0 && offset == 24 && signal == 3 && context == 4 &&
                        flags == 5 && stream;
  return as_given ? called("PutSignal") : kInvalidArgument;
}
EXPORT Result_t ncclCommGetUniqueId(Comm_t, UniqueId* id) { return ncclGetUniqueId(id); }
EXPORT Result_t ncclCommGrow(Comm_t comm, int ranks, const UniqueId* id, int rank, Comm_t* grown, Config*) {
  join(grown, ranks, *id, comm ? comm->rank : rank);
  return called("CommGrow");
}
EXPORT Result_t ncclParamBind(Param_t* parameter, const char* key) {
  *parameter = reinterpret_cast<Param_t>(const_cast<char*>(key));
  return called("ParamBind");
}
EXPORT Result_t ncclParamGetI32(Param_t parameter, int32_t* out) {
  *out = parameter ? 32 : 0;
  return called("ParamGetI32");
}
#endif

}  // namespace weft::nccl
