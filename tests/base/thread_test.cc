// Names and pinning of threads, as the kernel reports them.
#include "base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <thread>
#include <utility>

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

TEST(Thread, IsKeptOnACpuForAWhile) {
  std::thread([] {
    const cpu_set_t before = affinity();
    const int cpus = CPU_COUNT(&before);
    for (int place = 0; place < cpus; ++place) {
      const KeptOnCpu kept(place, cpus);
      const cpu_set_t meanwhile = affinity();
      ASSERT_EQ(CPU_COUNT(&meanwhile), 1);
      int cpu = 0, earlier = 0;  // of those that the thread may use
      for (; !CPU_ISSET(cpu, &meanwhile); ++cpu) earlier += CPU_ISSET(cpu, &before);
      EXPECT_TRUE(CPU_ISSET(cpu, &before));
      EXPECT_EQ(earlier, place);
    }
    const cpu_set_t after = affinity();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  }).join();
}

TEST(Thread, IsNotKeptOnACpuThatThereIsNotOrWhereThereAreOthers) {
  std::thread([] {
    const cpu_set_t before = affinity();
    const int cpus = CPU_COUNT(&before);
    for (const auto& [place, of] : {std::pair(-1, cpus), {cpus, cpus}, {0, cpus + 1}}) {
      const KeptOnCpu kept(place, of);
      const cpu_set_t meanwhile = affinity();
      EXPECT_TRUE(CPU_EQUAL(&before, &meanwhile)) << place << " of " << of;
    }
  }).join();
}

}  // namespace
}  // namespace weft
