// NodeBoard: words in pinned memory that all ranks of a communicator on one node reach, their CPUs and their
// streams. They say what each rank has called, whether it has failed, and whether its paths have ended. The
// flags of copies on callers' streams (copy_path.h) stand there, too. The node's lowest rank makes the
// memory, and every process maps it as long as one of its ranks needs it. So a rank that has left takes
// nothing from the others. Ranks are those of the communicator; those of other nodes write nothing.
//
// Thread safety: the memory is shared by ranks. A NodeBoard is under its context's lock, except where it says
// otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/cuda/device.h"
#include "device/segment.h"

namespace weft::engine {

namespace cuda = device::cuda;

class NodeBoard {
 public:
  static constexpr int kMostRanks = 16;
  static constexpr uint32_t kTags = 64;                           // of a sender to a receiver
  static constexpr uint32_t kCalls = 512;                         // of a rank, that are remembered
  static constexpr uint32_t kCaptures = 16, kCapturedCalls = 64;  // of a capture, that are remembered
  static constexpr uint32_t kChoices = 256;                       // of sets, that are remembered

  /// What the node's lowest rank tells the others, as plain bytes.
  struct Offer {
    uint64_t process = 0;  // as in SharedMemory
    int32_t pid = 0;
    device::SegmentName segment;
  };
  /// On the node's lowest rank, inside a Scope of the device. Errors: unsupported, out_of_memory,
  /// unhandled_cuda_error.
  static Result<std::unique_ptr<NodeBoard>> create(cuda::Device& device, int rank, int ranks);
  /// On the others.
  static Result<std::unique_ptr<NodeBoard>> open(cuda::Device& device, int rank, int ranks,
                                                 const Offer& offer);
  Result<Offer> offer() const;
  ~NodeBoard();

  // ---- Calls, as CPUs compare them

  /// This rank calls collective `number` on a path where nobody sends a message.
  void note_call(uint32_t number, uint32_t signature);
  /// On which of the process's streams this rank calls it, and which ranks it needs, a bit each. Another rank
  /// that has called it on the same stream, if each needs the other; -1: none. Of two such ranks at least one
  /// finds the other.
  int note_stream(uint32_t number, uint64_t stream, uint32_t partners);
  /// Compares this rank's collective of a number, which has ended if it has `partners`: ranks that it could
  /// not end without, a bit each.
  struct Comparison {
    int differing = -1;   // a rank that called another one; -1: none is known
    bool behind = false;  // a partner has not come to that number, and will find the difference itself
  };
  Comparison compare(uint32_t number, uint32_t signature, uint32_t partners) const;
  /// Both for call `index` of capture `capture`, each from 1 on, among those that are kernels of the graph.
  /// `history` stands for the signatures of the capture's calls up to this one. -1: no such rank has come
  /// here. Of two ranks at least one finds the other.
  struct Captured {
    int differing = -1;       // a rank with another history
    int on_same_stream = -1;  // as note_stream()
  };
  Captured note_captured(uint32_t capture, uint32_t index, uint32_t history, uint64_t stream,
                         uint32_t partners);
  /// This rank's stream has come to collective `number`, which it does on such a path.
  void note_begun(uint32_t number);
  /// Those of `partners` whose streams have not come to it, as far as they have noted.
  std::vector<int> find_late(uint32_t number, uint32_t partners) const;
  /// This rank's streams no longer wait for anybody: what it gives from now on may be wrong.
  void set_failed();
  /// Whether no other rank has done so. False: one has, and its report may still say why. Errors:
  /// remote_error, after a second without a report.
  Result<bool> peers_are_well();

  // ---- Sets of control memory, from 1 to kCaptures (capture_sets.h)

  /// This rank's graph of the capture that has this set is destroyed, and no kernel of it is under way.
  void note_set_unused(uint32_t set, uint32_t capture);
  /// Whether every rank of the node has noted that, and this rank has not cleared its part since.
  bool wants_clearing(uint32_t set, uint32_t capture) const;
  void note_set_cleared(uint32_t set, uint32_t capture);
  /// Whether every rank of the node has cleared its part after this capture.
  bool is_set_as_new(uint32_t set, uint32_t capture) const;
  /// The set of a capture: what the first rank to come here has chosen; 0 is none. Errors: invalid_usage, if
  /// other ranks are so far ahead that the choice is forgotten.
  Result<uint32_t> agree_on_set(uint32_t capture, uint32_t choice);

  // ---- Paths whose kernels or copies use memory of other ranks (stream_path.h); from any thread

  void note_path_begins() { paths_.fetch_add(1); }
  /// A path of this rank uses memory of other ranks no more. After the last one peers are told. The board's
  /// end tells them, too.
  void note_path_ends();
  /// Whether every other rank of the node has told that, or its process has ended.
  bool paths_of_peers_ended() const;

  // ---- Flags, whose values only grow (modulo 2^32)

  /// The operation that this rank's stream has come to last, and that it has done last.
  uint32_t begun() const;
  uint32_t ended() const;
  cuda::DevicePointer begun_on_device() const;
  cuda::DevicePointer ended_on_device() const;
  /// What rank `sender` has told this rank.
  uint32_t flag(int sender, uint32_t tag) const;
  cuda::DevicePointer flag_on_device(int receiver, int sender, uint32_t tag) const;
  /// Lets this rank's streams pass by waits for flags up to this value.
  void raise_flags(uint32_t value);

 private:
  struct Layout;
  struct RankWords;
  class Memory;

  NodeBoard(std::shared_ptr<Memory> memory, int rank, int ranks);
  RankWords& words(int rank) const;
  template <typename Find>
  int note_stream(Find find, uint32_t number, uint64_t stream, uint32_t partners);
  uint32_t& flag_at(int receiver, int sender, uint32_t tag) const;
  cuda::DevicePointer on_device(const void* word) const;

  const std::shared_ptr<Memory> memory_;
  const int rank_, ranks_;
  std::atomic<int> paths_{0};
  int64_t report_by_ns_ = 0;  // until when a peer that has failed may report why; 0: none has
};

/// Whether a flag has come to a value.
inline bool has_come_to(uint32_t flag, uint32_t value) { return static_cast<int32_t>(flag - value) >= 0; }

}  // namespace weft::engine
