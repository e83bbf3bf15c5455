// Session: the communicator of a perf tool's ranks, and what the tool needs from it besides the collective
// under test. A call that fails ends the process: it says which, why and on which rank, and exits with 3.
//
// Not thread-safe.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/mpi_module.h"
#include "cuda.h"
#include "options.h"
#include "weft/weft.h"

namespace weft::perf {

/// `why` with the call in front, which Weft's sentences mostly have already.
std::string told_by(const std::string& call, const std::string& why);

class Session {
 public:
  /// Joins the ranks that the launcher started.
  explicit Session(const Options& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Whose collectives are under test from now on: a number of Options::backends, the first to begin with.
  void use(size_t backend);
  /// The communicator under test; with backend mpi it is there, but MPI does the work.
  weftComm_t comm() const { return comm_; }
  /// Null but with backend mpi.
  const MpiModule* mpi() const { return comm_is_mpis_ ? mpi_ : nullptr; }
  /// Whether NCCL does what is under test.
  bool is_nccls() const { return comm_is_nccls_; }
  weftStream_t stream() const { return stream_; }  // null for blocking calls
  /// Returns when what was called on the stream is done.
  void finish() const;
  /// Null unless buffers are GPU memory.
  Cuda* cuda() const { return cuda_.get(); }

  /// Ends the process unless `result` is success; `what` is the call.
  void must(weftResult_t result, const char* what) const;
  /// Returns when all ranks have come.
  void barrier();
  /// Every rank's value, in rank order.
  template <typename Value>
  std::vector<Value> gather(const Value& mine) {
    std::vector<Value> all(static_cast<size_t>(ranks_));
    must(weftAllGather(&mine, all.data(), sizeof(Value), weftUint8, control_, nullptr),
         "weftAllGather of results");
    return all;
  }
  /// True the first time.
  bool has_just_started() { return std::exchange(just_started_, false); }
  weftCommStats_t stats() const;
  /// KiB by which this process has grown since before the communicator was created.
  long grown_kib() const;

 private:
  void join_by_mpi();
  weftComm_t make_comm(const std::string& backend);

  const MpiModule* mpi_ = nullptr;
  std::unique_ptr<Cuda> cuda_;
  int device_ = 0;
  weftComm_t control_ = nullptr;   // of host memory, for times and results of ranks
  std::vector<weftComm_t> comms_;  // of each backend: control_, or one of GPU memory or of NCCL
  std::vector<std::string> backends_;
  weftComm_t comm_ = nullptr;  // the one of them that is in use
  bool comm_is_mpis_ = false, comm_is_nccls_ = false;
  weftStream_t stream_ = nullptr;
  int rank_ = 0, ranks_ = 1;
  bool just_started_ = true;
  long before_kib_;
};

/// One buffer, zero, 4 KiB-aligned but for a wanted shift, with a margin behind it that nobody may write to.
class Buffer {
 public:
  static constexpr size_t kMargin = 256;  // bytes

  Buffer(const Session& session, size_t bytes, size_t shift, bool registered);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return base_ + shift_; }
  /// What a place in the buffer looks like from the CPU: itself, or its image.
  std::byte* image(std::byte* at) const { return image_ ? image_ + (at - base_) : at; }
  /// Of GPU memory, brings a part of the image to it, or back.
  void upload(std::byte* at, size_t bytes) const;
  void download(std::byte* at, size_t bytes) const;

 private:
  const Session& session_;
  const bool registered_;
  const size_t shift_;
  std::byte* base_ = nullptr;
  std::byte* image_ = nullptr;  // in host memory, of GPU memory
  void* handle_ = nullptr;
};

}  // namespace weft::perf
