// A host with two interfaces on one network: the ends of a virtual cable, in a network namespace of the
// test's own.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "base/clock.h"
#include "bootstrap/interfaces.h"

namespace weft::bootstrap {

inline constexpr const char* kNoNamespaces =
    "no network namespace can be made here: that needs root, and the command ip";

inline bool ip(const std::string& command) { return std::system(("ip " + command).c_str()) == 0; }

/// Waits until interface `name` is running: the kernel finds that out a little after both ends of its cable
/// are up, and what is not running is no rail.
inline bool comes_to_run(const std::string& name) {
  const Deadline deadline = Deadline::in_seconds(20);
  while (!deadline.passed()) {
    const Result<std::vector<Interface>> all = interfaces(true);
    if (all.ok() && std::ranges::find(*all, name, &Interface::name) != all->end()) return true;
    ::usleep(1000);
  }
  return false;
}

/// Runs `body` in a process of its own, on a host with two interfaces on one network: weft0 is 10.9.0.1,
/// weft1 is 10.9.0.2. Returns whether it could; a body that has failures is a failure of the test.
inline bool on_two_interfaces(const std::function<void()>& body) {
  constexpr int kSkipped = 77;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (unshare(CLONE_NEWNET) != 0 || !ip("link add weft0 type veth peer name weft1 2>/dev/null"))
      _exit(kSkipped);
    const bool up = ip("link set lo up") && ip("addr add 10.9.0.1/24 dev weft0") &&
                    ip("addr add 10.9.0.2/24 dev weft1") && ip("link set weft0 up") &&
                    ip("link set weft1 up") && comes_to_run("weft0") && comes_to_run("weft1");
    if (up) body();
    std::fflush(nullptr);
    _exit(!up || ::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) return false;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return true;
}

}  // namespace weft::bootstrap
