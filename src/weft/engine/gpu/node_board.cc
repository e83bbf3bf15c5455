#include "engine/gpu/node_board.h"

#include <unistd.h>

#include <atomic>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/process.h"
#include "device/cuda/deferred_free.h"
#include "device/cuda/ipc.h"
#include "engine/run/operation.h"

namespace weft::engine {
namespace {

constexpr int64_t kReportNs = 1'000'000'000;  // how long the reason of a peer's failure may take to arrive

/// A call of a capture, which differs from those of other captures at the same place.
uint32_t captured_number(uint32_t capture, uint32_t index) { return capture << 16 | (index & 0xffff); }

template <typename Word>
Word load(const Word& word) {
  return std::atomic_ref(const_cast<Word&>(word)).load(std::memory_order_acquire);
}
template <typename Word>
void store(Word& word, Word value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

}  // namespace

/// One rank's own words. Those of its streams stand apart from those of its CPU.
struct NodeBoard::RankWords {
  alignas(64) uint32_t begun;
  uint32_t ended;
  alignas(64) uint32_t failed;
  uint32_t latest;                    // number of the latest call
  uint32_t latest_begun;              // number of the latest call that a stream has come to
  uint64_t process;                   // as in SharedMemory
  int32_t pid;                        // 0: the rank is of another node
  uint32_t paths_ended;               // none of the rank's kernels and copies uses memory of peers
  alignas(64) uint64_t call[kCalls];  // number, and signature behind it; 0: none yet
  struct OnStream {
    uint64_t stream;
    uint32_t partners, number;
  } on_stream[kCalls];
  struct CapturedCall {
    uint64_t call;  // captured_number(), and history behind it; 0: none yet
    OnStream on_stream;
  } captured[kCaptures][kCapturedCalls];
  struct Set {
    uint32_t unused, cleared;  // the latest capture after which it is so
  } set[kCaptures + 1];
};

/// The words of all ranks, then a flag for each receiver, sender and tag, then choices of sets.
struct NodeBoard::Layout {
  static size_t flags_at(int ranks) { return static_cast<size_t>(ranks) * sizeof(RankWords); }
  static size_t choices_at(int ranks) {
    return flags_at(ranks) +
           static_cast<size_t>(ranks) * static_cast<size_t>(ranks) * kTags * sizeof(uint32_t);
  }
  static size_t bytes(int ranks) { return choices_at(ranks) + kChoices * sizeof(uint64_t); }
};

/// The memory as this process has it mapped and pinned, once for all of its ranks.
class NodeBoard::Memory {
 public:
  static Result<std::shared_ptr<Memory>> pin(cuda::Device& device, device::Segment segment) {
    const cuda::Driver& d = **cuda::driver();
    WEFT_TRY(cuda::check(d.mem_host_register(segment.data(), segment.bytes(),
                                             cuda::kHostRegisterPortable | cuda::kHostRegisterMapped),
                         "pinning memory of the node's ranks (cuMemHostRegister)"));
    cuda::DevicePointer on_device = 0;
    if (d.mem_host_get_device_pointer(&on_device, segment.data(), 0) != cuda::kSuccess)
      on_device = reinterpret_cast<uintptr_t>(segment.data());
    return std::make_shared<Memory>(device, std::move(segment), on_device);
  }
  /// That rank 0 has made, in this process or another one.
  static Result<std::shared_ptr<Memory>> reach(cuda::Device& device, const Offer& offer) {
    const MutexLock guard(mutex_);
    std::weak_ptr<Memory>& known = known_[{offer.process, offer.segment.inode}];
    if (auto memory = known.lock()) return memory;
    auto segment = device::Segment::open(offer.pid, offer.segment);
    if (!segment) return segment.status();
    auto memory = pin(device, segment.take());
    if (memory) known = *memory;
    return memory;
  }
  static void remember(const std::shared_ptr<Memory>& memory, const Offer& offer) {
    const MutexLock guard(mutex_);
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    known_[{offer.process, offer.segment.inode}] = memory;
  }

  Memory(cuda::Device& device, device::Segment segment, cuda::DevicePointer on_device)
      : on_device_(on_device), device_(device), segment_(std::move(segment)) {}
  // Unpinning may wait for streams.
  ~Memory() { cuda::DeferredFree::instance().add_segment(device_, std::move(segment_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  const device::Segment& segment() const { return segment_; }
  cuda::DevicePointer on_device() const { return on_device_; }

 private:
  using Key = std::pair<uint64_t, uint64_t>;  // process and inode
  static inline Mutex mutex_;
  static inline auto& known_ = *new std::map<Key, std::weak_ptr<Memory>>;

  const cuda::DevicePointer on_device_;
  cuda::Device& device_;
  device::Segment segment_;
};

NodeBoard::NodeBoard(std::shared_ptr<Memory> memory, int rank, int ranks)
    : memory_(std::move(memory)), rank_(rank), ranks_(ranks) {
  store(words(rank).pid, int32_t{getpid()});
}
NodeBoard::~NodeBoard() { store(words(rank_).paths_ended, uint32_t{1}); }

Result<std::unique_ptr<NodeBoard>> NodeBoard::create(cuda::Device& device, int rank, int ranks) {
  if (ranks > kMostRanks)
    return fail(Code::unsupported, "at most {} ranks have flags for their streams", kMostRanks);
  auto segment = device::Segment::create(Layout::bytes(ranks));
  if (!segment) return segment.status();
  auto memory = Memory::pin(device, segment.take());
  if (!memory) return memory.status();
  std::unique_ptr<NodeBoard> board(new NodeBoard(memory.take(), rank, ranks));
  auto offered = board->offer();
  if (!offered) return offered.status();
  Memory::remember(board->memory_, *offered);
  return board;
}

Result<NodeBoard::Offer> NodeBoard::offer() const {
  auto name = memory_->segment().name();
  if (!name) return name.status();
  return Offer{cuda::process_number(), getpid(), *name};
}

Result<std::unique_ptr<NodeBoard>> NodeBoard::open(cuda::Device& device, int rank, int ranks,
                                                   const Offer& offer) {
  if (offer.pid == 0 || offer.segment.bytes < Layout::bytes(ranks))
    return fail(Code::unsupported, "the lowest rank of the node has no flags for streams");
  auto memory = Memory::reach(device, offer);
  if (!memory) return memory.status().in("the flags of the node's lowest rank");
  return std::unique_ptr<NodeBoard>(new NodeBoard(memory.take(), rank, ranks));
}

NodeBoard::RankWords& NodeBoard::words(int rank) const {
  return reinterpret_cast<RankWords*>(memory_->segment().data())[rank];
}

uint32_t& NodeBoard::flag_at(int receiver, int sender, uint32_t tag) const {
  auto* const flags = reinterpret_cast<uint32_t*>(memory_->segment().data() + Layout::flags_at(ranks_));
  return flags[static_cast<uint32_t>(receiver * ranks_ + sender) * kTags + tag];
}

cuda::DevicePointer NodeBoard::on_device(const void* word) const {
  return memory_->on_device() +
         static_cast<cuda::DevicePointer>(static_cast<const std::byte*>(word) - memory_->segment().data());
}

// ---- Calls

void NodeBoard::note_call(uint32_t number, uint32_t signature) {
  store(words(rank_).call[number % kCalls], uint64_t{number} << 32 | signature);
  store(words(rank_).latest, number);
}

// Each of two ranks stores its stream before it looks for the other's. `find` finds the place of the call
// among a rank's words.
template <typename Find>
int NodeBoard::note_stream(Find find, uint32_t number, uint64_t stream, uint32_t partners) {
  RankWords& own = words(rank_);
  RankWords::OnStream& mine = find(own);
  store(own.process, cuda::process_number());
  store(mine.stream, stream);
  store(mine.partners, partners);
  std::atomic_ref(mine.number).store(number);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!(partners >> rank & 1)) continue;
    RankWords& theirs = words(rank);
    RankWords::OnStream& call = find(theirs);
    if (std::atomic_ref(call.number).load() == number && load(theirs.process) == own.process &&
        load(call.stream) == stream && (load(call.partners) >> rank_ & 1))
      return rank;
  }
  return -1;
}

int NodeBoard::note_stream(uint32_t number, uint64_t stream, uint32_t partners) {
  return note_stream(
      [=](RankWords & words) -> auto& { return words.on_stream[number % kCalls]; }, number, stream, partners);
}

NodeBoard::Captured NodeBoard::note_captured(uint32_t capture, uint32_t index, uint32_t history,
                                             uint64_t stream, uint32_t partners) {
  const auto find = [=](RankWords & words) -> auto& {
    return words.captured[(capture - 1) % kCaptures][index % kCapturedCalls];
  };
  const uint32_t number = captured_number(capture, index);
  const uint64_t mine = uint64_t{number} << 32 | history;
  std::atomic_ref(find(words(rank_)).call).store(mine);
  Captured found;
  for (int rank = 0; rank < ranks_; ++rank) {
    const uint64_t theirs = std::atomic_ref(find(words(rank)).call).load();
    if (theirs >> 32 == number && theirs != mine) found.differing = rank;
  }
  found.on_same_stream = note_stream(
      [&](RankWords & words) -> auto& { return find(words).on_stream; }, number, stream, partners);
  return found;
}

// A partner without a call of this number came by one of another number. If it is ahead, it has done
// something else in between; if it is behind, this rank has. A rank so far ahead that it has forgotten the
// call is taken to have called the same.
NodeBoard::Comparison NodeBoard::compare(uint32_t number, uint32_t signature, uint32_t partners) const {
  Comparison found;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    const uint64_t call = load(words(rank).call[number % kCalls]);
    const auto theirs = static_cast<uint32_t>(call >> 32);
    if (call != 0 && theirs == number) {
      if (static_cast<uint32_t>(call) != signature) found.differing = rank;
    } else if ((partners >> rank & 1) && (call == 0 || comes_after(number, theirs))) {
      if (comes_after(load(words(rank).latest), number)) found.differing = rank;
      else found.behind = true;
    }
  }
  return found;
}

// Operations of two paths may begin in another order than they were called.
void NodeBoard::note_begun(uint32_t number) {
  uint32_t& latest = words(rank_).latest_begun;
  if (comes_after(number, latest)) store(latest, number);
}

std::vector<int> NodeBoard::find_late(uint32_t number, uint32_t partners) const {
  std::vector<int> late;
  for (int rank = 0; rank < ranks_; ++rank)
    if ((partners >> rank & 1) && comes_after(number, load(words(rank).latest_begun))) late.push_back(rank);
  return late;
}

void NodeBoard::set_failed() { store(words(rank_).failed, uint32_t{1}); }

// A rank that has failed reports why, and its report fails the communicator. The report comes by another way
// than the board, and may come later.
Result<bool> NodeBoard::peers_are_well() {
  int failed = 0;
  while (failed < ranks_ && (failed == rank_ || !load(words(failed).failed))) ++failed;
  if (failed == ranks_) return true;
  if (report_by_ns_ == 0) report_by_ns_ = now_ns() + kReportNs;
  if (now_ns() < report_by_ns_) return false;
  return fail(Code::remote_error, "rank {} has failed, or was aborted, while others used its memory", failed);
}

// ---- Sets of control memory

void NodeBoard::note_set_unused(uint32_t set, uint32_t capture) {
  store(words(rank_).set[set].unused, capture);
}

void NodeBoard::note_set_cleared(uint32_t set, uint32_t capture) {
  store(words(rank_).set[set].cleared, capture);
}

bool NodeBoard::wants_clearing(uint32_t set, uint32_t capture) const {
  if (load(words(rank_).set[set].cleared) >= capture) return false;
  for (int rank = 0; rank < ranks_; ++rank)
    if (load(words(rank).pid) != 0 && load(words(rank).set[set].unused) < capture) return false;
  return true;
}

bool NodeBoard::is_set_as_new(uint32_t set, uint32_t capture) const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (load(words(rank).pid) != 0 && load(words(rank).set[set].cleared) < capture) return false;
  return true;
}

Result<uint32_t> NodeBoard::agree_on_set(uint32_t capture, uint32_t choice) {
  auto* const choices = reinterpret_cast<uint64_t*>(memory_->segment().data() + Layout::choices_at(ranks_));
  const std::atomic_ref agreed(choices[capture % kChoices]);
  uint64_t seen = agreed.load();
  while (seen >> 32 < capture)
    if (agreed.compare_exchange_weak(seen, uint64_t{capture} << 32 | choice)) return choice;
  if (seen >> 32 == capture) return static_cast<uint32_t>(seen);
  return fail(Code::invalid_usage,
              "another rank is {} captures of CUDA graphs ahead, or more: capture in step", kChoices);
}

// ---- Paths

void NodeBoard::note_path_ends() {
  if (paths_.fetch_sub(1) == 1) store(words(rank_).paths_ended, uint32_t{1});
}

bool NodeBoard::paths_of_peers_ended() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const RankWords& peer = words(rank);
    const int32_t pid = load(peer.pid);
    if (rank != rank_ && pid != 0 && !load(peer.paths_ended) && process_runs(pid)) return false;
  }
  return true;
}

// ---- Flags

uint32_t NodeBoard::begun() const { return load(words(rank_).begun); }
uint32_t NodeBoard::ended() const { return load(words(rank_).ended); }
cuda::DevicePointer NodeBoard::begun_on_device() const { return on_device(&words(rank_).begun); }
cuda::DevicePointer NodeBoard::ended_on_device() const { return on_device(&words(rank_).ended); }
uint32_t NodeBoard::flag(int sender, uint32_t tag) const { return load(flag_at(rank_, sender, tag)); }
cuda::DevicePointer NodeBoard::flag_on_device(int receiver, int sender, uint32_t tag) const {
  return on_device(&flag_at(receiver, sender, tag));
}

void NodeBoard::raise_flags(uint32_t value) {
  for (int sender = 0; sender < ranks_; ++sender)
    for (uint32_t tag = 0; tag < kTags; ++tag) {
      uint32_t& flag = flag_at(rank_, sender, tag);
      if (!has_come_to(load(flag), value)) store(flag, value);
    }
}

}  // namespace weft::engine
