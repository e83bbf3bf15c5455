// What the kernel is asked to do with connections.
#include "bootstrap/socket.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>

#include "bootstrap/reserved_port.h"
#include "bootstrap/two_interfaces.h"

namespace weft::bootstrap {
namespace {

std::string congestion_control_of(const UniqueFd& socket) {
  char name[16] = {};
  socklen_t length = sizeof(name) - 1;
  EXPECT_EQ(0, ::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length));
  return name;
}

bool have_bbr_by_default() {
  std::ofstream("/proc/sys/net/ipv4/tcp_congestion_control") << "bbr" << std::flush;
  std::string now;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> now;
  return now == "bbr";
}

TEST(Socket, APortThatIsTakenIsSaidWithTheRemedy) {
  const Result<UniqueFd> first = listen_everywhere(0);
  ASSERT_TRUE(first.ok()) << first.status().message();
  const Status second = listen_everywhere(local_address(first->get())->port()).status();
  EXPECT_NE(second.message().find("Address already in use"), std::string::npos) << second.message();
  EXPECT_NE(second.message().find("name another port, the same on all ranks, in WEFT_ROOT"),
            std::string::npos)
      << second.message();
}

// Messages of 64 KiB between four ranks of a host took 140 µs instead of 85, and between four nodes 4 to 32
// ms instead of 3.3, while connections had begun with BBR, and left it then.
TEST(Socket, HasNeverHadBbr) {
  const UniqueFd plain(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::setsockopt(plain.get(), IPPROTO_TCP, TCP_CONGESTION, "bbr", 3) < 0)
    GTEST_SKIP() << "this host has no BBR";
  const bool ran = on_two_interfaces([] {
    ASSERT_TRUE(have_bbr_by_default());
    const UniqueFd usual(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(congestion_control_of(usual), "bbr");
    const Result<UniqueFd> listener = listen_on(*SocketAddress::parse("10.9.0.1:0"));
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    const Deadline deadline = Deadline::in_seconds(10);
    const Result<UniqueFd> ours = connect_to(*local_address(listener->get()), deadline);
    ASSERT_TRUE(ours.ok()) << ours.status().message();
    ASSERT_TRUE(wait_for(listener->get(), POLLIN, deadline));
    int error = 0;
    const UniqueFd theirs = accept_from(listener->get(), &error);
    ASSERT_TRUE(theirs.valid()) << error;
    EXPECT_EQ(congestion_control_of(*ours), "reno");
    EXPECT_EQ(congestion_control_of(theirs), "reno");
  });
  if (!ran) GTEST_SKIP() << kNoNamespaces;
}

// Ranks that wait for the root on their host try many ports of their own. One of them is the root's, and a
// rank took its own greeting for a wrong answer.
TEST(Socket, AConnectionToItselfIsNobody) {
  const ReservedPort port;
  const SocketAddress own = *SocketAddress::parse(fmt::format("127.0.0.1:{}", port.number()));
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ASSERT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  ASSERT_EQ(::bind(fd.get(), own.raw(), own.raw_bytes()), 0);
  ASSERT_EQ(::connect(fd.get(), own.raw(), own.raw_bytes()), 0) << "the kernel connects it to itself";
  EXPECT_EQ(connect_outcome(fd.get()), ECONNREFUSED);
}

}  // namespace
}  // namespace weft::bootstrap
