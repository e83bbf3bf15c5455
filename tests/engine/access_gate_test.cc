// Doors and visits without ranks: nobody is let in behind a gate that is shut, and whoever shuts one waits
// for those inside.
#include "engine/run/access_gate.h"

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

constexpr AccessGate::Name kName{.job = 7, .comm = 8, .rank = 9};

bool admitted(const std::shared_ptr<AccessGate>& gate) {
  Accessor accessor;
  return AccessGuard(accessor).admitted(gate.get());
}

TEST(AccessGate, LetsInWhoeverFindsItUntilItIsShut) {
  const std::shared_ptr<AccessGate> gate = AccessGate::open(kName);
  EXPECT_TRUE(admitted(AccessGate::find(kName)));
  EXPECT_TRUE(admitted(nullptr));
  gate->shut();
  EXPECT_FALSE(admitted(AccessGate::find(kName)));
}

TEST(AccessGate, IsShutWhereNobodyHasOpenedOneOrEverybodyHasLeft) {
  EXPECT_FALSE(admitted(AccessGate::find(kName)));
  AccessGate::open(kName).reset();
  EXPECT_FALSE(admitted(AccessGate::find(kName)));
}

TEST(AccessGate, TakesOverTheNameOfAnEarlierOne) {
  std::shared_ptr<AccessGate> earlier = AccessGate::open(kName);
  earlier->shut();
  const std::shared_ptr<AccessGate> gate = AccessGate::open(kName);
  earlier.reset();
  EXPECT_EQ(AccessGate::find(kName), gate);
  EXPECT_TRUE(admitted(gate));
}

/// Two visitors touch a rank's memory as long as they are let in; it is gone as soon as its gate is shut.
void visit_while_doors_are_shut(int rounds) {
  constexpr int kVisitors = 2;
  struct Memory {
    std::shared_ptr<AccessGate> gate = AccessGate::open(kName);
    int gone = 0;  // no atomic: a race of its own for the thread sanitizer
  };
  std::vector<Memory> memories(static_cast<size_t>(rounds));
  std::atomic<bool> touched_too_late = false;
  std::barrier together(kVisitors + 1);
  std::vector<std::thread> visitors;
  for (int i = 0; i < kVisitors; ++i)
    visitors.emplace_back([&] {
      Accessor accessor;
      for (Memory& memory : memories) {
        together.arrive_and_wait();
        for (bool open = true; open;) {
          const AccessGuard visit(accessor);
          open = visit.admitted(memory.gate.get());
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
    memory.gate->shut();
    memory.gone = 1;
  }
  for (std::thread& accessor : visitors) accessor.join();
  EXPECT_FALSE(touched_too_late);
}

TEST(AccessGate, IsShutWhenNobodyIsInsideAnyMore) { visit_while_doors_are_shut(300); }

TEST(AccessGate, IsShutWhenNobodyIsInsideAnyMoreWithoutMembarrier) {
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

TEST(AccessGate, DoesNotWaitInAForkedChildForVisitorsOfItsParent) {
  const std::shared_ptr<AccessGate> gate = AccessGate::open(kName);
  Accessor accessor;
  const AccessGuard visit(accessor);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    gate->shut();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weft::engine
