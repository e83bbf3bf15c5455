// Rails over TCP on hosts with several interfaces: that a connection leaves by the interface of its device.
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

}  // namespace
}  // namespace weft::nccl_net_test
