// The interpreter, step by step, over scripted transports: in which order messages come, which are late or
// missing, which transports are busy, and which peers cannot be reached.
#include "engine/run/interpreter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "engine/run/message_kind.h"
#include "engine/scripted_job.h"

namespace weft::engine {
namespace {

using plan::Collective;

constexpr int64_t kMs = 1'000'000;

/// A collective of int32 on all ranks of a job: rank r gives r + 1, r + 2, …
class Collected {
 public:
  Collected(ScriptedJob& job, Collective kind, uint64_t count) : job_(job), kind_(kind), count_(count) {
    const auto ranks = static_cast<uint64_t>(job.ranks());
    for (int rank = 0; rank < job.ranks(); ++rank) {
      in_.emplace_back(kind == Collective::reduce_scatter || kind == Collective::all_to_all ? ranks * count
                                                                                            : count);
      out_.emplace_back(
          kind == Collective::all_gather || kind == Collective::all_to_all ? ranks * count : count, -1);
      std::iota(in_.back().begin(), in_.back().end(), rank + 1);
    }
    ops.resize(ranks);
  }
  void begin(int rank) {
    Call call;
    call.collective = kind_;
    call.send = in_[rank].data();
    call.recv = out_[rank].data();
    call.count = count_;
    call.type = device::DataType::int32;
    ops[rank] = job_.begin(rank, call);
  }
  void begin_all() {
    for (int rank = 0; rank < job_.ranks(); ++rank) begin(rank);
  }
  bool finished() const {
    return std::all_of(ops.begin(), ops.end(), [](const Operation* op) { return op && op->end.finished; });
  }
  /// What rank `rank` should have, or "" if it has that.
  std::string wrong(int rank) const {
    const auto ranks = static_cast<int32_t>(job_.ranks());
    if (!ops[rank]->end.status.ok()) return ops[rank]->end.status.message();
    for (size_t i = 0; i < out_[rank].size(); ++i) {
      const auto at = static_cast<int32_t>(i), count = static_cast<int32_t>(count_);
      int32_t expected = 0;
      switch (kind_) {
        case Collective::all_reduce: expected = ranks * at + ranks * (ranks + 1) / 2; break;
        case Collective::reduce_scatter:
          expected = ranks * (rank * count + at) + ranks * (ranks + 1) / 2;
          break;
        case Collective::all_gather: expected = at / count + 1 + at % count; break;
        default: expected = at / count + 1 + rank * count + at % count; break;  // all_to_all
      }
      if (out_[rank][i] != expected)
        return fmt::format("rank {}, element {}: {}, should be {}", rank, i, out_[rank][i], expected);
    }
    return "";
  }
  void expect_right() const {
    ASSERT_TRUE(finished());
    for (int rank = 0; rank < job_.ranks(); ++rank) EXPECT_EQ(wrong(rank), "");
  }

  std::vector<Operation*> ops;

 private:
  ScriptedJob& job_;
  const Collective kind_;
  const uint64_t count_;
  std::vector<std::vector<int32_t>> in_, out_;
};

/// A Send of rank 0 and a Recv of rank 1, of int32.
class Transfer {
 public:
  Transfer(ScriptedJob& job, uint64_t count) : source(count), target(count, -1), job_(job) {
    std::iota(source.begin(), source.end(), 7);
  }
  Operation* send() { return job_.begin(0, in_place(Collective::send, source.data(), source.size(), 1)); }
  Operation* recv() { return job_.begin(1, in_place(Collective::recv, target.data(), target.size(), 0)); }

  std::vector<int32_t> source, target;

 private:
  ScriptedJob& job_;
};

constexpr uint64_t kLong = 5000;  // elements: no message holds them

// ---- Order

TEST(Interpreter, MessagesMayArriveInAnyOrder) {
  ScriptedJob job({.nodes = {0, 1, 2}, .algorithm = "allreduce=one_hop"});
  std::array<size_t, 6> order = {0, 1, 2, 3, 4, 5};
  do {
    Collected sums(job, Collective::all_reduce, 4);
    sums.begin_all();
    ASSERT_EQ(job.network.flight().size(), order.size());
    std::vector<transport::ScriptedNetwork::InFlight> sent(job.network.flight().begin(),
                                                           job.network.flight().end());
    for (size_t i = 0; i < order.size(); ++i) job.network.flight()[i] = sent[order[i]];
    for (size_t i = 0; i < order.size(); ++i) {
      job.network.deliver(0);
      for (int rank = 0; rank < 3; ++rank) (void)job.turn(rank);
    }
    sums.expect_right();
    if (testing::Test::HasFailure()) return;
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Interpreter, MessagesOfLaterCallsMayComeFirst) {
  ScriptedJob job({.nodes = {0, 1}, .algorithm = "allreduce=one_hop"});
  std::vector<Collected> sums;
  for (uint64_t i = 0; i < 4; ++i) sums.emplace_back(job, Collective::all_reduce, 3 + i);
  for (Collected& sum : sums) sum.begin(1);
  for (size_t left = sums.size(); left > 0; --left) {
    job.network.deliver(left - 1);  // the youngest first
    job.hear(0);
  }
  EXPECT_FALSE(job.context(0).inbox().empty());
  for (Collected& sum : sums) sum.begin(0);
  EXPECT_TRUE(job.context(0).inbox().empty());
  job.settle();
  for (const Collected& sum : sums) sum.expect_right();
}

TEST(Interpreter, AYoungerOperationMayEndBeforeAnOlderOne) {
  ScriptedJob job({.nodes = {0, 1}, .algorithm = "allreduce=one_hop"});
  Collected older(job, Collective::all_reduce, 3), younger(job, Collective::all_reduce, 4);
  older.begin_all();
  younger.begin_all();
  auto held = job.network.flight();
  std::erase_if(held, [&](const auto& what) { return what.envelope.op != older.ops[0]->number; });
  std::erase_if(job.network.flight(),
                [&](const auto& what) { return what.envelope.op == older.ops[0]->number; });
  ASSERT_EQ(held.size(), 2u);
  job.settle();
  younger.expect_right();
  EXPECT_FALSE(older.ops[0]->end.finished || older.ops[1]->end.finished);
  for (const auto& what : held) job.network.forge(what);
  job.settle();
  older.expect_right();
}

// What moves next is drawn: a delivery of any message in flight, a turn of any rank, a transport that becomes
// busy or is busy no more, a put whose source becomes free.
void run_at_random(const ScriptedJob::Options& options, Collective kind, uint64_t count, uint32_t seed) {
  SCOPED_TRACE(fmt::format("{} of {}, seed {}", options.algorithm, count, seed));
  ScriptedJob job(options);
  std::mt19937 random(seed);
  const auto draw = [&](size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random); };
  Collected all(job, kind, count);
  job.network.puts_complete = job.local.puts_complete = false;
  for (int step = 0; step < 20000 && !all.finished(); ++step) {
    transport::ScriptedNetwork& network = draw(2) == 0 ? job.network : job.local;
    const int rank = static_cast<int>(draw(all.ops.size())), other = static_cast<int>(draw(all.ops.size()));
    switch (draw(5)) {
      case 0:
        if (!all.ops[rank]) all.begin(rank);
        break;
      case 1:
        if (network.flight().empty()) break;
        {
          const size_t at = draw(network.flight().size());
          network.deliver(at);
        }
        break;
      case 2:
        if (!network.busy.erase({rank, other}) && draw(4) == 0) network.busy.insert({rank, other});
        break;
      case 3:
        if (network.incomplete() > 0) network.complete_put();
        break;
      default: (void)job.turn(rank);
    }
  }
  all.expect_right();
  EXPECT_EQ(job.network.stray_puts() + job.local.stray_puts(), 0u);
}

TEST(Interpreter, ResultsAreRightWhateverMovesNext) {
  const std::vector<int> apart = {0, 1, 2, 3}, paired = {0, 0, 1, 1};
  for (uint32_t seed = 0; seed < 8; ++seed) {
    for (const uint64_t count : {uint64_t{3}, kLong}) {
      for (const auto& nodes : {apart, paired}) {
        run_at_random({.nodes = nodes, .algorithm = "allreduce=ring"}, Collective::all_reduce, count, seed);
        run_at_random({.nodes = nodes, .algorithm = "allreduce=all_to_all"}, Collective::all_reduce, count,
                      seed);
        run_at_random({.nodes = nodes, .algorithm = "allgather=all_to_all"}, Collective::all_gather, count,
                      seed);
        run_at_random({.nodes = nodes, .algorithm = "reducescatter=all_to_all"}, Collective::reduce_scatter,
                      count, seed);
        run_at_random({.nodes = nodes}, Collective::all_to_all, count, seed);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

// ---- Late and missing

TEST(Interpreter, AnOperationWaitsForAMissingMessageAndNamesItsSender) {
  ScriptedJob job({.nodes = {0, 1, 2}, .algorithm = "allreduce=one_hop"});
  Collected sums(job, Collective::all_reduce, 4);
  sums.begin_all();
  auto& flight = job.network.flight();
  flight.erase(flight.begin() + static_cast<std::ptrdiff_t>(job.network.find(2, 0)));
  job.settle();
  EXPECT_FALSE(sums.ops[0]->end.finished);
  EXPECT_FALSE(sums.ops[0]->progress.may_move);
  EXPECT_EQ(sums.ops[0]->progress.awaited_peers(*sums.ops[0]->tables), std::vector<int>{2});
  EXPECT_TRUE(sums.ops[0]->progress.deals_with(2, *sums.ops[0]->tables));
  EXPECT_FALSE(sums.ops[0]->progress.deals_with(1, *sums.ops[0]->tables));
  EXPECT_TRUE(sums.ops[1]->end.finished && sums.ops[2]->end.finished);
}

TEST(Interpreter, ATransferDealsWithItsPeerAlone) {
  ScriptedJob job({.nodes = {0, 1, 2}});
  Transfer transfer(job, kLong);
  const Operation& sends = *transfer.send();
  EXPECT_TRUE(sends.progress.deals_with(1, *sends.tables));
  EXPECT_FALSE(sends.progress.deals_with(2, *sends.tables));
}

// The lanes of GPU memory go on while the copy of a put is under way. The peer may send as much meanwhile,
// and a rank that does not read from it then stalls both.
TEST(Interpreter, ATransferDealsWithItsPeerUntilItsPutIsDone) {
  ScriptedJob job({.nodes = {0, 1, 2}});
  Transfer transfer(job, kLong);
  const Operation& sends = *transfer.send();
  const PlanTables& tables = *sends.tables;
  StepProgress progress;
  progress.reset_arrivals(tables);
  progress.reset_steps(tables, 0);
  for (size_t lane = 0; lane < progress.lanes.size(); ++lane)
    progress.lanes[lane].next = tables.plan.lane_begin[lane + 1];
  std::fill(progress.arrived.begin(), progress.arrived.end(), uint8_t{1});
  for (const transport::Completion& completion : progress.completions) progress.begin_put(completion);
  ASSERT_GT(progress.puts_open, 0u);
  EXPECT_TRUE(progress.deals_with(1, tables));
  EXPECT_FALSE(progress.deals_with(2, tables));
  for (transport::Completion& completion : progress.completions) completion.done = true;
  EXPECT_TRUE(progress.reap_puts(tables));
  EXPECT_FALSE(progress.deals_with(1, tables));
}

TEST(Interpreter, APutWaitsUntilItsTargetIsExposed) {
  ScriptedJob job({.nodes = {0, 1}});
  Transfer transfer(job, kLong);
  Operation* const sends = transfer.send();
  EXPECT_TRUE(job.network.flight().empty()) << "where to is not known";
  EXPECT_EQ(sends->progress.awaited_peers(*sends->tables), std::vector<int>{1});
  Operation* const receives = transfer.recv();
  ASSERT_EQ(job.network.flight().size(), 1u);
  EXPECT_FALSE(job.network.flight()[0].is_put);
  job.network.deliver(0);
  (void)job.turn(0);
  ASSERT_FALSE(job.network.flight().empty());
  EXPECT_TRUE(job.network.flight()[0].is_put);
  job.settle();
  EXPECT_TRUE(sends->end.finished && receives->end.finished);
  EXPECT_EQ(transfer.target, transfer.source);
  EXPECT_EQ(job.network.stray_puts(), 0u);
}

TEST(Interpreter, ASenderEndsWhenTheSourceOfItsPutMayBeReused) {
  ScriptedJob job({.nodes = {0, 1}});
  Transfer transfer(job, kLong);
  job.network.puts_complete = false;
  Operation* const receives = transfer.recv();
  Operation* const sends = transfer.send();
  job.settle();
  EXPECT_TRUE(receives->end.finished);
  EXPECT_FALSE(sends->end.finished);
  EXPECT_GT(sends->progress.puts_open, 0u);
  EXPECT_EQ(sends->progress.awaited_peers(*sends->tables), std::vector<int>{1});
  while (job.network.incomplete() > 0) {
    EXPECT_FALSE(sends->end.finished);
    job.network.complete_put();
    (void)job.turn(0);
  }
  EXPECT_TRUE(sends->end.finished);
  EXPECT_TRUE(sends->end.status.ok());
}

TEST(Interpreter, AFailedOperationForgetsItsPuts) {
  ScriptedJob job({.nodes = {0, 1}});
  Transfer transfer(job, kLong);
  transfer.recv();
  Operation* const sends = transfer.send();
  job.network.deliver(job.network.find(1, 0));
  (void)job.turn(0);
  ASSERT_TRUE(job.network.flight()[0].is_put);
  {
    const Lock lock = job.context(0).lock();
    job.comm(0).fail(fail(Code::aborted, "enough"), false);
  }
  EXPECT_TRUE(sends->end.finished);
  for (const auto& what : job.network.flight()) EXPECT_EQ(what.done, nullptr);
}

// ---- Busy

TEST(Interpreter, ABusyTransportHoldsUpOnlyTheStepsThatNeedIt) {
  ScriptedJob job({.nodes = {0, 1, 2}, .algorithm = "allreduce=one_hop"});
  Collected sums(job, Collective::all_reduce, 4);
  job.network.busy = {{0, 1}};
  sums.begin_all();
  job.settle();
  EXPECT_FALSE(sums.ops[1]->end.finished);
  EXPECT_TRUE(sums.ops[0]->progress.may_move) << "room may come without a message";
  EXPECT_EQ(sums.ops[0]->progress.awaited_peers(*sums.ops[0]->tables), std::vector<int>{1});
  EXPECT_EQ(sums.ops[1]->progress.awaited_peers(*sums.ops[1]->tables), std::vector<int>{0});
  job.network.busy.clear();
  (void)job.turn(0);
  ASSERT_FALSE(job.network.flight().empty());
  EXPECT_EQ(job.network.find(0, 1), 0u);
  job.settle();
  sums.expect_right();
  EXPECT_EQ(job.context(0).fabric().between_nodes()->counters().messages_sent, 2u) << "nothing is sent twice";
}

TEST(Interpreter, APutThatWasRefusedIsTriedAgain) {
  ScriptedJob job({.nodes = {0, 1}});
  Transfer transfer(job, kLong);
  Operation* const receives = transfer.recv();
  Operation* const sends = transfer.send();
  job.network.deliver_all();
  job.network.busy = {{0, 1}};
  (void)job.turn(0);
  (void)job.turn(0);
  EXPECT_TRUE(job.network.flight().empty());
  EXPECT_EQ(sends->progress.puts_started, 0u);
  job.network.busy.clear();
  job.settle();
  EXPECT_TRUE(sends->end.finished && receives->end.finished);
  EXPECT_EQ(transfer.target, transfer.source);
}

// The signal took the first place, and counted before the data were there, because it left first.
TEST(Interpreter, ASignalThatLeavesBeforeAnEarlierPutCountsBehindIt) {
  ScriptedJob job({.nodes = {0, 1}});
  const auto signal_named = [](uint32_t index) {
    Call call;
    call.collective = Collective::send;
    call.root = 1;
    call.purpose = Purpose::put;
    auto what = std::make_shared<OneSided>();
    what->signals = true;
    what->signal = {index, 0};
    call.one_sided = std::move(what);
    return call;
  };
  Call waits;
  waits.collective = Collective::recv;
  waits.root = 1;
  waits.purpose = Purpose::wait;
  auto second = std::make_shared<OneSided>();
  second->awaited.push_back({0, {2, 0}, 1});
  waits.one_sided = std::move(second);
  Operation* const wait = job.begin(1, waits);

  job.network.busy = {{0, 1}};
  job.begin(0, signal_named(1));
  job.network.busy.clear();
  job.begin(0, signal_named(2));
  ASSERT_EQ(job.network.flight().size(), 1u) << "the first one is tried again at the next turn";
  job.network.deliver_all();
  job.hear(1);
  EXPECT_FALSE(wait->end.finished) << "an earlier put of rank 0 has not come";
  job.settle();
  EXPECT_TRUE(wait->end.finished);
}

// ---- What cannot be

/// A message to rank 0 for `op`, as rank 1 might send it.
transport::ScriptedNetwork::InFlight message_for(const Operation& op, MessageKind kind, uint32_t tag,
                                                 uint64_t offset, std::vector<std::byte> payload) {
  transport::Envelope envelope;
  envelope.comm = op.comm->id();
  envelope.op = op.number;
  envelope.signature = op.signature;
  envelope.kind = static_cast<uint8_t>(kind);
  envelope.space = static_cast<uint8_t>(plan::Space::scratch);
  envelope.offset = offset;
  envelope.bytes = static_cast<uint32_t>(payload.size());
  envelope.set_tag(tag);
  return {1, 0, envelope, std::move(payload)};
}

TEST(Interpreter, AnUnknownNotificationFailsTheCommunicator) {
  ScriptedJob job({.nodes = {0, 1}, .algorithm = "allreduce=one_hop"});
  Collected sums(job, Collective::all_reduce, 4);
  sums.begin(0);
  job.network.forge(message_for(*sums.ops[0], MessageKind::signal, 99, 0, {}));
  job.network.deliver(job.network.find(1, 0));
  (void)job.turn(0);
  EXPECT_EQ(job.failure(0).code(), Code::internal_error);
  EXPECT_NE(job.failure(0).message().find("rank 1 sent notification 99"), std::string::npos)
      << job.failure(0).message();
  EXPECT_TRUE(sums.ops[0]->end.finished);
}

// Tags of rank 2 count from behind the notifications of rank 1.
TEST(Interpreter, ANotificationWhoseNumberWrapsIsUnknown) {
  ScriptedJob job({.nodes = {0, 1, 2}, .algorithm = "allreduce=one_hop"});
  Collected sums(job, Collective::all_reduce, 4);
  sums.begin(0);
  auto wrong = message_for(*sums.ops[0], MessageKind::signal, UINT32_MAX, 0, {});
  wrong.from = 2;
  job.network.forge(wrong);
  job.network.deliver(job.network.find(2, 0));
  (void)job.turn(0);
  EXPECT_EQ(job.failure(0).code(), Code::internal_error);
  EXPECT_NE(job.failure(0).message().find("rank 2 sent notification 4294967295"), std::string::npos)
      << job.failure(0).message();
}

TEST(Interpreter, APayloadThatDoesNotFitFailsTheCommunicatorAndWritesNothing) {
  ScriptedJob job({.nodes = {0, 1}, .algorithm = "allreduce=one_hop"});
  Collected sums(job, Collective::all_reduce, 4);
  sums.begin(0);
  const uint64_t end = sums.ops[0]->memory.bytes[2];
  job.network.forge(message_for(*sums.ops[0], MessageKind::data, 0, end - 8, std::vector<std::byte>(16)));
  job.network.deliver(job.network.find(1, 0));
  (void)job.turn(0);
  EXPECT_EQ(job.failure(0).code(), Code::internal_error);
  EXPECT_NE(job.failure(0).message().find("rank 1 sent 16 bytes for offset"), std::string::npos)
      << job.failure(0).message();
}

// The transport has dropped its bytes, for lack of a place.
TEST(Interpreter, APutThatDoesNotFitFailsTheCommunicator) {
  ScriptedJob job({.nodes = {0, 1}, .algorithm = "allreduce=one_hop"});
  Collected sums(job, Collective::all_reduce, 4);
  sums.begin(0);
  const uint64_t end = sums.ops[0]->memory.bytes[2];
  auto wrong = message_for(*sums.ops[0], MessageKind::data, 0, end - 8, std::vector<std::byte>(16));
  wrong.payload.clear();
  job.network.forge(wrong);
  job.network.deliver(job.network.find(1, 0));
  (void)job.turn(0);
  EXPECT_EQ(job.failure(0).code(), Code::internal_error);
  EXPECT_NE(job.failure(0).message().find("rank 1 sent 16 bytes for offset"), std::string::npos)
      << job.failure(0).message();
}

// ---- Peers that cannot be reached

// A peer of the node whose memory is gone has failed, and why it did may be on its way.
class Unreachable : public testing::Test {
 protected:
  void SetUp() override {
    before_ = now_ns();
    job_.local.broken[{1, 0}] = fail(Code::remote_error, "its memory is gone");
    transfer_.send();
    receives_ = transfer_.recv();
    job_.settle();
    EXPECT_FALSE(receives_->end.finished);
  }
  ScriptedJob job_{{.nodes = {0, 0}}};
  Transfer transfer_{job_, 200'000};
  Operation* receives_ = nullptr;
  int64_t before_ = 0;
};

TEST_F(Unreachable, AStepThatCouldNotReachItsPeerIsNotTriedAgain) {
  const uint64_t tried = job_.local.tried(1, 0);
  EXPECT_GT(tried, 0u);
  for (int i = 0; i < 5; ++i) (void)job_.turn(1);
  EXPECT_EQ(job_.local.tried(1, 0), tried);
}

TEST_F(Unreachable, ItIsSaidAfterTheTimeOfGrace) {
  job_.look(1, before_ + 99 * kMs);
  EXPECT_FALSE(receives_->end.finished);
  job_.look(1, now_ns() + 150 * kMs);
  ASSERT_TRUE(receives_->end.finished);
  EXPECT_EQ(receives_->end.status.code(), Code::remote_error);
  EXPECT_EQ(receives_->end.status.message(),
            "Recv of 200000 int32 from rank 0 on communicator world: its memory is gone");
}

// While something moves in every turn, no thread sleeps and looks at deadlines.
TEST_F(Unreachable, ItIsSaidThoughOtherWorkMovesInEveryTurn) {
  transport::Envelope early;
  early.comm = job_.comm(1).id();
  early.op = 1000;
  early.kind = static_cast<uint8_t>(MessageKind::signal);
  const Deadline deadline = Deadline::in_seconds(20);
  while (!receives_->end.finished && !deadline.passed()) {
    job_.local.forge({0, 1, early});
    job_.local.deliver(job_.local.find(0, 1));
    EXPECT_GT(job_.turn(1), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(receives_->end.finished);
}

TEST_F(Unreachable, WhyAPeerFailedIsBetterThanThatItWasNotReached) {
  job_.context(1).failures().on_failed(0, job_.comm(1).id(), "out of cheese");
  EXPECT_TRUE(receives_->end.finished);
  EXPECT_EQ(receives_->end.status.code(), Code::remote_error);
  EXPECT_NE(receives_->end.status.message().find("rank 0 reports: out of cheese"), std::string::npos)
      << receives_->end.status.message();
}

// ---- Peers that are ahead

// A rank that kept many early messages of one peer read none of others, not even a put that it waited for.
TEST(Interpreter, APeerOfWhomNothingIsKeptIsHeardThoughAnotherIsFarAhead) {
  ScriptedJob job({.nodes = {0, 1, 2}});
  const std::vector<std::byte> payload(1 << 20);
  transport::Envelope ahead;
  ahead.comm = job.comm(0).id();
  ahead.kind = static_cast<uint8_t>(MessageKind::data);
  ahead.bytes = static_cast<uint32_t>(payload.size());
  Inbox& inbox = job.context(0).inbox();
  const auto takes_early = [&](int peer) {
    const Lock lock = job.context(0).lock();
    return inbox.takes_early(peer);
  };
  const auto send_ahead = [&](int64_t bytes) {
    for (int64_t sent = 0; sent < bytes; sent += ahead.bytes) {
      ++ahead.op;
      job.network.forge({1, 0, ahead, payload});
      job.network.deliver(job.network.find(1, 0));
      (void)job.turn(0);
    }
  };
  send_ahead(settings().early_bytes / 8 * 5);
  EXPECT_FALSE(takes_early(1));
  EXPECT_TRUE(takes_early(2)) << "it may announce a put";
  send_ahead(settings().early_bytes / 4);
  EXPECT_FALSE(takes_early(2)) << "what is kept is bounded";
}

// ---- Peers that are lost

// Rank 2 sends nothing any more from its k-th message on, for every k; what was in flight still arrives.
TEST(Interpreter, APeerLostAtAnyStepFailsWhoWaitsForItByName) {
  int failed = 0, succeeded = 0;
  for (int k = 0; k < 40; ++k) {
    ScriptedJob job({.nodes = {0, 1, 2}, .algorithm = "allreduce=ring"});
    Collected sums(job, Collective::all_reduce, 3);
    sums.begin_all();
    int from_2 = 0;
    bool moved = true;
    while (moved) {
      moved = false;
      while (!job.network.flight().empty()) {
        auto& flight = job.network.flight();
        moved = true;
        if (flight[0].from == 2 && from_2++ >= k) flight.pop_front();
        else job.network.deliver(0);
      }
      for (int rank = 0; rank < 3; ++rank) moved |= job.turn(rank) > 0;
    }
    const bool all_sent = from_2 <= k;
    for (int rank = 0; rank < 2; ++rank) {
      const int64_t before = now_ns();
      job.network.lose(rank, 2, fail(Code::remote_error, "its connection has ended"));
      (void)job.turn(rank);
      const bool waits = !sums.ops[rank]->end.finished;
      const std::vector<int> awaited =
          waits ? sums.ops[rank]->progress.awaited_peers(*sums.ops[rank]->tables) : std::vector<int>{};
      job.look(rank, before + 99 * kMs);
      EXPECT_EQ(sums.ops[rank]->end.finished, !waits) << "in its time of grace";
      job.look(rank, now_ns() + 150 * kMs);
      if (!waits) {
        EXPECT_EQ(sums.wrong(rank), "");
        ++succeeded;
      } else if (std::find(awaited.begin(), awaited.end(), 2) != awaited.end()) {
        ASSERT_TRUE(sums.ops[rank]->end.finished);
        EXPECT_NE(sums.ops[rank]->end.status.message().find("rank 2 has gone: its connection has ended"),
                  std::string::npos)
            << sums.ops[rank]->end.status.message();
        ++failed;
      } else {
        EXPECT_FALSE(sums.ops[rank]->end.finished) << "it waits for another rank";
      }
    }
    if (all_sent) break;
    ASSERT_LT(k, 39) << "rank 2 sends more than was thought";
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(succeeded, 0);
}

TEST(Interpreter, WhatIsOnItsWayFromADeadPeerStillCompletes) {
  ScriptedJob job({.nodes = {0, 1}, .algorithm = "allreduce=one_hop"});
  Collected sums(job, Collective::all_reduce, 4);
  sums.begin_all();
  job.context(0).failures().on_dead(1, fail(Code::remote_error, "killed by signal 9"));
  EXPECT_FALSE(sums.ops[0]->end.finished);
  job.settle();
  sums.expect_right();
  EXPECT_TRUE(job.failure(0).ok());
  job.look(0, now_ns() + 1500 * kMs);
  EXPECT_EQ(job.failure(0).message(), "rank 1 of communicator world is gone: killed by signal 9");
}

}  // namespace
}  // namespace weft::engine
