// A client of PMIx, which Open MPI's mpirun and srun --mpi=pmix serve. The library is not linked: it is
// loaded when a launcher asks for it, so that programs run where there is none.
#include "base/fork.h"
#include "base/mutex.h"
#include "bootstrap/id_exchange.h"

#if defined(WEFT_HAVE_PMIX)

#include <dlfcn.h>
#include <pmix.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

namespace weft::bootstrap {
namespace {

/// The functions of libpmix that we use.
struct PmixLibrary {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence_nb = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

  Status load() {
    // Global: its plug-ins find its symbols that way. Never unloaded: it has threads.
    void* const handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr)
      return fail(Code::unsupported,
                  "the launcher offers PMIx, but libpmix.so.2 (of Debian's libpmix2) cannot be loaded: {}; "
                  "without it set WEFT_ROOT=host:port, with the host of rank 0, or use srun --mpi=pmi2",
                  dlerror());
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      return function != nullptr;
    };
    const bool complete = find(init, "PMIx_Init") && find(finalize, "PMIx_Finalize") &&
                          find(put, "PMIx_Put") && find(commit, "PMIx_Commit") &&
                          find(fence_nb, "PMIx_Fence_nb") && find(get, "PMIx_Get") &&
                          find(error_string, "PMIx_Error_string");
    return complete ? Status() : fail(Code::unsupported, "libpmix.so.2 lacks functions of PMIx 3 or later");
  }
};

class PmixClient {
 public:
  static PmixClient& instance() {
    static PmixClient client;
    return client;
  }

  /// PMIx counts its users: MPI, if the program uses it, comes and goes independently. A forked child that
  /// ends has the library's memory, but not its threads.
  ~PmixClient() {
    if (begun_ && owner_.here()) library_.finalize(nullptr, 0);
  }

  Status begin() {
    if (begun_) return {};
    WEFT_TRY(library_.load());
    WEFT_TRY(checked(library_.init(&self_, nullptr, 0), "PMIx_Init"));
    begun_ = true;
    return {};
  }

  Status put(const std::string& key, std::string value) {
    pmix_value_t wrapped{};
    wrapped.type = PMIX_STRING;
    wrapped.data.string = value.data();
    WEFT_TRY(checked(library_.put(PMIX_GLOBAL, key.c_str(), &wrapped), "PMIx_Put"));
    return checked(library_.commit(), "PMIx_Commit");
  }

  /// Waits for all ranks, with their data.
  Status fence(Deadline deadline) {
    struct Fence {
      Mutex mutex;
      std::condition_variable_any changed;
      bool done WEFT_GUARDED_BY(mutex) = false;
      pmix_status_t status WEFT_GUARDED_BY(mutex) = PMIX_SUCCESS;
    };
    // Shared with the library's thread, which may still use it after our deadline.
    const auto fence = std::make_shared<Fence>();
    auto held = std::make_unique<std::shared_ptr<Fence>>(fence);
    const auto finished = [](pmix_status_t status, void* data) {
      const std::unique_ptr<std::shared_ptr<Fence>> held(static_cast<std::shared_ptr<Fence>*>(data));
      const MutexLock lock((*held)->mutex);
      (*held)->status = status;
      (*held)->done = true;
      (*held)->changed.notify_all();
    };
    pmix_proc_t everybody{};
    std::memcpy(everybody.nspace, self_.nspace, sizeof everybody.nspace);
    everybody.rank = PMIX_RANK_WILDCARD;
    pmix_info_t collect{};
    std::strncpy(collect.key, PMIX_COLLECT_DATA, sizeof collect.key - 1);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    WEFT_TRY(checked(library_.fence_nb(&everybody, 1, &collect, 1, finished, held.get()), "PMIx_Fence_nb"));
    held.release();  // now the callback's
    MutexLock lock(fence->mutex);
    while (!fence->done) {
      if (deadline.passed())
        return fail(Code::timeout, "not all ranks came to PMIx's fence before the deadline");
      fence->changed.wait_for(lock, std::chrono::milliseconds(deadline.remaining_ms(60'000)));
    }
    return checked(fence->status, "PMIx_Fence");
  }

  Result<std::string> get(const std::string& key) {
    pmix_proc_t root{};
    std::memcpy(root.nspace, self_.nspace, sizeof root.nspace);
    root.rank = 0;
    pmix_value_t* value = nullptr;
    WEFT_TRY(checked(library_.get(&root, key.c_str(), nullptr, 0, &value), "PMIx_Get"));
    const bool text = value->type == PMIX_STRING && value->data.string != nullptr;
    std::string out = text ? value->data.string : "";
    if (text) std::free(value->data.string);
    std::free(value);
    return out;
  }

  std::string next_key() { return fmt::format("weft-id-{}", exchanges_++); }
  Mutex& mutex() WEFT_RETURN_CAPABILITY(mutex_) { return mutex_; }

 private:
  Status checked(pmix_status_t status, const char* what) const {
    if (status == PMIX_SUCCESS) return {};
    return fail(Code::remote_error, "{}: {} ({})", what, library_.error_string(status), status);
  }

  Mutex mutex_;
  const Ownership owner_;
  PmixLibrary library_;
  bool begun_ = false;
  pmix_proc_t self_{};
  int exchanges_ = 0;
};

}  // namespace

bool built_with_pmix() { return true; }

Result<UniqueId> exchange_over_pmix(int rank, Deadline deadline) {
  PmixClient& pmix = PmixClient::instance();
  const MutexLock lock(pmix.mutex());
  WEFT_TRY(pmix.begin());
  const KeyValueSpace space = {
      .put = [&](const std::string& key, const std::string& value) { return pmix.put(key, value); },
      .fence = [&] { return pmix.fence(deadline); },
      .get = [&](const std::string& key) { return pmix.get(key); },
  };
  return exchange_id(space, rank, pmix.next_key());
}

}  // namespace weft::bootstrap

#else

namespace weft::bootstrap {

bool built_with_pmix() { return false; }

Result<UniqueId> exchange_over_pmix(int, Deadline) {
  return fail(Code::unsupported,
              "the launcher offers PMIx, but Weft was built without its headers (libpmix-dev); set "
              "WEFT_ROOT=host:port, with "
              "the host of rank 0, instead");
}

}  // namespace weft::bootstrap

#endif
