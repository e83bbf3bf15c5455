// Rails on hosts with several interfaces: by which of them data connections leave.
#include <sys/mount.h>
#include <sys/socket.h>

#include <array>
#include <span>

#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/ranks.h"
#include "bootstrap/routes.h"
#include "bootstrap/socket.h"
#include "bootstrap/two_interfaces.h"

namespace weft::bootstrap {
namespace {

SocketAddress at(int last) { return *SocketAddress::parse(fmt::format("10.9.0.{}:1", last)); }

std::string other_end(const UniqueFd& connection) {
  sockaddr_storage raw{};
  socklen_t bytes = sizeof raw;
  EXPECT_EQ(::getpeername(connection.get(), reinterpret_cast<sockaddr*>(&raw), &bytes), 0);
  const std::string text = SocketAddress(reinterpret_cast<const sockaddr*>(&raw)).to_string(false);
  return text.substr(text.rfind(':') + 1);  // of one that came to an IPv6 socket, too
}

/// The process of one of two ranks, whose rails are the interfaces named. Rank 0 has the root, and writes its
/// id to `pipe`; it connects over both rails, and rank 1 looks where they come from.
void be_rank(int rank, const char* interfaces, const std::array<int, 2>& pipe) {
  setenv("WEFT_SOCKET_IFNAME", interfaces, 1);
  ASSERT_EQ(settings().socket_ifname, interfaces) << "an earlier test has read the settings";
  UniqueId id;
  if (rank == 0) {
    Result<UniqueId> made = create_unique_id("10.9.0.1");
    ASSERT_TRUE(made.ok()) << made.status().message();
    id = *made;
    ASSERT_EQ(::write(pipe[1], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  } else {
    ASSERT_EQ(::read(pipe[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  }
  Events events;
  Joined joined = Bootstrap::join(id, rank, 2, soon());
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  Bootstrap& self = **joined;
  ASSERT_TRUE(self.start(events.callbacks()).ok());
  if (rank == 0) {
    for (int rail : {0, 1}) {
      const Result<UniqueFd> connection = self.connect(1, rail, static_cast<uint32_t>(rail), soon());
      ASSERT_TRUE(connection.ok()) << connection.status().message();
      char seen = 0;
      EXPECT_TRUE(recv_all(connection->get(), std::as_writable_bytes(std::span(&seen, 1)), soon()).ok());
    }
    return;
  }
  for (const char* from : {"10.9.0.1", "10.9.0.2"}) {
    ASSERT_TRUE(events.wait([&] { return !events.data.empty(); }));
    const Events::Data data = events.locked([&] {
      Events::Data first = std::move(events.data.back());
      events.data.clear();
      return first;
    });
    EXPECT_EQ(other_end(data.connection), from) << "rail " << data.purpose;
    const char seen = 1;
    EXPECT_TRUE(send_all(data.connection.get(), std::as_bytes(std::span(&seen, 1)), soon()).ok());
  }
}

// Servers' management controllers have such an address on every host. Which interface comes first varies.
TEST(HostAddress, IsNoLinkLocalOneWhereThereIsAnother) {
  const bool could = on_two_interfaces([] {
    ASSERT_TRUE(ip("addr add 169.254.3.1/16 dev weft0") && ip("addr del 10.9.0.1/24 dev weft0"));
    EXPECT_EQ(host_address("")->to_string(false), "10.9.0.2");
    ASSERT_TRUE(ip("addr add 10.9.0.1/24 dev weft0") && ip("addr del 169.254.3.1/16 dev weft0"));
    ASSERT_TRUE(ip("addr add 169.254.3.1/16 dev weft1") && ip("addr del 10.9.0.2/24 dev weft1"));
    EXPECT_EQ(host_address("")->to_string(false), "10.9.0.1");
    ASSERT_TRUE(ip("addr del 10.9.0.1/24 dev weft0"));
    EXPECT_EQ(host_address("")->to_string(false), "169.254.3.1") << "better than loopback";
  });
  if (!could) GTEST_SKIP() << kNoNamespaces;
}

// A pod of an IPv6 cluster took the IPv4 address of a name that has both, which it has no route to.
TEST(HostAddress, OfANameIsOfAFamilyThatThisHostHas) {
  const bool could = on_two_interfaces([] {
    ASSERT_TRUE(ip("addr del 10.9.0.1/24 dev weft0") && ip("addr del 10.9.0.2/24 dev weft1") &&
                ip("addr add fd00::1/64 dev weft0 nodad"));
    char list[] = "/tmp/weft-hosts-XXXXXX";
    const UniqueFd file(mkstemp(list));
    constexpr std::string_view kHosts = "127.0.0.1 localhost\n192.0.2.7 both.invalid\nfd00::7 both.invalid\n";
    ASSERT_EQ(::write(file.get(), kHosts.data(), kHosts.size()), static_cast<ssize_t>(kHosts.size()));
    const bool own = unshare(CLONE_NEWNS) == 0 &&
                     mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                     mount(list, "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
    unlink(list);
    ASSERT_TRUE(own);
    const auto resolved = [](const char* host) {
      const Result<SocketAddress> found = SocketAddress::resolve(host, 1);
      return found.ok() ? found->to_string(false) : std::string(found.status().message());
    };
    EXPECT_EQ(resolved("both.invalid"), "fd00::7");
    EXPECT_EQ(resolved("localhost"), "127.0.0.1");
    EXPECT_EQ(resolved("127.0.0.1"), "127.0.0.1");
  });
  if (!could) GTEST_SKIP() << kNoNamespaces;
}

// On one host the kernel would give each connection the address that it leads to.
TEST(RailConnections, LeaveByTheInterfaceOfTheirNumber) {
  const bool could = on_two_interfaces([] {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t other = fork();
    if (other == 0) {
      be_rank(1, "weft1,weft0", pipe);
      std::fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    be_rank(0, "weft0,weft1", pipe);
    int status = 1;
    waitpid(other, &status, 0);
    EXPECT_EQ(status, 0);
  });
  if (!could) GTEST_SKIP() << kNoNamespaces;
}

TEST(RailConnections, BeginAtTheirInterfaceWhereTheRoutesSendByIt) {
  const bool could = on_two_interfaces([] {
    EXPECT_EQ(*interface_with(at(1)), "weft0");
    EXPECT_EQ(*interface_with(at(2).with_port(99)), "weft1");
    EXPECT_FALSE(interface_with(at(3)).ok());
    EXPECT_TRUE(own_end("weft0", at(1), at(77)).same_host(at(1)));
    EXPECT_FALSE(own_end("weft1", at(2), at(77)).valid()) << "both are on that network, and weft0 came first";
    EXPECT_TRUE(own_end("weft1", at(2), at(1)).same_host(at(2))) << "that stays on this host";
    EXPECT_FALSE(own_end("weft0", at(1), *SocketAddress::parse("[fd00::1]:1")).valid());
    ASSERT_TRUE(ip("route add 10.9.0.0/24 dev weft1 table 77") && ip("rule add from 10.9.0.2 table 77"));
    EXPECT_TRUE(own_end("weft1", at(2), at(77)).same_host(at(2)));
  });
  if (!could) GTEST_SKIP() << kNoNamespaces;
}

TEST(RailConnections, AreLeftToTheRoutesWhereTheseLeadElsewhere) {
  const bool could = on_two_interfaces([] {
    const auto leaves = [&](const std::string& interface, int from, int to) {
      const Result<bool> asked = leaves_by(interface, at(from), at(to));
      EXPECT_TRUE(asked.ok()) << asked.status().message();
      return asked.ok() && *asked;
    };
    EXPECT_TRUE(leaves("weft0", 1, 77));
    EXPECT_FALSE(leaves("weft1", 2, 77)) << "both are on that network, and weft0 came first";
    EXPECT_TRUE(leaves("weft1", 2, 1)) << "that stays on this host";
    ASSERT_TRUE(ip("route add 10.9.0.0/24 dev weft1 table 77") && ip("rule add from 10.9.0.2 table 77"));
    EXPECT_TRUE(leaves("weft1", 2, 77));
    EXPECT_TRUE(leaves("weft0", 1, 77));
    EXPECT_FALSE(leaves_by("weft0", at(1), *SocketAddress::parse("10.8.0.1:1")).ok());
    EXPECT_TRUE(*leaves_by("lo", *SocketAddress::parse("[::1]:1"), *SocketAddress::parse("[::1]:2")));
  });
  if (!could) GTEST_SKIP() << kNoNamespaces;
}

}  // namespace
}  // namespace weft::bootstrap
