// Rails over TCP on hosts with several interfaces: that a connection leaves by the interface of its device.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "bootstrap/address.h"
#include "bootstrap/two_interfaces.h"
#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

using bootstrap::on_two_interfaces;
using bootstrap::SocketAddress;

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
  if (!could) GTEST_SKIP() << bootstrap::kNoNamespaces;
}

TEST(Rails, OfInterfacesThatHaveNothingButALinkLocalAddressAreThoseThatAreNamed) {
  const Net tcp{"tcp", {{"WEFT_NET", "tcp"}, {"WEFT_SOCKET_IFNAME", "=weft0,weft1"}}, library_under_test()};
  const bool could = on_two_interfaces([&] {
    for (const char* name : {"weft0", "weft1"})
      ASSERT_TRUE(bootstrap::ip(std::string("addr flush dev ") + name));
    ASSERT_TRUE(bootstrap::ip("addr add fe80::1/64 dev weft0 nodad") &&
                bootstrap::ip("addr add fe80::2/64 dev weft1 nodad"));
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
          self.meet();
        });
  });
  if (!could) GTEST_SKIP() << bootstrap::kNoNamespaces;
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
