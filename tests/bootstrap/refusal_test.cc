// Jobs that cannot meet: each rank hears why.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bootstrap/guests.h"
#include "bootstrap/ranks.h"
#include "bootstrap/reserved_port.h"
#include "bootstrap/root.h"
#include "bootstrap/wire.h"

namespace weft::bootstrap {
namespace {

using namespace std::chrono_literals;

void expect_said(const Status& status, Code code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(Refusal, RanksThatDisagreeOnTheSizeAllHearOfIt) {
  const UniqueId id = make_id();
  on_each_rank(3, [&](int rank) {
    const Joined joined = Bootstrap::join(id, rank, rank == 2 ? 4 : 5, soon());
    expect_said(joined.status(), Code::mismatch, "disagree on the size of the job");
  });
}

TEST(Refusal, ALateRankOfABrokenJobHearsWhy) {
  const UniqueId id = make_id();
  on_each_rank(2, [&](int rank) { EXPECT_FALSE(Bootstrap::join(id, rank, 2 + rank, soon()).ok()); });
  expect_said(Bootstrap::join(id, 1, 3, soon()).status(), Code::mismatch, "disagree");
}

TEST(Refusal, TheSecondOfTwoEqualRanksIsRefusedAndTheJobMeets) {
  const UniqueId id = make_id();
  std::thread first([&] {
    const Joined joined = Bootstrap::join(id, 0, 2, soon());
    EXPECT_TRUE(joined.ok()) << joined.status().message();
  });
  // Of two that come as rank 0 one is refused: this thread tries until it is the later one, which it soon is.
  std::this_thread::sleep_for(100ms);
  expect_said(Bootstrap::join(id, 0, 2, soon()).status(), Code::invalid_usage, "rank 0 has come already");
  EXPECT_TRUE(Bootstrap::join(id, 1, 2, soon()).ok());
  first.join();
}

TEST(Refusal, RanksOutOfRangeAreNamedWithTheRange) {
  const UniqueId id = make_id();
  expect_said(Bootstrap::join(id, 3, 3, soon()).status(), Code::invalid_argument,
              "rank is 3, must be in [0, 3)");
  expect_said(Bootstrap::join(id, -1, 3, soon()).status(), Code::invalid_argument, "rank is -1");
  expect_said(Bootstrap::join(id, 0, 0, soon()).status(), Code::invalid_argument, "at least 1");
}

TEST(Refusal, ANumberOfRanksThatCannotBeIsRefusedBeforeMemoryIsReserved) {
  const UniqueId id = make_id();
  expect_said(Bootstrap::join(id, 0, INT32_MAX, soon()).status(), Code::invalid_argument,
              "the number of ranks is 2147483647, at most 1048576 are possible");
  // The root says the same to a rank that does not check.
  const Job job = *read_unique_id(id);
  const UniqueFd guest = dial(job.root);
  say(guest, as_text(greeting(job.secret,
                              FrameWriter(FrameKind::join).u32(0).u32(INT32_MAX).u32(1000).text("").take())));
  Proof proof;
  ASSERT_TRUE(recv_all(guest.get(), proof, soon()).ok());
  const Result<Frame> answer = recv_frame(guest.get(), kMaxFrameBytes, soon());
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->kind, FrameKind::refused);
}

TEST(Refusal, ADeadlineSaysHowManyCameAndWhoIsMissing) {
  const UniqueId id = make_id();
  on_each_rank(3, [&](int rank) {
    const Joined joined = Bootstrap::join(id, rank == 2 ? 5 : rank, 8, Deadline::in_seconds(1));
    expect_said(joined.status(), Code::timeout,
                "only 3 of 8 ranks came before the deadline; missing: 2-4, 6-7");
  });
}

// Of ranks that were started with another secret, or for another number of ranks, the others heard nothing
// but that they were missing.
TEST(Refusal, ADeadlineSaysHowManyWereRefusedAndWhy) {
  const UniqueId id = make_id();
  const UniqueId forged = write_unique_id(read_unique_id(id)->root, derive_secret("another job"));
  std::thread stranger([&] { EXPECT_FALSE(Bootstrap::join(forged, 1, 2, Deadline::in_seconds(1)).ok()); });
  const Status alone = Bootstrap::join(id, 0, 2, Deadline::in_seconds(1.5)).status();
  stranger.join();
  expect_said(alone, Code::timeout, "only 1 of 2 ranks came before the deadline; missing: 1; ");
  expect_said(alone, Code::timeout,
              " connections were refused, the last from 127.0.0.1: it gave another secret");
}

TEST(Refusal, ADeadlineSaysThatARankCameTwice) {
  const UniqueId id = make_id();
  std::thread first([&] {
    expect_said(Bootstrap::join(id, 0, 2, Deadline::in_seconds(1.5)).status(), Code::timeout,
                "missing: 1; one connection was refused, from 127.0.0.1: rank 0 has come already");
  });
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(Bootstrap::join(id, 0, 2, soon()).ok());
  first.join();
}

TEST(Refusal, NobodyAtTheRootsAddressIsNamed) {
  Result<UniqueId> id = unique_id_for("127.0.0.1", 1, "nobody listens on port 1");
  ASSERT_TRUE(id.ok());
  expect_said(Bootstrap::join(*id, 0, 2, Deadline::in_seconds(0.3)).status(), Code::timeout, "127.0.0.1:1");
}

TEST(Refusal, ARootThatComesLateIsWaitedFor) {
  Result<UniqueId> id = unique_id_for("127.0.0.1", 0x4000 + ::getpid() % 0x3fff, "late root");
  ASSERT_TRUE(id.ok());
  on_each_rank(3, [&](int rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(200ms);
      const Status served = serve_unique_id(*id);
      ASSERT_TRUE(served.ok()) << served.message();
    }
    const Joined joined = Bootstrap::join(*id, rank, 3, soon());
    EXPECT_TRUE(joined.ok()) << joined.status().message();
  });
}

// A program that made its id first, and then loaded its data for a minute, found no root.
TEST(Refusal, AnIdServesHoweverLateItsRanksBegin) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setenv("WEFT_INIT_TIMEOUT_S", "0.3", 1);
    const UniqueId id = make_id();
    const ReservedPort port;
    const Result<UniqueId> fixed = unique_id_for("127.0.0.1", port.number(), "late ranks");
    const bool served = serve_unique_id(*fixed).ok();
    // The second waits for ranks that are on their way: from the first one on, their patience counts.
    bool met = true;
    on_each_rank(2, [&](int rank) {
      std::this_thread::sleep_for(rank == 0 ? 100ms : 500ms);
      if (!Bootstrap::join(*fixed, rank, 2, soon()).ok()) met = false;
    });
    _exit(served && met && join_all(id, 2).size() == 2 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Refusal, AJobsIdServesOnce) {
  const UniqueId id = make_id();
  EXPECT_EQ(join_all(id, 2).size(), 2u);
  expect_said(Bootstrap::join(id, 0, 2, Deadline::in_seconds(0.3)).status(), Code::timeout,
              "no root of the job");
}

TEST(Refusal, AllGatherThatARankLeavesFailsOnTheOthers) {
  auto members = join_all(make_id(), 3);
  ASSERT_EQ(members.size(), 3u);
  on_each_rank(3, [&](int rank) {
    auto& self = members[static_cast<size_t>(rank)];
    if (rank == 2) {
      self.reset();
    } else {
      EXPECT_EQ(self->all_gather({}, soon()).status().code(), Code::remote_error);
    }
  });
}

TEST(Refusal, AllGatherOfUnequalLengthsIsAMismatch) {
  auto members = join_all(make_id(), 2);
  ASSERT_EQ(members.size(), 2u);
  on_each_rank(2, [&](int rank) {
    const std::vector<std::byte> mine(static_cast<size_t>(4 + rank));
    expect_said(members[static_cast<size_t>(rank)]->all_gather(mine, soon()).status(), Code::mismatch,
                "must give the same");
  });
}

TEST(Refusal, AllGatherHasADeadline) {
  auto members = join_all(make_id(), 2);
  ASSERT_EQ(members.size(), 2u);
  expect_said(members[0]->all_gather({}, Deadline::in_seconds(0.1)).status(), Code::timeout, "rank 1");
}

TEST(Refusal, CallsOutOfOrderAreNamed) {
  auto members = join_all(make_id(), 1);
  ASSERT_EQ(members.size(), 1u);
  ASSERT_TRUE(members[0]->start({}).ok());
  expect_said(members[0]->start({}), Code::invalid_usage, "twice");
  expect_said(members[0]->all_gather({}, soon()).status(), Code::invalid_usage, "after start");
}

TEST(RankList, IsCompact) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({3}), "3");
  EXPECT_EQ(rank_list({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
  EXPECT_EQ(rank_list({0, 2, 4, 6, 7}, 2), "0, 2 and 3 more");
}

}  // namespace
}  // namespace weft::bootstrap
