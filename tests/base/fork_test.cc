// A forked child gives its parent's sockets up, and the library tells it from its parent.
#include "base/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <functional>
#include <thread>

namespace weft {
namespace {

/// A pair of connected sockets, of which children give the first one up.
std::array<UniqueFd, 2> make_pair() {
  std::array<int, 2> ends{};
  std::array<UniqueFd, 2> pair;
  pair[0] = make_private_socket([&] {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    return ends[0];
  });
  pair[1].reset(ends[1]);
  return pair;
}

/// Runs `body` in a child, which `make` makes; returns its exit code.
int in_child(const std::function<pid_t()>& make, const std::function<int()>& body) {
  const pid_t child = make();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A child as fork() makes it, but without the handlers.
pid_t raw_clone() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

bool has_ended(const UniqueFd& connection) {
  pollfd entry{connection.get(), POLLIN, 0};
  char byte;
  return ::poll(&entry, 1, 2000) == 1 && ::recv(connection.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

// It kept its parent's connections open, and the peers did not learn that the parent had died.
TEST(Fork, AChildThatLivesOnDoesNotHoldItsParentsConnections) {
  std::array<UniqueFd, 2> pair = make_pair();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    pause();
    _exit(0);
  }
  usleep(50'000);
  pair[0].reset();
  EXPECT_TRUE(has_ended(pair[1]));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// A copy of the library's state would otherwise speak on a file of the child's own.
TEST(Fork, TheNumbersOfGivenUpSocketsStayTakenInTheChild) {
  std::array<UniqueFd, 2> pair = make_pair();
  EXPECT_EQ(in_child(fork,
                     [&] {
                       const UniqueFd own(::open("/dev/null", O_RDWR));
                       const bool dead = ::send(pair[0].get(), "x", 1, MSG_NOSIGNAL) < 0;
                       return own.get() != pair[0].get() && dead ? 0 : 1;
                     }),
            0);
  EXPECT_EQ(::send(pair[0].get(), "x", 1, MSG_NOSIGNAL), 1) << "the parent's works on";
}

TEST(Fork, AFileThatHasAClosedSocketsNumberIsInherited) {
  std::array<UniqueFd, 2> pair = make_pair();
  const int number = pair[0].get();
  pair[0].reset();
  std::array<UniqueFd, 2> other;
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  for (size_t i = 0; i < 2; ++i) other[i].reset(ends[i]);
  if (ends[0] != number) GTEST_SKIP() << "another thread has taken the number";
  EXPECT_EQ(in_child(fork, [&] { return ::send(ends[0], "x", 1, MSG_NOSIGNAL) == 1 ? 0 : 1; }), 0);
}

TEST(Fork, WhatTheParentOwnsIsNotTheChilds) {
  const Ownership mine;
  EXPECT_TRUE(mine.here());
  EXPECT_TRUE(mine.check("it").ok());
  for (const auto& make : {std::function<pid_t()>(fork), std::function<pid_t()>(raw_clone)}) {
    EXPECT_EQ(in_child(make,
                       [&] {
                         if (mine.here()) return 1;
                         const Status refused = mine.check("it");
                         if (refused.code() != Code::invalid_usage ||
                             refused.message().find(std::to_string(getppid())) == std::string::npos)
                           return 2;
                         const Ownership own;
                         return own.here() && own.check("it").ok() && !mine.here() ? 0 : 3;
                       }),
              0);
  }
  EXPECT_TRUE(mine.here());
}

// Without handlers the child keeps them until its first call.
TEST(Fork, AChildOfARawCloneGivesItsSocketsUpAtItsFirstCall) {
  std::array<UniqueFd, 2> pair = make_pair();
  EXPECT_EQ(in_child(raw_clone,
                     [&] {
                       (void)process_generation();
                       return ::send(pair[0].get(), "x", 1, MSG_NOSIGNAL) < 0 ? 0 : 1;
                     }),
            0);
}

std::atomic<int> hooks_run{0};

TEST(Fork, HooksRunOnceInEveryChild) {
  on_fork_in_child([] { ++hooks_run; });
  EXPECT_EQ(in_child(fork, [] { return hooks_run.load(); }), 1);
  EXPECT_EQ(in_child(raw_clone,
                     [] {
                       (void)process_generation();
                       (void)process_generation();
                       return hooks_run.load();
                     }),
            1);
  EXPECT_EQ(hooks_run, 0);
}

TEST(Fork, NoMutexIsTakenInTheChildThatOtherThreadsUse) {
  static ForkSafeMutex& first = *new ForkSafeMutex;
  static ForkSafeMutex& second = *new ForkSafeMutex;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (const bool turned : {false, true})
    threads.emplace_back([&, turned] {
      while (!over) {
        const std::lock_guard outer(turned ? second : first);
        if (turned) continue;  // the other takes both
        const std::lock_guard inner(second);
      }
    });
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(in_child(fork,
                       [] {
                         const std::lock_guard outer(first);
                         const std::lock_guard inner(second);
                         return 0;
                       }),
              0);
  over = true;
  for (std::thread& thread : threads) thread.join();
}

// A fork in the middle of a call (CUDA's driver starts programs) waited for its own thread, for ever.
TEST(Fork, AThreadThatForksWithAMutexHeldHoldsItInTheChildToo) {
  static ForkSafeMutex& mutex = *new ForkSafeMutex;
  mutex.lock();
  EXPECT_EQ(in_child(fork,
                     [] {
                       if (mutex.try_lock()) return 1;
                       mutex.unlock();
                       return mutex.try_lock() ? 0 : 2;
                     }),
            0);
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace weft
