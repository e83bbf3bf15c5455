// Opening libfabric, and finding its functions.
#include "transport/ofi_library.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>

#include <array>

namespace weft::transport::ofi {
namespace {

constexpr const char* kFile = "libfabric.so.1";

template <typename Function>
bool find(void* file, const char* symbol, Function*& into) {
  into = reinterpret_cast<Function*>(dlsym(file, symbol));
  return into != nullptr;
}

/// Restores the handlers of faults. Libraries of some providers replace the program's and the memory watch's
/// handlers when they are loaded: libinfinipath's prints a backtrace and ends the process.
class FaultHandlers {
 public:
  FaultHandlers() {
    for (size_t i = 0; i < kFaults.size(); ++i) sigaction(kFaults[i], nullptr, &found_[i]);
  }
  ~FaultHandlers() {
    struct sigaction now;
    for (size_t i = 0; i < kFaults.size(); ++i)
      if (sigaction(kFaults[i], nullptr, &now) == 0 && now.sa_sigaction != found_[i].sa_sigaction)
        sigaction(kFaults[i], &found_[i], nullptr);
  }
  FaultHandlers(const FaultHandlers&) = delete;
  FaultHandlers& operator=(const FaultHandlers&) = delete;

 private:
  static constexpr std::array kFaults{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  std::array<struct sigaction, kFaults.size()> found_;
};

/// Has providers over TCP hand each message to the kernel before they report it as sent. A message that does
/// not fit into a socket would otherwise wait in a buffer of the provider, which only a later poll empties,
/// and which is dropped with the endpoint. Providers read these variables when libfabric is first used in the
/// process; values that the user has set stay.
void turn_off_staging() {
  for (const char* const variable : {"FI_NET_STAGING_SBUF_SIZE", "FI_TCP_STAGING_SBUF_SIZE"})
    setenv(variable, "0", 0);
}

/// Programs fork: Python starts its data loaders that way. Before Linux 5.13 EFA's provider ends a process
/// that forks while it has registered memory, unless this was set when libfabric was first used. Later it
/// costs nothing.
void expect_forks() { setenv("FI_EFA_FORK_SAFE", "1", 0); }

Result<Library*> open() {
  const FaultHandlers kept;
  turn_off_staging();
  expect_forks();
  void* const file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!file) return fail(Code::unsupported, "libfabric cannot be loaded: {}", dlerror());
  static Library l;
  if (!find(file, "fi_version", l.version) || !find(file, "fi_getinfo", l.getinfo) ||
      !find(file, "fi_dupinfo", l.dupinfo) || !find(file, "fi_freeinfo", l.freeinfo) ||
      !find(file, "fi_fabric", l.fabric) || !find(file, "fi_strerror", l.strerror)) {
    return fail(Code::unsupported, "{} is not libfabric: {}", kFile, dlerror());
  }
  if (const uint32_t version = l.version(); version < kInterface) {
    return fail(Code::unsupported, "libfabric is {}.{}, must be {}.{} or later", FI_MAJOR(version),
                FI_MINOR(version), FI_MAJOR(kInterface), FI_MINOR(kInterface));
  }
  return &l;
}

const Result<Library*>& opened() {
  static const Result<Library*> once = open();
  return once;
}

}  // namespace

Result<const Library*> open_library() {
  if (!opened()) return opened().status();
  return *opened();
}

const Library& library() {
  static const Library& there = **opened();
  return there;
}

Library* library_to_change() { return opened() ? *opened() : nullptr; }

}  // namespace weft::transport::ofi
