// Rails over TCP on hosts with several interfaces: that a connection leaves by the interface of its device.
// The interfaces are two ends of a virtual cable, in a network namespace of the test's own.
#include <sched.h>

#include "bootstrap/routes.h"
#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

using bootstrap::SocketAddress;

constexpr int kSkipped = 77;

bool ip(const std::string& command) { return std::system(("ip " + command).c_str()) == 0; }

/// Runs `body` on a host with two interfaces on one network: weft0 is 10.9.0.1, weft1 is 10.9.0.2. Returns
/// whether it could; a body that has failures is a failure of the test.
bool on_two_interfaces(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (unshare(CLONE_NEWNET) != 0 || !ip("link add weft0 type veth peer name weft1 2>/dev/null"))
      _exit(kSkipped);
    const bool up = ip("link set lo up") && ip("addr add 10.9.0.1/24 dev weft0") &&
                    ip("addr add 10.9.0.2/24 dev weft1") && ip("link set weft0 up") &&
                    ip("link set weft1 up");
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

/// Connections of this process, by the address of the other side.
int connections_from(const std::string& address) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const int fd = std::stoi(entry.path().filename().string());
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || peer.ss_family == AF_UNIX)
      continue;
    const std::string text = SocketAddress(reinterpret_cast<const sockaddr*>(&peer)).to_string(false);
    count += text.ends_with(address);
  }
  return count;
}

void use_device_of(Process& self, const std::string& interface) {
  for (int device = 0; device < self.host().devices(); ++device)
    if (self.host().properties(device).name == interface) return self.use_device(device);
  ADD_FAILURE() << "no device is called " << interface;
}

TEST(Rails, AreDialedFromTheInterfaceOfTheirDevice) {
  const Net tcp{"tcp", {{"WEFT_NET", "tcp"}, {"WEFT_SOCKET_IFNAME", "weft"}}, library_under_test()};
  // On one host the kernel would give the socket the address that it connects to.
  const bool could = on_two_interfaces([&] {
    run_two(
        12, tcp,
        [](Process& self) {
          use_device_of(self, "weft1");
          End end = self.connect();
          self.meet();
        },
        [](Process& self) {
          use_device_of(self, "weft0");
          End end = self.accept();
          EXPECT_EQ(connections_from("10.9.0.2"), 2) << "the handshake's, and the rail's";
          EXPECT_EQ(connections_from("10.9.0.1"), 0);
          self.meet();
        });
  });
  if (!could) GTEST_SKIP() << "no network namespace can be made here: that needs root, and the command ip";
}

TEST(Rails, AreLeftToTheRoutesWhereTheseLeadElsewhere) {
  const bool could = on_two_interfaces([] {
    const auto at = [](int last) { return *SocketAddress::parse(fmt::format("10.9.0.{}:1", last)); };
    const auto leaves = [&](const std::string& interface, int from, int to) {
      const Result<bool> asked = bootstrap::leaves_by(interface, at(from), at(to));
      EXPECT_TRUE(asked.ok()) << asked.status().message();
      return asked.ok() && *asked;
    };
    EXPECT_TRUE(leaves("weft0", 1, 77));
    EXPECT_FALSE(leaves("weft1", 2, 77)) << "both are on that network, and weft0 came first";
    EXPECT_TRUE(leaves("weft1", 2, 1)) << "that stays on this host";
    ASSERT_TRUE(ip("route add 10.9.0.0/24 dev weft1 table 77") && ip("rule add from 10.9.0.2 table 77"));
    EXPECT_TRUE(leaves("weft1", 2, 77));
    EXPECT_TRUE(leaves("weft0", 1, 77));
    EXPECT_FALSE(bootstrap::leaves_by("weft0", at(1), *SocketAddress::parse("10.8.0.1:1")).ok());
    EXPECT_TRUE(
        *bootstrap::leaves_by("lo", *SocketAddress::parse("[::1]:1"), *SocketAddress::parse("[::1]:2")));
  });
  if (!could) GTEST_SKIP() << "no network namespace can be made here: that needs root, and the command ip";
}

}  // namespace
}  // namespace weft::nccl_net_test
