// PlanMachine: ranks that do operations in a row by the plan kernel, on a CPU: its blocks take turns in an
// order that a seed gives, or are threads. Every rank goes through its operations by itself, as its stream
// would.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda/plan_call.h"
#include "device/cuda/plan_kernel.h"
#include "device/kernels.h"
#include "execute.h"
#include "plan/plan_program.h"
#include "plans.h"
#include "proxy_machine.h"

namespace weft::plan::testing {

namespace cuda = device::cuda;

// ---- The kernels

using GoOn = bool (*)(cuda::PlanBlock&, const cuda::PlanArguments&);

template <typename Math>
bool go_on(cuda::PlanBlock& block, const cuda::PlanArguments& arguments) {
  return cuda::PlanRun<Math>(block, arguments).go_on();
}

/// The kernel of a reduction; of the types that tests use.
inline GoOn kernel_of(device::DataType type, device::ReduceOp op) {
  const bool mean = device::is_float(type) && op == device::ReduceOp::avg;
  switch (type) {
    case device::DataType::int32: return go_on<cuda::PlanSums<cuda::Whole<int32_t>>>;
    case device::DataType::uint64: return go_on<cuda::PlanSums<cuda::Whole<uint64_t>>>;
    case device::DataType::float32:
      return mean ? go_on<cuda::PlanMeans<cuda::Whole<float>>> : go_on<cuda::PlanSums<cuda::Whole<float>>>;
    case device::DataType::bfloat16:
      return mean ? go_on<cuda::PlanMeans<cuda::Narrow<device::Bfloat>>>
                  : go_on<cuda::PlanSums<cuda::Narrow<device::Bfloat>>>;
    default: throw std::logic_error("no plan kernel of that type in these tests");
  }
}

// ---- What is done

/// One operation of all ranks.
struct Job {
  std::vector<Plan> plans;
  Limits limits;
  ProgramShape shape;
  topology::Layout layout;
  device::DataType type = device::DataType::uint64;
  device::ReduceOp op = device::ReduceOp::sum;
  bool in_place = false;
  double scale = 0;  // of a pre-multiplied sum of float32; 0: none
  float scalar = 0;  // the same, where kernels read it

  int ranks() const { return static_cast<int>(plans.size()); }
  const Request& request() const { return plans[0].request; }
};

/// The job, or nothing where the algorithm, or the kernel, is not for it.
inline std::optional<Job> job_of(const Algorithm& algorithm, const Request& request,
                                 const topology::Layout& layout, const Limits& limits,
                                 const ProgramShape& shape) {
  if (!algorithm.fits(request, layout, limits).ok()) return {};
  Job job{.plans = make_all(algorithm, request, layout, limits),
          .limits = limits,
          .shape = shape,
          .layout = layout};
  for (int rank = 0; rank < layout.ranks(); ++rank)
    if (!make_program(job.plans, rank, layout, limits, shape).ok()) return {};
  return job;
}
inline std::optional<Job> job_of(const Algorithm& algorithm, const Request& request, int ranks,
                                 const Limits& limits, const ProgramShape& shape) {
  return job_of(algorithm, request, topology::Layout::blocks(1, ranks), limits, shape);
}

/// ns, in turns.
inline std::atomic<uint64_t> t_turns{0};
inline uint64_t turns_clock() { return t_turns.load(std::memory_order_relaxed); }
inline uint64_t real_clock() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// ---- The machine

class PlanMachine {
 public:
  static constexpr uint64_t kForEver = uint64_t{1} << 60;

  /// `jobs[k]` is operation k.
  explicit PlanMachine(std::vector<Job> jobs)
      : jobs_(std::move(jobs)), ranks_(static_cast<size_t>(jobs_[0].ranks())) {
    uint64_t slot_bytes = 0, buffer_bytes = 64, scratch_bytes = 64;
    const auto n = static_cast<uint32_t>(ranks_.size());
    for (const Job& job : jobs_) {
      slot_bytes = std::max(slot_bytes, job.shape.slot_bytes);
      proxy_slot_bytes_ = std::max(proxy_slot_bytes_, static_cast<uint32_t>(job.shape.proxy_slot_bytes));
      for (size_t r = 0; r < n; ++r) {
        const int rank = static_cast<int>(r);
        buffer_bytes = std::max({buffer_bytes, input_bytes(job.request(), job.ranks(), rank),
                                 output_bytes(job.request(), job.ranks(), rank)});
        scratch_bytes = std::max(scratch_bytes, job.plans[r].scratch_bytes + 64 + buffer_bytes);
      }
    }
    for (Rank& rank : ranks_) {
      rank.control.resize(cuda::control_bytes(n, slot_bytes) / 16 + 1);
      for (auto* memory : {&rank.first, &rank.second}) memory->resize(buffer_bytes / 16 + 1);
      rank.scratch.resize(scratch_bytes / 16 + 1);
      if (jobs_[0].layout.nodes() > 1) rank.proxy.resize(cuda::proxy_bytes(n, proxy_slot_bytes_) / 16 + 1);
    }
    for (size_t k = 0; k < jobs_.size(); ++k) {
      prepare(k, slot_bytes);
      expect(k);
    }
    make_proxies();
  }

  void set_timeout(uint64_t ns) {
    for (Rank& rank : ranks_)
      for (cuda::PlanArguments& arguments : rank.arguments) arguments.call.timeout_ns = ns;
  }
  /// The kernels are those of graphs.
  void set_captured() {
    for (Rank& rank : ranks_)
      for (cuda::PlanArguments& arguments : rank.arguments) arguments.call.captured = 1;
  }
  /// A rank's call is not the others'.
  void set_signature(int rank, uint32_t signature) {
    for (cuda::PlanArguments& arguments : ranks_[static_cast<size_t>(rank)].arguments)
      arguments.call.signature = signature;
  }
  /// Whether rank `receiver` has anything from rank `sender` in the slots of operation 1.
  bool told(int receiver, int sender) {
    Rank& rank = ranks_[static_cast<size_t>(receiver)];
    const uint32_t slot_bytes = rank.arguments[0].call.slot_bytes;
    const char* const slot = data(rank.control) + sizeof(cuda::PlanControl) +
                             (ranks_.size() + static_cast<size_t>(sender)) * slot_bytes;
    return std::any_of(slot, slot + slot_bytes, [](char byte) { return byte != 0; });
  }
  cuda::PlanHost& host(int rank) { return ranks_[static_cast<size_t>(rank)].host; }
  /// How many blocks all ranks have at once, at most.
  uint32_t blocks() const {
    uint32_t most = 0;
    for (size_t k = 0; k < jobs_.size(); ++k) {
      uint32_t sum = 0;
      for (const Rank& rank : ranks_) sum += blocks_of(rank.arguments[k]);
      most = std::max(most, sum);
    }
    return most;
  }

  /// Blocks take turns, as many at a time as `resident`. `absent`: a rank that never comes. Returns what is
  /// wrong, or nothing: all operations of all that are there have ended. Stops after `most` turns.
  std::string run_in_turns(unsigned seed, uint32_t resident, int absent = -1, uint64_t most = UINT64_MAX) {
    std::mt19937 random(seed);
    uint32_t room = resident;
    uint64_t idle = 0;
    for (uint64_t turn = 0; turn < most; ++turn) {
      t_turns.fetch_add(1, std::memory_order_relaxed);
      const size_t r = random() % ranks_.size();
      Rank& rank = ranks_[r];
      if (static_cast<int>(r) == absent || rank.operation == jobs_.size()) {
        if (all_done(absent)) return {};
        continue;
      }
      if (proxies_ && random() % kTurnsOfAProxy == 0 && proxies_->take_turn(random() % ranks_.size(), random))
        idle = 0;
      if (++idle > kStuck) return "stuck in operation " + std::to_string(rank.operation);
      if (rank.started == 0 && rank.blocks.empty()) begin(r);
      if (take_turn(rank, random, room)) idle = 0;
      if (rank.ended < blocks_of(rank.arguments[rank.operation])) continue;
      if (std::string wrong = end(r); !wrong.empty()) return wrong;
    }
    return {};
  }

  /// Every block of every rank is a thread.
  std::string run_in_threads() {
    std::mutex mutex;
    std::string wrong;
    std::vector<std::thread> streams, cpus;
    std::atomic<bool> over = false;
    for (size_t r = 0; proxies_ && r < ranks_.size(); ++r)
      cpus.emplace_back([&, r] {
        std::mt19937 random(static_cast<unsigned>(r));
        while (!over.load())
          if (!proxies_->take_turn(r, random)) std::this_thread::yield();
      });
    for (size_t r = 0; r < ranks_.size(); ++r)
      streams.emplace_back([&, r] {
        Rank& rank = ranks_[r];
        while (rank.operation < jobs_.size()) {
          const cuda::PlanArguments& arguments = rank.arguments[rank.operation];
          const GoOn kernel = kernel_of(jobs_[rank.operation].type, jobs_[rank.operation].op);
          begin(r);
          std::vector<std::thread> blocks;
          for (uint32_t b = 0; b < blocks_of(arguments); ++b)
            blocks.emplace_back([&arguments, kernel, b] {
              cuda::PlanBlock block(b, real_clock);
              while (!kernel(block, arguments)) std::this_thread::yield();
            });
          const bool peers_know = peers_know_of_end(r);
          for (std::thread& block : blocks) block.join();
          std::string found = rank.host.abort ? "a block has waited too long"
                              : !peers_know   ? "a CPU hears of a kernel's end before a peer does"
                                              : end(r);
          if (found.empty()) continue;
          const std::lock_guard guard(mutex);
          wrong = found;
          return;
        }
      });
    for (std::thread& stream : streams) stream.join();
    over.store(true);
    for (std::thread& cpu : cpus) cpu.join();
    return wrong;
  }

 private:
  static constexpr uint64_t kStuck = 300'000;
  static constexpr unsigned kTurnsOfAProxy = 8;  // of blocks, for one of a CPU: kernels run ahead of it

  struct alignas(16) Line {
    char bytes[16] = {};
  };
  using Memory = std::vector<Line>;
  struct Rank {
    Memory control, first, second, scratch;  // first and second: input and output, but in place
    Memory proxy;                            // of several nodes
    cuda::PlanHost host{};
    std::vector<cuda::PlanArguments> arguments;  // by operation
    std::vector<Bytes> inputs, expected;
    size_t operation = 0;
    std::vector<std::pair<cuda::PlanBlock, bool>> blocks;  // and whether it has ended
    uint32_t started = 0, ended = 0;
  };

  static uint32_t blocks_of(const cuda::PlanArguments& arguments) {
    return uint32_t{arguments.program.lanes} * arguments.program.blocks;
  }
  static char* data(Memory& memory) { return memory.data()->bytes; }

  char* input(Rank& rank, size_t r, const Job& job) {
    const bool inside = job.request().collective != Collective::reduce_scatter &&
                        job.request().collective != Collective::scatter;
    return job.in_place && inside ? data(rank.second) + in_place_offset(job.request(), static_cast<int>(r))
                                  : data(rank.first);
  }
  char* output(Rank& rank, size_t r, const Job& job) {
    const bool inside = job.request().collective == Collective::reduce_scatter ||
                        job.request().collective == Collective::scatter;
    return job.in_place && inside ? data(rank.first) + in_place_offset(job.request(), static_cast<int>(r))
                                  : data(rank.second);
  }

  void prepare(size_t k, uint64_t slot_bytes) {
    Job& job = jobs_[k];
    std::vector<Plan> plans = job.plans;
    job.shape.scaled = job.scale != 0;
    if (job.shape.scaled)
      for (Plan& plan : plans) plan = with_scaled_input(plan).take();
    for (size_t r = 0; r < ranks_.size(); ++r) {
      cuda::PlanArguments& arguments = ranks_[r].arguments.emplace_back();
      arguments.program = make_program(plans, static_cast<int>(r), job.layout, job.limits, job.shape).take();
      cuda::PlanCall& call = arguments.call;
      for (size_t p = 0; p < ranks_.size(); ++p)
        if (job.layout.same_node(static_cast<int>(r), static_cast<int>(p)))
          call.peer[p] = {data(ranks_[p].control), {nullptr, nullptr, data(ranks_[p].scratch)}};
      call.peer[r].space[0] = input(ranks_[r], r, job);
      call.peer[r].space[1] = output(ranks_[r], r, job);
      for (int space = 0; space < 2; ++space) call.exposed[space] = exposed(r, call.peer[r].space[space]);
      call.host = &ranks_[r].host;
      if (!ranks_[r].proxy.empty()) call.proxy = proxy_of(ranks_[r]);
      call.proxy_slot_bytes = proxy_slot_bytes_;
      call.timeout_ns = kForEver;
      call.slot_bytes = static_cast<uint32_t>(slot_bytes);
      cuda::set_reduction(call, job.type, job.op, job.request().strict);
      job.scalar = static_cast<float>(job.scale);
      if (r % 2 == 0) std::memcpy(call.scalar, &job.scalar, sizeof job.scalar);
      else call.scalar_at = &job.scalar;
    }
  }

  /// As a CPU that gives memory back: waits until a rank's kernel says that it has ended, and then touches
  /// the peers' memory as if nobody else did.
  bool peers_know_of_end(size_t r) {
    Rank& rank = ranks_[r];
    const uint64_t epoch = rank.operation + 1;
    while (cuda::PlanBlock::load_acquire(&rank.host.ended) < epoch) std::this_thread::yield();
    const cuda::PlanArguments& arguments = rank.arguments[rank.operation];
    return std::all_of(arguments.call.peer, arguments.call.peer + ranks_.size(), [=](const auto& peer) {
      return !peer.control || static_cast<const cuda::PlanControl*>(peer.control)->ended_by[r] == epoch;
    });
  }

  static cuda::PlanProxy* proxy_of(Rank& rank) {
    return reinterpret_cast<cuda::PlanProxy*>(data(rank.proxy));
  }
  void make_proxies() {
    if (jobs_[0].layout.nodes() == 1) return;
    std::vector<ProxyMachine::Rank> ranks;
    for (Rank& rank : ranks_) {
      ranks.push_back({{}, &rank.host, proxy_of(rank)});
      for (const cuda::PlanArguments& arguments : rank.arguments)
        ranks.back().programs.push_back(&arguments.program);
    }
    proxies_.emplace(std::move(ranks), proxy_slot_bytes_);
  }

  /// What a rank tells its peers of a buffer: an address, or a distance from its control memory.
  uint64_t exposed(size_t r, const void* buffer) {
    const auto address = reinterpret_cast<uint64_t>(buffer);
    const auto control = reinterpret_cast<uint64_t>(data(ranks_[r].control));
    return r % 2 == 1 && address > control ? cuda::kFromControl | (address - control) : address;
  }

  /// Inputs that differ from operation to operation, and what comes of them on the host.
  void expect(size_t k) {
    const Job& job = jobs_[k];
    std::mt19937 random(static_cast<unsigned>(k));
    std::vector<Bytes> inputs;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Bytes& bytes = inputs.emplace_back(input_bytes(job.request(), job.ranks(), static_cast<int>(r)));
      fill(bytes, job.type, random);
      ranks_[r].inputs.push_back(bytes);
      const float scalar = static_cast<float>(job.scale);
      if (job.scale != 0 && !bytes.empty())
        device::scale(job.type, bytes.data(), bytes.data(), bytes.size() / device::size_of(job.type),
                      &scalar);
    }
    const auto outputs = Execution(job.plans, inputs, job.type, job.op).run();
    for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r].expected.push_back(outputs[r]);
  }
  static void fill(Bytes& bytes, device::DataType type, std::mt19937& random) {
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (type == device::DataType::float32)
      for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
        const float value = static_cast<float>(random() % 100'000) / 7.0f - 5'000;
        std::memcpy(bytes.data() + i, &value, 4);
      }
    if (type == device::DataType::bfloat16)  // no infinities, nor NaN
      for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] = static_cast<char>((bytes[i] & 0x83) | 0x3c);
  }

  void begin(size_t r) {
    Rank& rank = ranks_[r];
    const Job& job = jobs_[rank.operation];
    const Bytes& in = rank.inputs[rank.operation];
    const uint64_t out = rank.expected[rank.operation].size();
    if (out > 0) std::memset(output(rank, r, job), 0xee, out);
    if (!in.empty()) std::memcpy(input(rank, r, job), in.data(), in.size());
    std::memset(data(rank.scratch), 0xdd, rank.scratch.size() * sizeof(Line));
    rank.blocks.clear();
    rank.started = rank.ended = 0;
  }

  /// A turn of one of the rank's blocks. True if anything has moved.
  bool take_turn(Rank& rank, std::mt19937& random, uint32_t& room) {
    const cuda::PlanArguments& arguments = rank.arguments[rank.operation];
    const GoOn kernel = kernel_of(jobs_[rank.operation].type, jobs_[rank.operation].op);
    if (rank.started < blocks_of(arguments) && room > 0 && random() % 2 == 0) {
      rank.blocks.emplace_back(cuda::PlanBlock(rank.started++, turns_clock), false);
      --room;
      return true;
    }
    if (rank.blocks.empty()) return false;
    auto& [block, ended] = rank.blocks[random() % rank.blocks.size()];
    if (ended) return false;
    const uint32_t before = block.at;
    ended = kernel(block, arguments);
    rank.ended += ended;
    room += ended;
    return ended || block.at != before;
  }

  std::string end(size_t r) {
    Rank& rank = ranks_[r];
    const Job& job = jobs_[rank.operation];
    const Bytes& expected = rank.expected[rank.operation];
    const bool same =
        expected.empty() || std::memcmp(output(rank, r, job), expected.data(), expected.size()) == 0;
    const bool told = rank.host.begun == rank.operation + 1 && rank.host.ended == rank.operation + 1;
    const bool stopped = rank.host.abort != 0;
    rank.blocks.clear();
    rank.started = rank.ended = 0;
    ++rank.operation;
    if (stopped) {  // nothing follows on this rank
      rank.operation = jobs_.size();
      return {};
    }
    if (!same) return fmt::format("rank {} has a wrong result in operation {}", r, rank.operation - 1);
    return told ? "" : fmt::format("rank {} does not tell the host of operation {}", r, rank.operation - 1);
  }

  bool all_done(int absent) const {
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (static_cast<int>(r) != absent && ranks_[r].operation != jobs_.size()) return false;
    return true;
  }

  std::vector<Job> jobs_;
  std::vector<Rank> ranks_;
  uint32_t proxy_slot_bytes_ = 0;
  std::optional<ProxyMachine> proxies_;  // nothing: all ranks are on one node
};

}  // namespace weft::plan::testing
