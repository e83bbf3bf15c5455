// Threads that touch memory which is not there: with a watch they go on and are told, and whatever is not a
// watch's business goes to the handler that was there before.
#include "base/memory_watch.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "unmapped_memory.h"

namespace weft {
namespace {

using testing::TakenAway;

bool lies_in(const void* memory, const void* address) {
  const auto& taken = *static_cast<const TakenAway*>(memory);
  return static_cast<size_t>(static_cast<const char*>(address) - static_cast<const char*>(taken.data())) <
         taken.bytes();
}

volatile char* bytes_of(const TakenAway& memory) { return static_cast<volatile char*>(memory.data()); }

/// What a thread has lost, as text: offsets of pages from the first byte.
std::string lost_of(const TakenAway& memory) {
  std::string text;
  MemoryWatch::settle([&](const MemoryWatch::Run& run) {
    text += std::to_string(run.begin - static_cast<const char*>(memory.data())) + "-" +
            std::to_string(run.end - static_cast<const char*>(memory.data())) + " ";
  });
  return text;
}

TEST(MemoryWatch, WhatIsReadIsNotANumberAndIsTold) {
  MemoryWatch::install();
  TakenAway memory(64);
  memory.unmap();
  const MemoryWatch watch(lies_in, &memory);
  EXPECT_FALSE(MemoryWatch::lost());
  EXPECT_EQ(bytes_of(memory)[5], static_cast<char>(0xff));
  bytes_of(memory)[7] = 1;
  EXPECT_TRUE(MemoryWatch::lost());
  EXPECT_TRUE(MemoryWatch::lost(memory.data(), 64));
  EXPECT_FALSE(MemoryWatch::lost(&memory, 64));
  EXPECT_EQ(lost_of(memory), "0-4096 ");
  EXPECT_FALSE(MemoryWatch::lost());
  EXPECT_TRUE(memory.is_gone());
  EXPECT_EQ(bytes_of(memory)[7], static_cast<char>(0xff)) << "found anew, and empty again";
  EXPECT_TRUE(MemoryWatch::lost());
}

TEST(MemoryWatch, PagesThatAreLeftGoWithTheWatch) {
  MemoryWatch::install();
  TakenAway memory(3 << 20);
  memory.unmap();
  {
    const MemoryWatch watch(lies_in, &memory);
    for (size_t at = 0; at < 300 * 4096; at += 512) bytes_of(memory)[at] = 1;
    for (size_t page = 500; page > 400; --page) bytes_of(memory)[page * 4096] = 1;
  }
  EXPECT_TRUE(memory.is_gone());
  const MemoryWatch watch(lies_in, &memory);
  EXPECT_FALSE(MemoryWatch::lost());
  for (size_t page : {3, 4, 5, 9, 8}) bytes_of(memory)[page * 4096] = 1;
  EXPECT_EQ(lost_of(memory), "12288-24576 32768-40960 ");
}

TEST(MemoryWatch, TooManyPlacesAreNotEnoughToEndTheProcess) {
  MemoryWatch::install();
  TakenAway memory(3 << 20);
  memory.unmap();
  const MemoryWatch watch(lies_in, &memory);
  for (size_t page = 0; page < 700; page += 2) bytes_of(memory)[page * 4096] = 1;
  EXPECT_TRUE(MemoryWatch::lost());
}

TEST(MemoryWatch, AWatchInsideAnotherHasItsOwnNews) {
  MemoryWatch::install();
  TakenAway memory(64), other(64);
  memory.unmap();
  other.unmap();
  const MemoryWatch outer(lies_in, &other);
  {
    const MemoryWatch inner(lies_in, &memory);
    bytes_of(memory)[0] = 1;
    EXPECT_TRUE(MemoryWatch::lost());
  }
  EXPECT_FALSE(MemoryWatch::lost());
  bytes_of(other)[0] = 1;
  EXPECT_TRUE(MemoryWatch::lost());
}

TEST(MemoryWatch, ThreadsThatTouchTheSamePagesGoOn) {
  MemoryWatch::install();
  for (int round = 0; round < 50; ++round) {
    TakenAway memory(1 << 16);
    memory.unmap();
    std::vector<std::thread> threads;
    std::atomic<int> told{0};
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        const MemoryWatch watch(lies_in, &memory);
        for (int at = 0; at < 1 << 16; at += 256) bytes_of(memory)[at] = 1;
        told += MemoryWatch::lost();
      });
    for (auto& thread : threads) thread.join();
    EXPECT_GE(told, 1);
    EXPECT_TRUE(memory.is_gone());
  }
}

// ---- What is not a watch's business

sigjmp_buf back;
int handled = 0;
const void* handled_at = nullptr;

void leap(int, siginfo_t* info, void*) {
  ++handled;
  handled_at = info->si_addr;
  siglongjmp(back, 1);
}

/// As a program that looks whether it can touch an address.
bool can_be_touched(volatile char* address) {
  if (sigsetjmp(back, 1) != 0) return false;
  *address = 1;
  return true;
}

void set_handler(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction own = {};
  own.sa_sigaction = handler;
  own.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGSEGV, &own, nullptr), 0);
}

/// Runs `body` in a process of its own, since the first handler that is found is kept for good.
template <typename Body>
void in_a_process(Body body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        body();
        _exit(::testing::Test::HasFailure());
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(MemoryWatchDeathTest, FaultsOfTheProgramsOwnGoToItsHandler) {
  in_a_process([] {
    set_handler(leap);
    MemoryWatch::install();
    TakenAway memory(64), other(64);
    memory.unmap();
    other.unmap();
    EXPECT_FALSE(can_be_touched(bytes_of(memory))) << "nobody watches";
    const MemoryWatch watch(lies_in, &memory);
    EXPECT_FALSE(can_be_touched(bytes_of(other))) << "of the wrong memory";
    EXPECT_EQ(handled_at, other.data());
    std::thread([&] { EXPECT_FALSE(can_be_touched(bytes_of(memory))) << "on the wrong thread"; }).join();
    EXPECT_EQ(handled, 3);
    EXPECT_TRUE(can_be_touched(bytes_of(memory)));
    EXPECT_EQ(handled, 3);
  });
}

// Garbage collectors and debuggers forbid pages that are there, and allow them in their handlers.
TEST(MemoryWatchDeathTest, PagesThatAreThereButForbiddenAreTheProgramsOwn) {
  in_a_process([] {
    set_handler([](int, siginfo_t* info, void*) {
      ++handled;
      mprotect(info->si_addr, 1, PROT_READ | PROT_WRITE);
    });
    MemoryWatch::install();
    TakenAway memory(64);
    bytes_of(memory)[0] = 5;
    ASSERT_EQ(mprotect(memory.data(), 64, PROT_NONE), 0);
    const MemoryWatch watch(lies_in, &memory);
    EXPECT_EQ(bytes_of(memory)[0], 5);
    EXPECT_EQ(handled, 1);
    EXPECT_FALSE(MemoryWatch::lost());
  });
}

// As a second library with a watch of its own does, or a program that sets its handler later: each once, in
// turn.
TEST(MemoryWatchDeathTest, AHandlerThatCameLaterAndCallsThisOneIsNotCalledBack) {
  in_a_process([] {
    set_handler(leap);
    MemoryWatch::install();
    static struct sigaction found;
    sigaction(SIGSEGV, nullptr, &found);
    set_handler(
        [](int signal, siginfo_t* info, void* context) { found.sa_sigaction(signal, info, context); });
    MemoryWatch::install();
    TakenAway memory(64), other(64);
    memory.unmap();
    other.unmap();
    const MemoryWatch watch(lies_in, &memory);
    bytes_of(memory)[0] = 1;
    EXPECT_TRUE(MemoryWatch::lost());
    EXPECT_FALSE(can_be_touched(bytes_of(other)));
    EXPECT_EQ(handled, 1);
  });
}

TEST(MemoryWatchDeathTest, WithoutAWatchOrAHandlerTheProcessEnds) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        MemoryWatch::install();
        TakenAway memory(64);
        memory.unmap();
        bytes_of(memory)[0] = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

// As libfabric's shared-memory provider and Python's faulthandler do.
TEST(MemoryWatchDeathTest, AHandlerThatRaisesTheSignalAnewEndsTheProcess) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        MemoryWatch::install();
        static struct sigaction restored;
        sigaction(SIGSEGV, nullptr, &restored);
        set_handler([](int signal, siginfo_t*, void*) {
          (void)!write(2, "cleaned up\n", 11);
          sigaction(signal, &restored, nullptr);
          raise(signal);
        });
        TakenAway memory(64);
        memory.unmap();
        bytes_of(memory)[0] = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "cleaned up");
}

TEST(MemoryWatchDeathTest, ARaisedSignalThatIsIgnoredStaysIgnored) {
  in_a_process([] {
    signal(SIGSEGV, SIG_IGN);
    MemoryWatch::install();
    raise(SIGSEGV);
  });
}

}  // namespace
}  // namespace weft
