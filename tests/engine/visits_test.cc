// Doors and visits without ranks: nobody is let in behind a door that is shut, and whoever shuts one waits
// for those inside.
#include "engine/run/visits.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "transport/forbid.h"

namespace weft::engine {
namespace {

constexpr Door::Name kName{.job = 7, .comm = 8, .rank = 9};

bool admitted(const std::shared_ptr<Door>& door) {
  Visitor visitor;
  return Visit(visitor).admitted(door.get());
}

TEST(Door, LetsInWhoeverFindsItUntilItIsShut) {
  const std::shared_ptr<Door> door = Door::open(kName);
  EXPECT_TRUE(admitted(Door::find(kName)));
  EXPECT_TRUE(admitted(nullptr));
  door->shut();
  EXPECT_FALSE(admitted(Door::find(kName)));
}

TEST(Door, IsShutWhereNobodyHasOpenedOneOrEverybodyHasLeft) {
  EXPECT_FALSE(admitted(Door::find(kName)));
  Door::open(kName).reset();
  EXPECT_FALSE(admitted(Door::find(kName)));
}

TEST(Door, TakesOverTheNameOfAnEarlierOne) {
  std::shared_ptr<Door> earlier = Door::open(kName);
  earlier->shut();
  const std::shared_ptr<Door> door = Door::open(kName);
  earlier.reset();
  EXPECT_EQ(Door::find(kName), door);
  EXPECT_TRUE(admitted(door));
}

/// Two visitors touch a rank's memory as long as they are let in; it is gone as soon as its door is shut.
void visit_while_doors_are_shut(int rounds) {
  constexpr int kVisitors = 2;
  struct Memory {
    std::shared_ptr<Door> door = Door::open(kName);
    int gone = 0;  // no atomic: a race of its own for the thread sanitizer
  };
  std::vector<Memory> memories(static_cast<size_t>(rounds));
  std::atomic<bool> touched_too_late = false;
  std::barrier together(kVisitors + 1);
  std::vector<std::thread> visitors;
  for (int i = 0; i < kVisitors; ++i)
    visitors.emplace_back([&] {
      Visitor visitor;
      for (Memory& memory : memories) {
        together.arrive_and_wait();
        for (bool open = true; open;) {
          const Visit visit(visitor);
          open = visit.admitted(memory.door.get());
          for (int looks = 0; open && looks < 50; ++looks)
            if (*const_cast<volatile int*>(&memory.gone) != 0) {
              touched_too_late = true;
              open = false;
            }
        }
      }
    });
  for (Memory& memory : memories) {
    together.arrive_and_wait();
    memory.door->shut();
    memory.gone = 1;
  }
  for (std::thread& visitor : visitors) visitor.join();
  EXPECT_FALSE(touched_too_late);
}

TEST(Door, IsShutWhenNobodyIsInsideAnyMore) { visit_while_doors_are_shut(300); }

TEST(Door, IsShutWhenNobodyIsInsideAnyMoreWithoutMembarrier) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    transport::shm_test::forbid_system_call(SYS_membarrier, ENOSYS);
    visit_while_doors_are_shut(300);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Door, DoesNotWaitInAForkedChildForVisitorsOfItsParent) {
  const std::shared_ptr<Door> door = Door::open(kName);
  Visitor visitor;
  const Visit visit(visitor);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    door->shut();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weft::engine
