#include "rank.h"

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "checked_call.h"

namespace soak {
namespace {

using std::chrono::milliseconds;

constexpr double kTimeout_s = 60;
// A death or an abort may let a split fail on some ranks alone. Those that have the child wait there for the
// others, who have left, until the deadline. So in such rounds children have an early one.
constexpr double kTimeoutOfChildren_s = 5;
constexpr auto kNoticedWithin = std::chrono::seconds(20);

class RankRun {
 public:
  RankRun(Board& board, const Round& round, int rank)
      : board_(board),
        round_(round),
        rank_(rank),
        victim_(round.process_of[static_cast<size_t>(rank)] >= kWorkers) {}

  void run() {
    for (weftStream_t& stream : streams_) expect(weftStreamCreate(&stream), "weftStreamCreate");
    if (create()) {
      Outcome outcome = follow(round_.script, true);
      if (breaks() && outcome.ended == Ended::whole) outcome = await_failure();
      if (victim_) raise(SIGKILL);
      judge(outcome);
      if (round_.event == Event::death) go_on_without_the_dead();
      leave();
    }
    for (weftStream_t stream : streams_) (void)weftStreamDestroy(stream);
  }

 private:
  struct Comm {
    weftComm_t comm = nullptr;
    int rank = 0, size = 0;
  };
  enum class Ended : uint8_t { whole, failed, aborted, wrong };
  struct Outcome {
    Ended ended = Ended::whole;
    weftResult_t result = weftSuccess;
    std::string sentence;
    bool of_child = false;
  };

  bool breaks() const { return round_.event == Event::death || round_.event == Event::abort; }

  void trace(const std::string& what) const {
    if (!board_.trace) return;
    const double now_s =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    std::fprintf(stderr, "%.4f rank %d: %s\n", now_s, rank_, what.c_str());
  }

  void report(const std::string& what) { board_.report("rank " + std::to_string(rank_) + ": " + what); }

  bool expect(weftResult_t result, const std::string& what) {
    if (result == weftSuccess) return true;
    report(what + " returned " + std::to_string(result) + ": " + weftGetLastError(nullptr));
    return false;
  }

  bool create() {
    if (rank_ == 0) {
      if (!expect(weftGetUniqueId(&board_.id), "weftGetUniqueId")) return false;
      board_.id_ready = true;
    }
    while (!board_.id_ready)
      if (board_.has_finding) return false;
      else std::this_thread::sleep_for(std::chrono::microseconds(200));
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    const std::string node = "node" + std::to_string(round_.node_of[static_cast<size_t>(rank_)]);
    config.hostId = node.c_str();
    config.timeoutSeconds = kTimeout_s;
    config.strict = round_.strict;
    config.blocking = !round_.nonblocking;
    Comm world{nullptr, rank_, round_.ranks()};
    weftResult_t result = weftCommInitRankConfig(&world.comm, round_.ranks(), board_.id, rank_, &config);
    result = finished(result, world.comm);
    if (!expect(result, "weftCommInitRankConfig")) return false;
    comms_.push_back(world);
    ++board_.met;
    return true;
  }

  /// Waits for a call on a communicator that does not block.
  static weftResult_t finished(weftResult_t result, weftComm_t comm) {
    while (result == weftInProgress) {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
      if (const weftResult_t asked = weftCommGetAsyncError(comm, &result); asked != weftSuccess) return asked;
    }
    return result;
  }

  /// What happens to this rank before an act. True: it has aborted.
  bool happen(int act) {
    if (act != round_.at_act) return false;
    // A rank that is gone before all have met would fail the creation.
    while (breaks() && board_.met < round_.ranks() && !board_.has_finding)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (round_.event == Event::death && victim_ && round_.at_us < 0) raise(SIGKILL);
    if (round_.event == Event::slow && rank_ == round_.chosen)
      std::this_thread::sleep_for(milliseconds(round_.pause_ms));
    return round_.event == Event::abort && rank_ == round_.chosen;
  }

  Outcome follow(const std::vector<Act>& script, bool with_events) {
    for (size_t i = 0; i < script.size(); ++i) {
      if (with_events && happen(static_cast<int>(i))) return {Ended::aborted, weftAborted, {}, false};
      const Act& act = script[i];
      trace("act " + std::to_string(i) + ": " + describe(act));
      Outcome outcome;
      switch (act.kind) {
        case Act::Kind::calls: outcome = call(act); break;
        case Act::Kind::split: outcome = split(act); break;
        case Act::Kind::drop: outcome = drop(act); break;
      }
      outcome.of_child = act.comm != 0;
      if (outcome.ended != Ended::whole) return outcome;
    }
    return {};
  }

  Outcome failed(weftResult_t result) const {
    const Outcome outcome{Ended::failed, result, weftGetLastError(nullptr), false};
    trace("failed with " + std::to_string(result) + ": " + outcome.sentence);
    return outcome;
  }

  Outcome call(const Act& act) {
    const Comm& on = comms_[static_cast<size_t>(act.comm)];
    std::vector<std::unique_ptr<CheckedCall>> calls;
    for (const Call& each : act.calls) calls.push_back(std::make_unique<CheckedCall>(each, on.rank, on.size));
    board_.calls += calls.size();
    weftResult_t result = weftSuccess;
    Outcome outcome;
    const auto note = [&](weftResult_t next) {
      if (next != weftSuccess && outcome.ended == Ended::whole) outcome = failed(next);
    };
    if (act.mode == Mode::group) (void)weftGroupStart();
    for (size_t i = 0; i < calls.size() && outcome.ended == Ended::whole; ++i) {
      result = calls[i]->start(on.comm, act.mode == Mode::streams ? streams_[i % kStreams] : nullptr);
      note(result);
    }
    if (act.mode == Mode::group) note(weftGroupEnd());
    // Also after a failure: nothing may be under way when the buffers go.
    if (act.mode == Mode::streams)
      for (weftStream_t stream : streams_) note(weftStreamSynchronize(stream));
    if (outcome.ended != Ended::whole) return outcome;
    for (const auto& each : calls)
      if (const std::string wrong = each->check(); !wrong.empty()) {
        report(wrong);
        return {Ended::wrong, weftSuccess, wrong, false};
      }
    return {};
  }

  Outcome split(const Act& act) {
    const Comm& parent = comms_[static_cast<size_t>(act.comm)];
    const std::vector<int> members = members_of_split(act, parent.rank);
    Comm child{nullptr, 0, static_cast<int>(members.size())};
    while (members[static_cast<size_t>(child.rank)] != parent.rank) ++child.rank;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.timeoutSeconds = breaks() && !survived_ ? kTimeoutOfChildren_s : kTimeout_s;
    const auto mine = static_cast<size_t>(parent.rank);
    const weftResult_t result =
        weftCommSplit(parent.comm, act.colors[mine], act.keys[mine], &child.comm, &config);
    if (result != weftSuccess) return failed(result);
    int rank = -1, size = -1;
    (void)weftCommUserRank(child.comm, &rank);
    (void)weftCommCount(child.comm, &size);
    if (rank != child.rank || size != child.size)
      report("a split gave rank " + std::to_string(rank) + " of " + std::to_string(size) + ", must be " +
             std::to_string(child.rank) + " of " + std::to_string(child.size));
    comms_.push_back(child);
    return {};
  }

  Outcome drop(const Act& act) {
    const weftResult_t result = weftCommDestroy(comms_[static_cast<size_t>(act.comm)].comm);
    comms_[static_cast<size_t>(act.comm)].comm = nullptr;
    return result == weftSuccess ? Outcome{} : failed(result);
  }

  /// The script is over, and somebody is about to die or to abort.
  Outcome await_failure() {
    const auto end = std::chrono::steady_clock::now() + kNoticedWithin;
    while (std::chrono::steady_clock::now() < end) {
      int32_t value = 1;
      const weftResult_t result =
          weftAllReduce(&value, &value, 1, weftInt32, weftSum, comms_[0].comm, nullptr);
      if (result != weftSuccess) return failed(result);
    }
    return {};
  }

  void judge(const Outcome& outcome) {
    if (outcome.ended == Ended::wrong || outcome.ended == Ended::aborted) return;
    if (!breaks() && outcome.ended == Ended::failed)
      report("a call failed with " + std::to_string(outcome.result) + ": " + outcome.sentence);
    if (breaks() && outcome.ended == Ended::whole)
      report("calls go on to succeed 20 s after a rank has died or aborted");
    const bool left_alone = outcome.of_child && outcome.result == weftTimeout;
    if (breaks() && outcome.ended == Ended::failed && outcome.result != weftRemoteError && !left_alone)
      report("after a death or an abort a call failed with " + std::to_string(outcome.result) + ": " +
             outcome.sentence);
  }

  // A rank that has left the script is not waited for on communicators of the others: they are told.
  void abort_children() {
    trace("aborts " + std::to_string(comms_.size() - 1) + " children");
    for (size_t i = comms_.size() - 1; i > 0; --i)
      if (comms_[i].comm != nullptr) expect(weftCommAbort(comms_[i].comm), "weftCommAbort of a child");
    comms_.resize(1);
  }

  void go_on_without_the_dead() {
    abort_children();
    const std::vector<int> dead = round_.dead();
    Comm rest{nullptr, rank_, round_.ranks() - static_cast<int>(dead.size())};
    for (const int rank : dead) rest.rank -= rank < rank_;
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (!expect(weftCommShrink(comms_[0].comm, dead.data(), static_cast<int>(dead.size()), &rest.comm,
                               &config, WEFT_SHRINK_ABORT),
                "weftCommShrink"))
      return;
    expect(weftCommDestroy(comms_[0].comm), "weftCommDestroy of the parent");
    comms_ = {rest};
    survived_ = true;
    const Outcome outcome = follow(round_.after, false);
    if (outcome.ended == Ended::failed)
      report("on the communicator of the survivors a call failed with " + std::to_string(outcome.result) +
             ": " + outcome.sentence);
  }

  void leave() {
    trace("leaves");
    if (round_.event == Event::abort) {
      abort_children();
      expect(weftCommAbort(comms_[0].comm), "weftCommAbort");
      return;
    }
    for (size_t i = comms_.size(); i-- > 0;) {
      if (comms_[i].comm == nullptr) continue;
      if (round_.finalize && !board_.has_finding)
        expect(finished(weftCommFinalize(comms_[i].comm), comms_[i].comm), "weftCommFinalize");
      expect(weftCommDestroy(comms_[i].comm), "weftCommDestroy");
    }
  }

  Board& board_;
  const Round& round_;
  const int rank_;
  const bool victim_;
  weftStream_t streams_[kStreams] = {};
  std::vector<Comm> comms_;
  bool survived_ = false;  // this is the time after a death
};

}  // namespace

void run_ranks(Board& board, const Round& round, int process) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < round.ranks(); ++rank)
    if (round.process_of[static_cast<size_t>(rank)] == process)
      threads.emplace_back([&board, &round, rank] { RankRun(board, round, rank).run(); });
  if (process >= kWorkers && round.at_us >= 0) {
    while (board.met < round.ranks() && !board.has_finding)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::this_thread::sleep_for(std::chrono::microseconds(round.at_us));
    raise(SIGKILL);
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace soak
