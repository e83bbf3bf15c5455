#include "session.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace weft::perf {
namespace {

constexpr int kCallFailed = 3;
constexpr size_t kPage = 4096;

long resident_kib() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<long>(kPage / 1024);
}

/// The module of the MPI whose launcher started this process. Ends the process if there is none.
const MpiModule* load_mpi() {
  const char* const kind = std::getenv("OMPI_COMM_WORLD_SIZE") ? "openmpi"
                           : std::getenv("PMI_SIZE")           ? "mpich"
                                                               : nullptr;
  if (!kind) {
    std::fprintf(stderr,
                 "--backend mpi wants ranks that mpirun or mpiexec has started: Open MPI's or MPICH's\n");
    std::_Exit(kCallFailed);
  }
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) std::_Exit(kCallFailed);
  const std::string folder(program, std::strrchr(program, '/'));
  const std::string file = folder + "/../lib/weft-perf/weft_perf_" + kind + ".so";
  void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module) return static_cast<const MpiModule*>(dlsym(module, kMpiModule));
  std::fprintf(stderr,
               "--backend mpi: %s\nIt is made where CMake finds mpicxx.%s, and stays in the build tree: "
               "installed tools "
               "are without. Start build/bin/%s instead\n",
               dlerror(), kind, program_invocation_short_name);
  std::_Exit(kCallFailed);
}

}  // namespace

std::string told_by(const std::string& call, const std::string& why) {
  return why.starts_with(call + ":") ? why : call + ": " + why;
}

Session::Session(const Options& options) : backends_(options.backends), before_kib_(resident_kib()) {
  if (options.timeout_s > 0) setenv("WEFT_TIMEOUT_S", std::to_string(options.timeout_s).c_str(), 1);
  if (!options.measures("")) setenv("WEFT_BACKEND", "weft", 1);
  if (options.measures("mpi")) join_by_mpi();
  else must(weftCommInitEnv(&control_), "weftCommInitEnv");
  comm_ = control_;
  must(weftCommUserRank(comm_, &rank_), "weftCommUserRank");
  must(weftCommCount(comm_, &ranks_), "weftCommCount");
  if (options.cuda) {
    cuda_ = std::make_unique<Cuda>("rank " + std::to_string(rank_) + ": ");
    device_ = rank_ % std::max(cuda_->devices(), 1);
    cuda_->use(device_);
  }
  for (const std::string& backend : backends_)
    comms_.push_back(options.cuda || backend == "nccl" ? make_comm(backend) : control_);
  use(0);
  if (cuda_) stream_ = static_cast<weftStream_t>(cuda_->stream());
  else if (!options.blocking) must(weftStreamCreate(&stream_), "weftStreamCreate");
}

Session::~Session() {
  if (stream_ && !cuda_) must(weftStreamDestroy(stream_), "weftStreamDestroy");
  for (weftComm_t comm : comms_)
    if (comm != control_) must(weftCommDestroy(comm), "weftCommDestroy");
  comm_ = control_;
  must(weftCommDestroy(control_), "weftCommDestroy");
  if (mpi_) mpi_->finish();
}

void Session::use(size_t backend) {
  comm_ = comms_[backend];
  comm_is_mpis_ = backends_[backend] == "mpi";
  const char* const setting = std::getenv("WEFT_BACKEND");
  comm_is_nccls_ = backends_[backend].empty() ? setting && std::strcmp(setting, "nccl") == 0
                                              : backends_[backend] == "nccl";
}

// MPI comes first: it uses the launcher's connection, which Weft would take. Weft's ranks then meet over MPI.
void Session::join_by_mpi() {
  mpi_ = load_mpi();
  mpi_->start(&rank_, &ranks_);
  weftUniqueId id;
  if (rank_ == 0) must(weftGetUniqueId(&id), "weftGetUniqueId");
  mpi_->broadcast(&id, sizeof id);
  must(weftCommInitRank(&control_, ranks_, id, rank_), "weftCommInitRank");
}

// NCCL takes its device from the thread.
weftComm_t Session::make_comm(const std::string& backend) {
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  if (backend == "nccl") {
    config.backend = WEFT_BACKEND_NCCL;
  } else {
    config.device = device_;
    must(weftDeviceQuery(device_), "weftDeviceQuery");
  }
  weftComm_t made = nullptr;
  must(weftCommSplit(control_, 0, rank_, &made, &config), "weftCommSplit");
  return made;
}

void Session::must(weftResult_t result, const char* what) const {
  if (result == weftSuccess) return;
  weftResult_t health = weftSuccess;
  const bool of_device = comm_ != control_ && weftCommGetAsyncError(comm_, &health) == weftSuccess && health;
  const std::string who = comm_ ? "rank " + std::to_string(rank_) + ": " : "";
  std::fflush(stdout);
  const bool of_mpi = mpi() && *mpi_->last_error();
  const std::string why =
      of_mpi ? mpi_->last_error() : told_by(what, weftGetLastError(of_device ? comm_ : control_));
  std::fprintf(stderr, "%s%s (%s)\n", who.c_str(), why.c_str(), weftGetErrorString(result));
  std::_Exit(kCallFailed);  // no destructors: what has failed cannot be ended in good order
}

void Session::finish() const {
  if (cuda_) {
    cuda_->synchronize();
    weftResult_t health = weftSuccess;  // a CUDA stream says nothing of failures
    must(weftCommGetAsyncError(comm_, &health), "weftCommGetAsyncError");
    if (health != weftInProgress) must(health, "an operation");
  } else if (stream_) {
    must(weftStreamSynchronize(stream_), "weftStreamSynchronize");
  }
}

void Session::barrier() {
  float in = 0, out = 0;
  must(weftAllReduce(&in, &out, 1, weftFloat32, weftSum, control_, nullptr), "weftAllReduce as barrier");
}

weftCommStats_t Session::stats() const {
  weftCommStats_t stats = WEFT_COMM_STATS_INITIALIZER;
  must(weftCommGetStats(comm(), &stats), "weftCommGetStats");
  return stats;
}

long Session::grown_kib() const { return resident_kib() - before_kib_; }

Buffer::Buffer(const Session& session, size_t bytes, size_t shift, bool registered)
    : session_(session), registered_(registered), shift_(shift) {
  const size_t total = (bytes + shift + kMargin + kPage - 1) / kPage * kPage;
  void* memory = nullptr;
  if (session_.cuda()) {
    image_ = static_cast<std::byte*>(std::aligned_alloc(kPage, total));
    base_ = session_.cuda()->allocate(total);
    std::memset(image_, 0, total);
    session_.cuda()->copy(base_, image_, total);
    return;
  }
  if (registered_) {
    session_.must(weftMemAlloc(&memory, total), "weftMemAlloc");
    session_.must(weftCommRegister(session_.comm(), memory, total, &handle_), "weftCommRegister");
  } else {
    memory = std::aligned_alloc(kPage, total);
    if (!memory) {
      std::fprintf(stderr, "rank %d: no memory for a buffer of %zu bytes\n", session_.rank(), total);
      std::_Exit(kCallFailed);
    }
  }
  std::memset(memory, 0, total);  // so that no page is missing when time is taken
  base_ = static_cast<std::byte*>(memory);
}

void Buffer::upload(std::byte* at, size_t bytes) const {
  if (image_) session_.cuda()->copy(at, image(at), bytes);
}

void Buffer::download(std::byte* at, size_t bytes) const {
  if (image_) session_.cuda()->copy(image(at), at, bytes);
}

Buffer::~Buffer() {
  if (session_.cuda()) {
    session_.cuda()->free(base_);
    std::free(image_);
    return;
  }
  if (registered_) {
    session_.must(weftCommDeregister(session_.comm(), handle_), "weftCommDeregister");
    session_.must(weftMemFree(base_), "weftMemFree");
  } else {
    std::free(base_);
  }
}

}  // namespace weft::perf
