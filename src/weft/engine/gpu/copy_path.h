// CopyPath: long collectives of a communicator of GPU memory as copies on the caller's stream. Copy engines
// move the data; streams of ranks wait for each other by stream memory operations on the flags of a
// NodeBoard. There is no kernel of Weft in it, and no thread.
//
// The plan is plan::make_staged_copies(). Every rank has staging in GPU memory that all others reach, and no
// copy touches a buffer of another rank's caller. So a rank that fails may give its buffers away, whatever
// is queued elsewhere, and ranks exchange no addresses.
//
// In the stream of a call stand, in this order:
//   1. a wait until the operation before has been done
//   2. a write of `begun`
//   3. a wait until the readers of the operation before are done
//   4. the plan's steps, but for the last waits for readers
//   5. a write of `ended`
// A copy is one call of the driver. Consecutive writes and waits are one call, too, if the driver has
// cuStreamBatchMemOp.
//
// Calls of several communicators on one stream keep one order on all ranks. Else each rank's stream waits in
// one communicator for a peer whose stream waits in another, and the communicators fail after the timeout.
//
// A stream memory operation cannot time out. When an operation fails, its rank first writes on the board
// that it has failed. Then it raises its own flags, so that its streams pass all waits (is_drained()). Data
// that they stage afterwards may be wrong for ranks that still read it. Those ranks read the board when
// their operation has ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/gpu/device_executor.h"
#include "engine/gpu/node_board.h"
#include "engine/gpu/offered_memory.h"
#include "engine/gpu/stream_path.h"

namespace weft::engine {

class CopyPath final : public StreamPath, public std::enable_shared_from_this<CopyPath> {
 public:
  /// What a rank tells the others, as plain bytes.
  struct Offer {
    uint64_t staging_bytes = 0;
    uint64_t from_bytes = 0;  // WEFT_CUDA_COPY_FROM
    cuda::SharedMemory staging;
  };

  /// Of rank `rank` of `ranks`, with the board of its communicator. Errors: unsupported,
  /// unhandled_cuda_error, out_of_memory.
  static Result<std::shared_ptr<CopyPath>> create(DeviceExecutor& executor, std::shared_ptr<NodeBoard> board,
                                                  int rank, int ranks);
  ~CopyPath() override;

  Result<Offer> offer();
  /// Reaches the staging of all ranks, whose offers these are. Errors: unsupported, with the reason.
  Status connect(std::span<const Offer> offers);
  /// No rank will use the path: the staging can be used again.
  void withdraw() { offered_ = false; }

  Result<uint64_t> arrive(Lock& lock, const Operation& op,
                          const std::shared_ptr<const Served>& served) override WEFT_REQUIRES(context_lock);
  Status leave(Lock& lock, uint64_t epoch) override WEFT_REQUIRES(context_lock);
  bool has_begun(uint64_t epoch) const override;
  Result<bool> has_ended(uint64_t epoch) override;
  std::string holds_up(uint64_t epoch) const override;
  void let_go(uint64_t epoch) override;
  bool is_drained() override;

 private:
  /// A notification from a rank.
  struct Notice {
    int sender;
    uint32_t tag;
  };
  struct Copies final : Served {
    plan::Plan plan;
    // Of the plan's steps arrive() puts those before the first into the stream, leave() those before the
    // second.
    size_t begin_steps = 0, end_steps = 0;
    std::vector<Notice> last;  // that the steps behind them wait for
  };
  struct InFlight {
    std::shared_ptr<const Copies> copies;
    const std::byte* input;
    std::byte* output;
    cuda::StreamHandle* stream;
    uint64_t stream_number;  // number_of_stream()
    bool left = false;       // its end is in the stream, or the driver takes nothing more
    bool over = false;       // let_go() has come
  };
  class Writer;

  CopyPath(DeviceExecutor& executor, std::shared_ptr<NodeBoard> board, int rank, int ranks);
  std::shared_ptr<Served> make(const plan::Request& request, bool scaled,
                               const Prices& prices) const override;
  Status begin(const InFlight& call, uint64_t epoch, std::span<const Notice> unread);
  Status end(Writer& writer, uint64_t epoch);
  void note_left(uint64_t epoch, const Status& ended);
  std::byte* place(const plan::Region& region, const InFlight& call) const;
  Status put(Writer& writer, const InFlight& call, uint64_t epoch, size_t first, size_t end);
  bool is_clean() const;

  DeviceExecutor& executor_;
  const std::shared_ptr<NodeBoard> board_;
  const int rank_, ranks_;
  uint64_t staging_bytes_ = 0, from_bytes_ = 0;
  OfferedMemory memory_;                // one block: the own staging
  std::vector<std::byte*> staging_of_;  // by rank
  bool offered_ = false;                // peers may read the staging
  uint64_t arrived_ = 0;                // an epoch
  std::map<uint64_t, InFlight> in_flight_;
  std::vector<Notice>
      unread_;  // of the operation that arrived last: when they have come, its staging is free
  bool failed_ = false;
  bool unknown_ = false;  // the driver takes nothing more: what it still does, nobody knows
  size_t lingering_ = 0;  // operations that are over before their streams were
};

}  // namespace weft::engine
