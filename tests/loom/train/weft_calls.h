// Looks at what Weft is handed, by standing in front of the functions that communicate, for all threads of
// the process: whether memory is registered with the communicator that it is for. To be included by one file
// of a program, which must have Weft as a shared library.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace loom::testing {

class WeftCalls {
 public:
  struct Seen {
    std::map<std::string, int64_t> calls;   // by function, on communicators that were split from others
    std::vector<std::string> unregistered;  // what they were handed that is not registered, a sentence each
  };

  static void begin() {
    const std::lock_guard lock(mutex_);
    seen_ = Seen();
    watching_ = true;
  }
  static Seen end() {
    const std::lock_guard lock(mutex_);
    watching_ = false;
    return seen_;
  }

  // What the functions below tell.
  static void split(weftComm_t comm) {
    const std::lock_guard lock(mutex_);
    registered_[comm];
  }
  static void destroyed(weftComm_t comm) {
    const std::lock_guard lock(mutex_);
    registered_.erase(comm);
  }
  static void registered(weftComm_t comm, const void* memory, size_t bytes, void* handle) {
    const std::lock_guard lock(mutex_);
    if (const auto known = registered_.find(comm); known != registered_.end())
      known->second[handle] = {static_cast<const std::byte*>(memory), bytes};
  }
  static void deregistered(weftComm_t comm, void* handle) {
    const std::lock_guard lock(mutex_);
    if (const auto known = registered_.find(comm); known != registered_.end()) known->second.erase(handle);
  }
  struct Memory {
    const void* begin;
    size_t elements;
  };
  static void called(const char* function, weftComm_t comm, weftDataType_t type,
                     std::initializer_list<Memory> handed) {
    const std::lock_guard lock(mutex_);
    const auto known = registered_.find(comm);
    if (!watching_ || known == registered_.end()) return;
    ++seen_.calls[function];
    for (const Memory& memory : handed) {
      const size_t bytes = memory.elements * size_of(type);
      const auto* const begin = static_cast<const std::byte*>(memory.begin);
      const auto holds = [&](const auto& entry) {
        const auto& [base, size] = entry.second;
        return begin >= base && begin + bytes <= base + size;
      };
      if (bytes > 0 && std::none_of(known->second.begin(), known->second.end(), holds))
        seen_.unregistered.push_back(fmt::format("{} of {} bytes", function, bytes));
    }
  }
  static size_t ranks_of(weftComm_t comm) {
    int ranks = 0;
    return weftCommCount(comm, &ranks) == weftSuccess ? static_cast<size_t>(ranks) : 1;
  }

 private:
  static size_t size_of(weftDataType_t type) {
    switch (type) {
      case weftInt8:
      case weftUint8: return 1;
      case weftFloat16:
      case weftBfloat16: return 2;
      case weftInt32:
      case weftUint32:
      case weftFloat32: return 4;
      default: return 8;
    }
  }

  static inline std::mutex mutex_;
  static inline bool watching_ = false;
  static inline Seen seen_;
  static inline std::map<weftComm_t, std::map<void*, std::pair<const std::byte*, size_t>>> registered_;
};

/// The library's function, of this one's name.
template <typename Function>
Function* behind(const char* name, Function*) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace loom::testing

#define LOOM_BEHIND(function) ::loom::testing::behind(#function, &(function))

extern "C" {

weftResult_t weftCommSplit(weftComm_t comm, int color, int key, weftComm_t* newcomm,
                           const weftConfig_t* config) {
  static auto* const behind = LOOM_BEHIND(weftCommSplit);
  const weftResult_t result = behind(comm, color, key, newcomm, config);
  if (result == weftSuccess && *newcomm != nullptr) loom::testing::WeftCalls::split(*newcomm);
  return result;
}

weftResult_t weftCommDestroy(weftComm_t comm) {
  static auto* const behind = LOOM_BEHIND(weftCommDestroy);
  loom::testing::WeftCalls::destroyed(comm);  // before another one can have its address
  return behind(comm);
}

weftResult_t weftCommRegister(const weftComm_t comm, void* memory, size_t bytes, void** handle) {
  static auto* const behind = LOOM_BEHIND(weftCommRegister);
  const weftResult_t result = behind(comm, memory, bytes, handle);
  if (result == weftSuccess) loom::testing::WeftCalls::registered(comm, memory, bytes, *handle);
  return result;
}

weftResult_t weftCommDeregister(const weftComm_t comm, void* handle) {
  static auto* const behind = LOOM_BEHIND(weftCommDeregister);
  loom::testing::WeftCalls::deregistered(comm, handle);
  return behind(comm, handle);
}

weftResult_t weftBroadcast(const void* from, void* to, size_t count, weftDataType_t type, int root,
                           weftComm_t comm, weftStream_t stream) {
  static auto* const behind = LOOM_BEHIND(weftBroadcast);
  loom::testing::WeftCalls::called("weftBroadcast", comm, type, {{from, count}, {to, count}});
  return behind(from, to, count, type, root, comm, stream);
}

weftResult_t weftGather(const void* from, void* to, size_t count, weftDataType_t type, int root,
                        weftComm_t comm, weftStream_t stream) {
  static auto* const behind = LOOM_BEHIND(weftGather);
  loom::testing::WeftCalls::called("weftGather", comm, type, {{from, count}, {to, count}});
  return behind(from, to, count, type, root, comm, stream);
}

weftResult_t weftAllReduce(const void* from, void* to, size_t count, weftDataType_t type, weftRedOp_t op,
                           weftComm_t comm, weftStream_t stream) {
  static auto* const behind = LOOM_BEHIND(weftAllReduce);
  loom::testing::WeftCalls::called("weftAllReduce", comm, type, {{from, count}, {to, count}});
  return behind(from, to, count, type, op, comm, stream);
}

weftResult_t weftReduceScatter(const void* from, void* to, size_t count, weftDataType_t type, weftRedOp_t op,
                               weftComm_t comm, weftStream_t stream) {
  static auto* const behind = LOOM_BEHIND(weftReduceScatter);
  const size_t all = count * loom::testing::WeftCalls::ranks_of(comm);
  loom::testing::WeftCalls::called("weftReduceScatter", comm, type, {{from, all}, {to, count}});
  return behind(from, to, count, type, op, comm, stream);
}

weftResult_t weftAllGather(const void* from, void* to, size_t count, weftDataType_t type, weftComm_t comm,
                           weftStream_t stream) {
  static auto* const behind = LOOM_BEHIND(weftAllGather);
  const size_t all = count * loom::testing::WeftCalls::ranks_of(comm);
  loom::testing::WeftCalls::called("weftAllGather", comm, type, {{from, count}, {to, all}});
  return behind(from, to, count, type, comm, stream);
}

weftResult_t weftSend(const void* from, size_t count, weftDataType_t type, int peer, weftComm_t comm,
                      weftStream_t stream) {
  static auto* const behind = LOOM_BEHIND(weftSend);
  loom::testing::WeftCalls::called("weftSend", comm, type, {{from, count}});
  return behind(from, count, type, peer, comm, stream);
}

weftResult_t weftRecv(void* to, size_t count, weftDataType_t type, int peer, weftComm_t comm,
                      weftStream_t stream) {
  static auto* const behind = LOOM_BEHIND(weftRecv);
  loom::testing::WeftCalls::called("weftRecv", comm, type, {{to, count}});
  return behind(to, count, type, peer, comm, stream);
}

}  // extern "C"
