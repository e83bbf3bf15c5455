// ScriptedJob: all ranks of a job in the test's own thread, each with its own context and communicator, over
// a ScriptedNetwork inside nodes and another one between nodes. Nothing moves unless the test moves it: no
// rank has a progress thread (but for those that start_progress() gives one), and time passes when the test
// says so.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/ranks.h"
#include "engine/run/interpreter.h"
#include "model/plain_machine.h"
#include "transport/scripted_network.h"
#include "transport/shm.h"

namespace weft::engine {

class ScriptedJob {
 public:
  struct Options {
    std::vector<int> nodes;      // by rank
    std::string algorithm = {};  // WEFT_ALGO for all
    bool shared_memory = false;  // inside nodes the real one; there a message arrives as it is sent
    transport::ScriptedNetwork::Options local = {.reads_peers = true};
    transport::ScriptedNetwork::Options network = {};
    double timeout_s = 600;
  };

  explicit ScriptedJob(Options options)
      : local(options.local), network(options.network), options_(std::move(options)) {
    static std::atomic<uint64_t> jobs{0};
    const uint64_t job = 0x5c71f7ed00000000 + ++jobs;
    const auto pins = model::parse_pins(options_.algorithm);
    EXPECT_TRUE(pins.ok()) << pins.status().message();
    open_shared_memory();
    for (int rank = 0; rank < ranks(); ++rank) add_rank(job, rank, *pins);
  }
  ~ScriptedJob() {
    for (int rank = 0; rank < ranks(); ++rank) end_operations(rank);
    answers.open();
    for (Member& member : members_) member.context->failures().inquiries().close();  // they ask other ranks
    for (Member& member : members_) member.comm.reset();
    for (Member& member : members_) member.context.reset();
  }

  int ranks() const { return static_cast<int>(options_.nodes.size()); }
  Communicator& comm(int rank) { return *members_[rank].comm; }
  Context& context(int rank) { return *members_[rank].context; }

  /// Starts a call on a rank. The operation is valid until the job ends.
  Operation* begin(int rank, const Call& call) {
    const Lock lock = context(rank).lock();
    const Result<Operation*> op = comm(rank).begin(call, nullptr);
    EXPECT_TRUE(op.ok()) << op.status().message();
    if (!op) return nullptr;
    members_[rank].begun.push_back(*op);
    return *op;
  }
  /// One turn of a rank.
  int turn(int rank) {
    const Lock lock = context(rank).lock();
    return context(rank).turn();
  }
  /// Turns until a rank has heard what was delivered to it: one without operations between nodes polls its
  /// network seldom.
  void hear(int rank) {
    do (void)turn(rank);
    while (network.unheard(rank) + local.unheard(rank) > 0);
  }
  /// Delivers and turns until nothing moves.
  void settle() {
    for (int idle = 0; idle < 2;) {
      size_t events = network.flight().size() + local.flight().size();
      network.deliver_all();
      local.deliver_all();
      for (int rank = 0; rank < ranks(); ++rank) {
        events += network.unheard(rank) + local.unheard(rank);
        events += static_cast<size_t>(turn(rank));
      }
      idle = events == 0 ? idle + 1 : 0;
    }
  }
  /// A look at deadlines and losses at a time of the clock. What happened since the test read `t` is younger
  /// than a look at `t`, however long that took.
  void look(int rank, int64_t at_ns) {
    const Lock lock = context(rank).lock();
    context(rank).check_deadlines(at_ns);
  }
  /// A rank ends its communicator, and stays in the job.
  void destroy_comm(int rank) {
    end_operations(rank);
    members_[rank].comm.reset();
  }
  /// Returns when no inquiry of a rank runs.
  void conclude(int rank) { context(rank).failures().inquiries().close(); }
  /// The communicator's failure on a rank; ok: none.
  Status failure(int rank) {
    const Lock lock = context(rank).lock();
    return comm(rank).failure();
  }
  /// Waits for what another thread does (an inquiry, a progress thread).
  void await(const std::function<bool()>& met) {
    for (const Deadline deadline = Deadline::in_seconds(30); !met();) {
      ASSERT_FALSE(deadline.passed()) << "it did not happen";
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  /// From now on a rank has a progress thread.
  void start_progress(int rank) {
    const Status begun = context(rank).begin(Deadline::in_seconds(10));
    EXPECT_TRUE(begun.ok()) << begun.message();
  }

  /// Which ranks have told the others of a failure, and how often.
  int told_by(int rank) {
    const std::lock_guard guard(told_mutex_);
    return static_cast<int>(std::count(told_.begin(), told_.end(), rank));
  }

  /// Lets inquiries have their answers; while it is shut they wait.
  class Door {
   public:
    void shut() { set(false); }
    void open() { set(true); }
    void pass() {
      std::unique_lock lock(mutex_);
      waiting_ = !open_;
      opened_.wait(lock, [this] { return open_; });
      waiting_ = false;
    }
    /// Whether an inquiry waits at the door.
    bool waiting() {
      const std::lock_guard guard(mutex_);
      return waiting_;
    }

   private:
    void set(bool open) {
      const std::lock_guard guard(mutex_);
      open_ = open;
      opened_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable opened_;
    bool open_ = true, waiting_ = false;
  } answers;
  /// Ranks that answer no question, and those that have left in order.
  std::set<int> silent, left;
  /// How many inquiries there were.
  std::atomic<int> asked{0};

  transport::ScriptedNetwork local, network;

 private:
  struct Member {
    std::shared_ptr<Context> context;
    std::unique_ptr<Communicator> comm;
    std::vector<Operation*> begun;
  };

  /// What a test leaves unfinished ends here.
  void end_operations(int rank) {
    Member& member = members_[rank];
    if (!member.comm) return;
    const Lock lock = member.context->lock();
    if (!member.comm->operations().unfinished().empty())
      member.comm->fail(fail(Code::aborted, "the test is over"), false);
    for (Operation* op : std::exchange(member.begun, {})) member.context->operations().release(op);
  }

  /// Ranks that have met already.
  class Meeting final : public bootstrap::Bootstrap {
   public:
    Meeting(ScriptedJob& job, int rank) : job_(job), rank_(rank) {}
    int rank() const override { return rank_; }
    int ranks() const override { return job_.ranks(); }
    Result<std::vector<std::byte>> all_gather(std::span<const std::byte>, Deadline) override {
      return fail(Code::internal_error, "these ranks have met already");
    }
    Status start(bootstrap::Callbacks) override { return {}; }
    void stop() override {}
    const std::vector<std::string>& addresses(int) const override { return none_; }
    Result<UniqueFd> connect(int, int, uint32_t, Deadline) override {
      return fail(Code::internal_error, "nothing to connect");
    }
    std::vector<std::optional<bootstrap::OpReport>> ask(std::span<const int> ranks, uint32_t comm,
                                                        uint32_t op, Deadline) override {
      ++job_.asked;
      std::vector<std::optional<bootstrap::OpReport>> reports;
      for (const int rank : ranks) {
        reports.emplace_back();
        if (!job_.silent.contains(rank))
          reports.back() = job_.context(rank).failures().on_question(rank_, comm, op);
      }
      job_.answers.pass();
      return reports;
    }
    bool has_left(int rank) const override { return job_.left.contains(rank); }
    void tell_failed(uint32_t, const std::string&) override {
      const std::lock_guard guard(job_.told_mutex_);
      job_.told_.push_back(rank_);
    }
    void watch_process(int, UniqueFd) override {}

   private:
    ScriptedJob& job_;
    const int rank_;
    const std::vector<std::string> none_;
  };

  // Ranks of a node must know each other before any of them has a fabric.
  void open_shared_memory() {
    shm_.resize(options_.nodes.size());
    if (!options_.shared_memory) return;
    const topology::Layout layout(options_.nodes);
    std::vector<transport::ShmAddress> addresses(options_.nodes.size());
    for (int rank = 0; rank < ranks(); ++rank) {
      auto made = transport::ShmTransport::create(rank, ranks(), layout.on_node(layout.node_of(rank)), {});
      ASSERT_TRUE(made.ok()) << made.status().message();
      shm_[rank] = made.take();
      addresses[rank] = shm_[rank]->address();
    }
    for (auto& shm : shm_) {
      const Status connected = shm->connect(addresses);
      ASSERT_TRUE(connected.ok()) << connected.message();
    }
  }

  void add_rank(uint64_t job, int rank, const model::Pins& pins) {
    const topology::Layout layout(options_.nodes);
    std::unique_ptr<transport::Transport> inside, between;
    if (options_.shared_memory) inside = std::move(shm_[rank]);
    else if (layout.on_node(layout.node_of(rank)).size() > 1) inside = local.make(rank);
    if (layout.nodes() > 1) between = network.make(rank);
    auto fabric = Fabric::over(rank, layout, std::move(inside), std::move(between));
    ASSERT_TRUE(fabric.ok()) << fabric.status().message();
    Member& member = members_.emplace_back();
    member.context = std::make_shared<Context>(job, std::make_unique<Meeting>(*this, rank), fabric.take());
    member.context->machine().machine = model::plain_machine();
    CommOptions options;
    options.name = "world";
    options.timeout_s = options_.timeout_s;
    std::vector<int> worlds(options_.nodes.size());
    std::iota(worlds.begin(), worlds.end(), 0);
    member.comm = std::make_unique<Communicator>(member.context, static_cast<uint32_t>(job),
                                                 std::move(worlds), std::move(options));
    member.comm->pin(pins);
  }

  const Options options_;
  std::vector<std::unique_ptr<transport::ShmTransport>> shm_;
  std::vector<Member> members_;
  std::mutex told_mutex_;
  std::vector<int> told_;
};

}  // namespace weft::engine
