// Rails over TCP on hosts with several interfaces: that a connection leaves by the interface of its device.
// The interfaces are two ends of a virtual cable, in a network namespace of the test's own.
#include <netinet/in.h>
#include <sched.h>

#include <algorithm>
#include <set>

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

/// The traffic classes of this process's connected sockets over IP, each once.
std::set<int> traffic_classes() {
  std::set<int> classes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const int fd = std::stoi(entry.path().filename().string());
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || peer.ss_family == AF_UNIX)
      continue;
    int value = -1;
    size = sizeof value;
    EXPECT_EQ(::getsockopt(fd, IPPROTO_IP, IP_TOS, &value, &size), 0);
    classes.insert(value);
  }
  return classes;
}

/// A connection on both sides of which `look` looks, with a configuration that asks for a traffic class.
void with_traffic_class(int version, Net net, const char* wanted, const std::function<void()>& look) {
  net.environment.push_back({"TRAFFIC_CLASS_OF_THE_TEST", wanted});
  const auto use = [&](Process& self, End end) {
    Buffer buffer(end, 100);
    look();
    self.meet();
  };
  run_two(
      version, net, [&](Process& self) { use(self, self.connect()); },
      [&](Process& self) { use(self, self.accept()); });
}

TEST(TrafficClass, IsThatOfTheSocketsOnBothSides) {
  for (const int version : {10, 11, 12})
    with_traffic_class(version, nets()[0], "104", [] { EXPECT_EQ(traffic_classes(), std::set<int>{104}); });
  with_traffic_class(12, nets()[0], "-1", [] { EXPECT_EQ(traffic_classes(), std::set<int>{0}); });
}

TEST(TrafficClass, ThatCannotBeHonouredIsSaid) {
  with_traffic_class(12, nets()[0], "256", [] { EXPECT_EQ(traffic_classes(), std::set<int>{0}); });
  for (const auto& [net, wanted, said] :
       {std::tuple{nets()[0], "256", "traffic class 256 is ignored: it must be at most 255"},
        std::tuple{nets()[2], "104", "traffic class 104 is ignored: this plugin sets it on sockets"}}) {
    Net with_class = net;
    with_class.environment.push_back({"TRAFFIC_CLASS_OF_THE_TEST", wanted});
    run_two(
        12, with_class,
        [&, said = said](Process& self) {
          for (int again = 0; again < 2; ++again) End end = self.connect();
          EXPECT_EQ(std::ranges::count_if(
                        logged(), [&](const std::string& line) { return line.find(said) != line.npos; }),
                    1);
          self.meet();
        },
        [](Process& self) {
          for (int again = 0; again < 2; ++again) End end = self.accept();
          self.meet();
        });
  }
}

}  // namespace
}  // namespace weft::nccl_net_test
