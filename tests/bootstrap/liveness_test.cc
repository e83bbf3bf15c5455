// After start(): deaths, goodbyes, failures, questions, data connections.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "bootstrap/neighbours.h"
#include "bootstrap/ranks.h"
#include "bootstrap/socket.h"

namespace weft::bootstrap {
namespace {

using namespace std::chrono_literals;

/// Joined and started ranks of one process, with what each was told.
struct Started {
  explicit Started(int ranks) : events(static_cast<size_t>(ranks)), members(join_all(make_id(), ranks)) {
    for (size_t rank = 0; rank < members.size(); ++rank) {
      EXPECT_TRUE(members[rank]->start(events[rank].callbacks()).ok());
    }
  }
  std::vector<Events> events;
  std::vector<std::unique_ptr<Bootstrap>> members;
};

/// Rank `rank` of a job in a process of its own, which does nothing but be there.
pid_t spawn_rank(const UniqueId& id, int rank, int ranks) {
  const pid_t pid = fork();
  if (pid == 0) {
    const Joined joined = Bootstrap::join(id, rank, ranks, soon());
    if (!joined.ok() || !(*joined)->start({}).ok()) _exit(1);
    for (;;) pause();
  }
  return pid;
}

void reap(pid_t pid) {
  int status;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
}

/// Killed processes: with 5 ranks everybody is a neighbour, with 40 the news must travel.
void expect_deaths_are_told(int ranks, const std::vector<int>& victims) {
  // Forked before this process has a root or ranks, so that the children hold none of their descriptors.
  Result<UniqueFd> port_holder = listen_on(*SocketAddress::parse("127.0.0.1:0"));
  ASSERT_TRUE(port_holder.ok());
  const int port = local_address(port_holder->get())->port();
  port_holder->reset();
  const UniqueId id = *unique_id_for("127.0.0.1", port, "liveness test");
  std::map<int, pid_t> processes;
  for (const int victim : victims) processes[victim] = spawn_rank(id, victim, ranks);
  ASSERT_TRUE(serve_unique_id(id).ok());

  std::vector<Events> events(static_cast<size_t>(ranks));
  std::vector<std::unique_ptr<Bootstrap>> members(static_cast<size_t>(ranks));
  on_each_rank(ranks, [&](int rank) {
    if (processes.contains(rank)) return;
    Joined joined = Bootstrap::join(id, rank, ranks, soon());
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    members[static_cast<size_t>(rank)] = joined.take();
    ASSERT_TRUE(
        members[static_cast<size_t>(rank)]->start(events[static_cast<size_t>(rank)].callbacks()).ok());
  });
  for (const auto& [rank, pid] : processes) ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_NE(members.front(), nullptr);
  for (const auto& [rank, pid] : processes) reap(pid);

  for (int rank = 0; rank < ranks; ++rank) {
    if (!members[static_cast<size_t>(rank)]) continue;
    Events& told = events[static_cast<size_t>(rank)];
    EXPECT_TRUE(told.wait([&] { return told.dead.size() == victims.size(); })) << "rank " << rank;
  }
  members.front()->stop();
  events.front().locked([&] {
    for (const auto& [rank, why] : events.front().dead) {
      EXPECT_TRUE(processes.contains(rank));
      EXPECT_NE(why.find(fmt::format("rank {} is dead", rank)), std::string::npos) << why;
    }
  });
  const Status refused = members.front()->connect(victims.front(), 0, 0, soon()).status();
  EXPECT_EQ(refused.code(), Code::remote_error);
  EXPECT_NE(refused.message().find("is dead"), std::string::npos) << refused.message();
}

TEST(Liveness, EverySurvivorHearsOfAKilledProcess) { expect_deaths_are_told(5, {2}); }
TEST(Liveness, NewsOfADeathCrossesAJobThatIsNoFullMesh) { expect_deaths_are_told(40, {17}); }
TEST(Liveness, SeveralDeathsAtOnceAreEachToldOnce) { expect_deaths_are_told(24, {8, 9, 10, 11}); }

TEST(Liveness, AGoodbyeIsNoDeath) {
  for (const int ranks : {4, 20}) {
    Started job(ranks);
    ASSERT_EQ(job.members.size(), static_cast<size_t>(ranks));
    job.members[1].reset();
    const int neighbour = 0;
    Status said;
    for (int tries = 0; tries < 1000 && said.message().find("has left") == std::string::npos; ++tries) {
      said = job.members[neighbour]->connect(1, 0, 0, soon()).status();
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(said.message(), "rank 1 has left (destroyed its communicator)");
    for (auto& member : job.members) {
      if (member) member->stop();
    }
    for (Events& events : job.events) EXPECT_TRUE(events.dead.empty()) << events.dead.front().second;
  }
}

TEST(Liveness, LeavingTogetherIsNoDeath) {
  for (const int ranks : {2, 16, 40}) {
    Started job(ranks);
    on_each_rank(ranks, [&](int rank) { job.members[static_cast<size_t>(rank)].reset(); });
    for (Events& events : job.events) EXPECT_TRUE(events.dead.empty()) << events.dead.front().second;
  }
}

TEST(Liveness, ADeathBeforeStartIsToldAtStart) {
  Result<UniqueFd> port_holder = listen_on(*SocketAddress::parse("127.0.0.1:0"));
  const int port = local_address(port_holder->get())->port();
  port_holder->reset();
  const UniqueId id = *unique_id_for("127.0.0.1", port, "early death");
  const pid_t pid = spawn_rank(id, 1, 2);
  ASSERT_TRUE(serve_unique_id(id).ok());
  Joined joined = Bootstrap::join(id, 0, 2, soon());
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  kill(pid, SIGKILL);
  reap(pid);
  std::this_thread::sleep_for(50ms);
  Events events;
  ASSERT_TRUE((*joined)->start(events.callbacks()).ok());
  EXPECT_TRUE(events.wait([&] { return events.dead.size() == 1; }));
  EXPECT_EQ(events.dead.front().first, 1);
}

TEST(Failures, ReachEveryRankOnceAndInOrder) {
  for (const int ranks : {2, 5, 40}) {
    Started job(ranks);
    ASSERT_EQ(job.members.size(), static_cast<size_t>(ranks));
    for (uint32_t comm = 0; comm < 20; ++comm)
      job.members[1]->tell_failed(comm, fmt::format("AllReduce {}", comm));
    for (int rank = 0; rank < ranks; ++rank) {
      Events& events = job.events[static_cast<size_t>(rank)];
      const size_t expected = rank == 1 ? 0 : 20;
      EXPECT_TRUE(events.wait([&] { return events.failures.size() == expected; })) << rank;
    }
    for (auto& member : job.members) member->stop();
    for (int rank = 0; rank < ranks; ++rank) {
      Events& events = job.events[static_cast<size_t>(rank)];
      ASSERT_EQ(events.failures.size(), rank == 1 ? 0u : 20u);
      for (uint32_t i = 0; i < events.failures.size(); ++i) {
        EXPECT_EQ(events.failures[i].from, 1);
        EXPECT_EQ(events.failures[i].comm, i);
        EXPECT_EQ(events.failures[i].why, fmt::format("AllReduce {}", i));
      }
    }
  }
}

TEST(Questions, AreAnsweredByNeighboursAndOthersAndOneself) {
  const int ranks = 40;
  auto members = join_all(make_id(), ranks);
  ASSERT_EQ(members.size(), static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    Callbacks callbacks;
    callbacks.on_question = [rank](int from, uint32_t comm, uint32_t op) {
      return OpReport{comm == 7, comm == 8, op + static_cast<uint32_t>(rank),
                      fmt::format("rank {} op {} asked by {}", rank, op, from), "binomial"};
    };
    ASSERT_TRUE(members[static_cast<size_t>(rank)]->start(callbacks).ok());
  }
  std::vector<int> everybody(ranks);
  for (int rank = 0; rank < ranks; ++rank) everybody[static_cast<size_t>(rank)] = ranks - 1 - rank;
  for (int round = 0; round < 2; ++round) {
    const auto answers = members[3]->ask(everybody, 7, 100, soon());
    ASSERT_EQ(answers.size(), everybody.size());
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_TRUE(answers[i].has_value()) << everybody[i];
      EXPECT_TRUE(answers[i]->known);
      EXPECT_EQ(answers[i]->last_started, 100u + static_cast<uint32_t>(everybody[i]));
      EXPECT_EQ(answers[i]->algorithm, "binomial");
      EXPECT_EQ(answers[i]->call, fmt::format("rank {} op 100 asked by 3", everybody[i]));
    }
  }
  const std::vector<int> asked = {5, -1, ranks, 6};
  members[5].reset();
  const auto answers = members[30]->ask(asked, 8, 1, soon());
  EXPECT_FALSE(answers[0].has_value());
  EXPECT_FALSE(answers[1].has_value());
  EXPECT_FALSE(answers[2].has_value());
  ASSERT_TRUE(answers[3].has_value());
  EXPECT_FALSE(answers[3]->known);
  EXPECT_TRUE(answers[3]->ended);
}

// A rank that was asked about its first call, as soon as that had reached the other, knew of nothing.
TEST(Questions, AreAnsweredFromTheReturnOfStartOn) {
  auto members = join_all(make_id(), 2);
  ASSERT_EQ(members.size(), 2u);
  const Result<UniqueFd> early = members[0]->connect(1, 0, 7, soon());
  ASSERT_TRUE(early.ok()) << early.status().message();
  const std::vector<int> oneself = {0};
  for (int turn = 0; turn < 3; ++turn) (void)members[0]->ask(oneself, 1, 1, soon());  // then it is there
  std::atomic<bool> called_back{false};
  Callbacks callbacks;
  callbacks.on_data_connection = [&](int, uint32_t, UniqueFd) {
    std::this_thread::sleep_for(100ms);
    called_back = true;
  };
  ASSERT_TRUE(members[1]->start(callbacks).ok());
  EXPECT_TRUE(called_back);
}

TEST(Questions, ASlowAnswerIsMissingAfterTheDeadline) {
  auto members = join_all(make_id(), 2);
  ASSERT_EQ(members.size(), 2u);
  std::atomic<bool> release{false};
  Callbacks callbacks;
  callbacks.on_question = [&](int, uint32_t, uint32_t) {
    while (!release) std::this_thread::sleep_for(1ms);
    return OpReport{true, false, 1, "late", ""};
  };
  ASSERT_TRUE(members[1]->start(callbacks).ok());
  ASSERT_TRUE(members[0]->start({}).ok());
  const std::vector<int> asked = {1};
  EXPECT_FALSE(members[0]->ask(asked, 1, 1, Deadline::in_seconds(0.1)).front().has_value());
  release = true;
  EXPECT_TRUE(members[0]->ask(asked, 1, 1, soon()).front().has_value());
}

TEST(DataConnections, CarryBytesFromBothEndsWithSenderAndPurpose) {
  auto members = join_all(make_id(), 3);
  ASSERT_EQ(members.size(), 3u);
  // Before rank 2 has started: the connection waits there.
  Result<UniqueFd> early = members[0]->connect(2, 0, 0xdecafbad, soon());
  ASSERT_TRUE(early.ok()) << early.status().message();
  ASSERT_TRUE(send_all(early->get(), std::as_bytes(std::span("early")), soon()).ok());
  Events events;
  ASSERT_TRUE(members[2]->start(events.callbacks()).ok());
  ASSERT_TRUE(events.wait([&] { return events.data.size() == 1; }));
  Result<UniqueFd> second = members[1]->connect(2, 0, 1, soon());
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(events.wait([&] { return events.data.size() == 2; }));

  EXPECT_EQ(events.data[0].from, 0);
  EXPECT_EQ(events.data[0].purpose, 0xdecafbad);
  EXPECT_EQ(events.data[1].from, 1);
  char text[6];
  ASSERT_TRUE(
      recv_all(events.data[0].connection.get(), std::as_writable_bytes(std::span(text)), soon()).ok());
  EXPECT_STREQ(text, "early");
  ASSERT_TRUE(send_all(events.data[0].connection.get(), std::as_bytes(std::span("reply")), soon()).ok());
  ASSERT_TRUE(recv_all(early->get(), std::as_writable_bytes(std::span(text)), soon()).ok());
  EXPECT_STREQ(text, "reply");

  EXPECT_EQ(members[0]->connect(3, 0, 0, soon()).status().code(), Code::invalid_argument);
  EXPECT_EQ(members[0]->connect(1, 99, 0, soon()).status().code(), Code::invalid_argument);
}

TEST(Stop, NoCallbackRunsOnceItHasReturned) {
  Started job(3);
  ASSERT_EQ(job.members.size(), 3u);
  job.members[0]->stop();
  job.members[0]->stop();
  job.members[1]->tell_failed(1, "after the stop");
  ASSERT_TRUE(job.events[2].wait([&] { return job.events[2].failures.size() == 1; }));
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(job.events[0].failures.empty());
}

TEST(Neighbours, EveryBlockOfHalfTheJobIsWatchedFromOutside) {
  for (int ranks = 2; ranks <= 200; ++ranks) {
    std::vector<std::vector<int>> of(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      for (const int other : link_targets(rank, ranks)) {
        ASSERT_NE(other, rank);
        auto& mine = of[static_cast<size_t>(rank)];
        ASSERT_EQ(std::count(mine.begin(), mine.end(), other), 0)
            << "two links between " << rank << " and " << other;
        mine.push_back(other);
        of[static_cast<size_t>(other)].push_back(rank);
      }
    }
    const int half = ranks / 2;
    for (int begin = 0; begin + half <= ranks; ++begin) {
      for (int dead = begin; dead < begin + half; ++dead) {
        const auto& watchers = of[static_cast<size_t>(dead)];
        EXPECT_TRUE(std::any_of(watchers.begin(), watchers.end(),
                                [&](int w) { return w < begin || w >= begin + half; }))
            << ranks << " ranks, block at " << begin << ", rank " << dead;
      }
    }
  }
}

}  // namespace
}  // namespace weft::bootstrap
