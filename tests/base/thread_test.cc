// Names and pinning of threads, as the kernel reports them.
#include "base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <thread>

namespace weft {
namespace {

cpu_set_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

TEST(Thread, TakesANameAndCutsALongOne) {
  std::thread([] {
    char name[16];
    name_thread("weft-progress");
    pthread_getname_np(pthread_self(), name, sizeof name);
    EXPECT_STREQ(name, "weft-progress");
    name_thread("weft-progress-number-1");
    pthread_getname_np(pthread_self(), name, sizeof name);
    EXPECT_STREQ(name, "weft-progress-n");
  }).join();
}

TEST(Thread, PinsWhereTheProcessMayRun) {
  std::thread([] {
    const cpu_set_t before = affinity();
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before)) ++cpu;
    pin_thread(cpu);
    const cpu_set_t after = affinity();
    EXPECT_EQ(CPU_COUNT(&after), 1);
    EXPECT_TRUE(CPU_ISSET(cpu, &after));
  }).join();
}

TEST(Thread, IsLeftAloneWhereItMayNot) {
  std::thread([] {
    const cpu_set_t before = affinity();
    for (const int cpu : {-1, 1 << 19, 1 << 30}) {
      pin_thread(cpu);
      const cpu_set_t after = affinity();
      EXPECT_TRUE(CPU_EQUAL(&before, &after)) << cpu;
    }
  }).join();
}

}  // namespace
}  // namespace weft
