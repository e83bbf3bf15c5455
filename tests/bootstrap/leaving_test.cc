// Jobs that are no full mesh, and of which many ranks have left or died: what the others still hear.
#include <signal.h>
#include <sys/wait.h>

#include <set>

#include "bootstrap/neighbours.h"
#include "bootstrap/ranks.h"
#include "bootstrap/socket.h"

namespace weft::bootstrap {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = kFullMeshRanks + 1;  // the smallest job that is no full mesh

/// A job of which some ranks are processes of their own, that can be killed, and the others threads of this
/// one.
class LargeJob {
 public:
  explicit LargeJob(int ranks, const std::set<int>& processes = {}) : events(ranks), members(ranks) {
    // Forked before this process has a root or ranks, so that the children hold none of their descriptors.
    Result<UniqueFd> port_holder = listen_on(*SocketAddress::parse("127.0.0.1:0"));
    const int port = local_address(port_holder->get())->port();
    port_holder->reset();
    const UniqueId id = *unique_id_for("127.0.0.1", port, "leaving test");
    for (const int rank : processes) processes_[rank] = spawn(id, rank, ranks);
    EXPECT_TRUE(serve_unique_id(id).ok());
    on_each_rank(ranks, [&](int rank) {
      if (processes.contains(rank)) return;
      Joined joined = Bootstrap::join(id, rank, ranks, soon());
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      members[static_cast<size_t>(rank)] = joined.take();
      ASSERT_TRUE(member(rank).start(events_of(rank).callbacks()).ok());
    });
  }
  LargeJob(const LargeJob&) = delete;
  ~LargeJob() {
    while (!processes_.empty()) kill_rank(processes_.begin()->first);
  }

  Bootstrap& member(int rank) { return *members[static_cast<size_t>(rank)]; }
  Events& events_of(int rank) { return events[static_cast<size_t>(rank)]; }
  void leave(int rank) { members[static_cast<size_t>(rank)].reset(); }
  void all_leave_but(const std::set<int>& staying) {
    for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
      if (!staying.contains(rank)) leave(rank);
    }
  }
  void signal_rank(int rank, int signal) { EXPECT_EQ(kill(processes_.at(rank), signal), 0); }
  void kill_rank(int rank) {
    signal_rank(rank, SIGKILL);
    const pid_t pid = processes_.at(rank);
    processes_.erase(rank);
    int status;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status));
  }

  std::vector<Events> events;
  std::vector<std::unique_ptr<Bootstrap>> members;

 private:
  static pid_t spawn(const UniqueId& id, int rank, int ranks) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    const Joined joined = Bootstrap::join(id, rank, ranks, soon());
    if (!joined.ok() || !(*joined)->start({}).ok()) _exit(1);
    for (;;) pause();
  }
  std::map<int, pid_t> processes_;
};

void expect_failure_is_heard(LargeJob& job, int teller, const std::set<int>& listeners) {
  job.member(teller).tell_failed(7, "AllReduce 1");
  for (const int rank : listeners) {
    Events& events = job.events_of(rank);
    EXPECT_TRUE(rank == teller || events.wait([&] { return events.failures.size() == 1; }))
        << "rank " << rank;
    EXPECT_TRUE(events.locked([&] { return events.dead.empty(); })) << "rank " << rank;
  }
}

// Their links were those to ranks that had left, and nobody opened others: neither heard of the other again.
TEST(Leaving, AFailureReachesThoseWhoStay) {
  for (const auto& [ranks, staying] :
       {std::pair(kRanks, std::set{0, 2}), {kRanks, {3, 4, 16}}, {40, {1, 9, 20, 33}}}) {
    LargeJob job(ranks);
    job.all_leave_but(staying);
    std::this_thread::sleep_for(300ms);
    expect_failure_is_heard(job, *std::next(staying.begin()), staying);
  }
}

// The report comes while there is no way to the other rank.
TEST(Leaving, AFailureThatIsToldAtOnceReachesThoseWhoStay) {
  LargeJob job(kRanks);
  job.all_leave_but({0, 2});
  expect_failure_is_heard(job, 2, {0, 2});
}

TEST(Leaving, ADeathReachesThoseWhoStay) {
  LargeJob job(kRanks, {2});
  job.all_leave_but({0, 2, 7});
  std::this_thread::sleep_for(300ms);
  job.kill_rank(2);
  for (const int rank : {0, 7}) {
    Events& events = job.events_of(rank);
    ASSERT_TRUE(events.wait([&] { return events.dead.size() == 1; })) << "rank " << rank;
    EXPECT_EQ(events.dead.front().first, 2);
  }
}

// All neighbours of rank 0 die one by one. Rank 0 hears of each, and of the others afterwards.
TEST(Leaving, DeathsOneAfterAnotherLeaveNoRankAlone) {
  const std::set<int> neighbours{1, 5, 8, 9, 12, 16};
  LargeJob job(kRanks, neighbours);
  size_t dead = 0;
  for (const int rank : neighbours) {
    job.kill_rank(rank);
    ++dead;
    for (const int survivor : {0, 2, 10}) {
      Events& events = job.events_of(survivor);
      ASSERT_TRUE(events.wait([&] { return events.dead.size() == dead; })) << rank << " on " << survivor;
    }
  }
  job.member(2).tell_failed(7, "AllReduce 1");
  Events& events = job.events_of(0);
  EXPECT_TRUE(events.wait([&] { return events.failures.size() == 1; }));
}

// Rank 2 is no neighbour of rank 0, and says goodbye to neighbours only.
TEST(Leaving, ARankThatDoesNotAnswerIsKnownToHaveLeft) {
  LargeJob job(kRanks);
  const std::vector<int> asked = {2, 3};
  EXPECT_FALSE(job.member(0).has_left(2));
  job.leave(2);
  const auto answers = job.member(0).ask(asked, 1, 1, soon());
  EXPECT_FALSE(answers[0].has_value());
  EXPECT_TRUE(answers[1].has_value());
  EXPECT_TRUE(job.member(0).has_left(2));
  EXPECT_FALSE(job.member(0).has_left(3));
  EXPECT_EQ(job.member(0).connect(2, 0, 0, soon()).status().code(), Code::remote_error);
}

// Rank 0 has found that nobody listens there, before the report of why.
TEST(Leaving, ARankThatDoesNotAnswerMayStillBeReportedDead) {
  LargeJob job(kRanks, {2});
  const std::vector<int> asked = {2};
  job.kill_rank(2);
  (void)job.member(0).ask(asked, 1, 1, soon());
  Events& events = job.events_of(0);
  ASSERT_TRUE(events.wait([&] { return events.dead.size() == 1; }));
  EXPECT_FALSE(job.member(0).has_left(2));
}

// Some leave while others look for whom to link with.
TEST(Leaving, LeavingOneAfterAnotherIsNoDeath) {
  LargeJob job(40);
  on_each_rank(40, [&](int rank) {
    std::this_thread::sleep_for(std::chrono::milliseconds(rank * 7 % 40 * 15));
    job.leave(rank);
  });
  for (Events& events : job.events) EXPECT_TRUE(events.dead.empty()) << events.dead.front().second;
}

// Rank 0 cannot link with rank 2, and links with rank 3 in the end. Rank 2 is there all the time.
TEST(Leaving, ARankThatIsStoppedIsPassedOverAndNotDead) {
  LargeJob job(kRanks, {2});
  job.signal_rank(2, SIGSTOP);
  job.all_leave_but({0, 2, 3});
  expect_failure_is_heard(job, 0, {0, 3});
  std::this_thread::sleep_for(6s);  // longer than rank 0 waits for rank 2
  job.signal_rank(2, SIGCONT);
  std::this_thread::sleep_for(300ms);
  const std::vector<int> asked = {2};
  for (const int rank : {0, 3}) {
    EXPECT_TRUE(job.member(rank).ask(asked, 1, 1, soon()).front().has_value());
    EXPECT_TRUE(job.events_of(rank).locked([&] { return job.events_of(rank).dead.empty(); }));
  }
  job.kill_rank(2);
  for (const int rank : {0, 3}) {
    Events& events = job.events_of(rank);
    EXPECT_TRUE(events.wait([&] { return events.dead.size() == 1; })) << "rank " << rank;
  }
}

}  // namespace
}  // namespace weft::bootstrap
