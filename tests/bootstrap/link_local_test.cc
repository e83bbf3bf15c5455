// Jobs over link-local addresses of IPv6: two hosts, which are network namespaces, and a cable between them.
// The numbers of its ends differ, as interfaces' numbers do on real hosts.
#include <fcntl.h>
#include <net/if.h>
#include <sys/mount.h>

#include <array>
#include <span>

#include "base/settings.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/launch.h"
#include "bootstrap/ranks.h"
#include "bootstrap/socket.h"
#include "bootstrap/two_interfaces.h"
#include "bootstrap/unique_id.h"
#include "topology/host.h"

namespace weft::bootstrap {
namespace {

bool set_up(const std::string& name, const std::string& address) {
  return ip("link set lo up") && ip("link set " + name + " addrgenmode none") &&
         ip("addr add " + address + "/64 dev " + name + " nodad") && ip("link set " + name + " up");
}

struct Pipes {
  std::array<int, 2> down{}, up{};
  Pipes() {
    EXPECT_EQ(::pipe(down.data()), 0);
    EXPECT_EQ(::pipe(up.data()), 0);
  }
};

template <typename T>
void say(int fd, const T& value) {
  ASSERT_EQ(::write(fd, &value, sizeof value), static_cast<ssize_t>(sizeof value));
}
template <typename T>
T hear(int fd) {
  T value{};
  EXPECT_EQ(::read(fd, &value, sizeof value), static_cast<ssize_t>(sizeof value));
  return value;
}

/// Joins as one of two, gathers, and lets rank 0 open a data connection.
void meet(int rank, const UniqueId& id) {
  Events events;
  Joined joined = Bootstrap::join(id, rank, 2, soon());
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  Bootstrap& self = **joined;
  const Result<std::vector<std::byte>> all = self.all_gather(std::as_bytes(std::span(&rank, 1)), soon());
  ASSERT_TRUE(all.ok()) << all.status().message();
  ASSERT_TRUE(self.start(events.callbacks()).ok());
  char seen = 0;
  if (rank == 0) {
    const Result<UniqueFd> connection = self.connect(1, 0, 0, soon());
    ASSERT_TRUE(connection.ok()) << connection.status().message();
    EXPECT_TRUE(recv_all(connection->get(), std::as_writable_bytes(std::span(&seen, 1)), soon()).ok());
  } else {
    ASSERT_TRUE(events.wait([&] { return !events.data.empty(); }));
    EXPECT_TRUE(events.locked([&] {
      return send_all(events.data.back().connection.get(), std::as_bytes(std::span(&seen, 1)), soon()).ok();
    }));
  }
}

/// Runs `first` on host A, whose end of the cable is weft0 with fe80::1, and `second` on host B, whose end is
/// weft1 with fe80::2. Each has a pipe to the other. False where no namespaces can be made.
bool on_two_hosts(const std::function<void(int to, int from)>& first,
                  const std::function<void(int to, int from)>& second) {
  constexpr int kSkipped = 77;
  std::fflush(nullptr);
  const pid_t host = fork();
  if (host == 0) {
    alarm(60);
    if (unshare(CLONE_NEWNET) != 0) _exit(kSkipped);
    Pipes pipes;
    const pid_t other = fork();
    if (other == 0) {
      alarm(60);
      if (unshare(CLONE_NEWNET) != 0) _exit(kSkipped);
      say(pipes.up[1], getpid());
      hear<int>(pipes.down[0]);
      const bool ready = set_up("weft1", "fe80::2") && comes_to_run("weft1");
      say(pipes.up[1], int{ready});
      if (ready) second(pipes.up[1], pipes.down[0]);
      std::fflush(nullptr);
      _exit(!ready || ::testing::Test::HasFailure() ? 1 : 0);
    }
    const pid_t pid = hear<pid_t>(pipes.up[0]);
    // Two interfaces before it: the numbers of the ends must not be equal.
    if (!ip("link add spare0 type veth peer name spare1 2>/dev/null") ||
        !ip("link add weft0 type veth peer name weft1 netns " + std::to_string(pid)))
      _exit(kSkipped);
    bool ready = set_up("weft0", "fe80::1");
    say(pipes.down[1], 0);
    ready = ready && hear<int>(pipes.up[0]) && comes_to_run("weft0");
    if (ready) first(pipes.down[1], pipes.up[0]);
    int status = 1;
    waitpid(other, &status, 0);
    EXPECT_EQ(status, 0);
    std::fflush(nullptr);
    _exit(!ready || ::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(host, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) return false;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return true;
}

// The scope in the id was the number of the root's interface, which other hosts took for theirs.
TEST(LinkLocal, AnIdNamesNoInterfaceAndEveryHostTakesItsOwn) {
  const bool could = on_two_hosts(
      [](int to, int) {
        const Result<UniqueId> id = create_unique_id("fe80::1%weft0");
        ASSERT_TRUE(id.ok()) << id.status().message();
        EXPECT_EQ(read_unique_id(*id)->root.scope(), 0u);
        say(to, *id);
        meet(0, *id);
      },
      [](int, int from) { meet(1, hear<UniqueId>(from)); });
  if (!could) GTEST_SKIP() << kNoNamespaces;
}

// Each calls its interface by a name of its own, and the secret is the same all the same.
TEST(LinkLocal, ARootIsNamedWithEachHostsInterface) {
  const auto id_of = [](int rank, const char* root) {
    const Result<LaunchInfo> launch = detect_launch(
        {"WEFT_RANK=" + std::to_string(rank), "WEFT_WORLD_SIZE=2", std::string("WEFT_ROOT=") + root});
    EXPECT_TRUE(launch.ok()) << launch.status().message();
    Result<UniqueId> id = unique_id_for(launch->root_host, launch->root_port, launch->secret);
    EXPECT_TRUE(id.ok()) << id.status().message();
    return *id;
  };
  const bool could = on_two_hosts(
      [&](int, int) {
        const UniqueId id = id_of(0, "[fe80::1%weft0]:4711");
        ASSERT_TRUE(serve_unique_id(id).ok());
        meet(0, id);
      },
      [&](int, int) { meet(1, id_of(1, "[fe80::1%weft1]:4711")); });
  if (!could) GTEST_SKIP() << kNoNamespaces;
}

TEST(LinkLocal, AnInterfaceThatHasNothingElseIsUsedWhereItIsNamed) {
  const bool could = on_two_hosts(
      [](int to, int) {
        EXPECT_EQ(interfaces()->size(), 1u) << "lo";
        setenv("WEFT_SOCKET_IFNAME", "=weft0", 1);
        const Result<UniqueId> id = create_unique_id();
        ASSERT_TRUE(id.ok()) << id.status().message();
        EXPECT_EQ(read_unique_id(*id)->root.to_string(false), "fe80::1");
        say(to, *id);
        meet(0, *id);
      },
      [](int, int from) {
        ASSERT_TRUE(ip("link add spare0 type veth peer name spare1") &&
                    ip("addr add fe80::9/64 dev spare0 nodad") && ip("link set spare0 up"));
        const UniqueId id = hear<UniqueId>(from);
        const Status unclear = as_reached(read_unique_id(id)->root, {}, "").status();
        EXPECT_EQ(unclear.code(), Code::invalid_setting);
        EXPECT_NE(unclear.message().find("weft1"), std::string::npos) << unclear.message();
        setenv("WEFT_SOCKET_IFNAME", "=weft1", 1);
        meet(1, id);
      });
  if (!could) GTEST_SKIP() << kNoNamespaces;
}

// weft_sim and the tuner reckoned with no network where ranks have one.
TEST(LinkLocal, AnInterfaceThatIsNamedCarriesByTheHostsDescription) {
  const bool could = on_two_hosts(
      [&](int to, int) {
        setenv("WEFT_SOCKET_IFNAME", "=weft0", 1);
        // /sys shows the interfaces of the namespace that it was mounted in.
        const bool could_mount = unshare(CLONE_NEWNS) == 0 &&
                                 mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                                 mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
        if (could_mount) {
          const Result<topology::Host>& host = topology::discover_host();
          EXPECT_TRUE(host.ok()) << host.status().message();
          const topology::Interface* const cable = host.ok() ? host->find_interface("weft0") : nullptr;
          // Another test of this process may have discovered the host already.
          EXPECT_TRUE(cable == nullptr || cable->carries);
        }
        say(to, 0);
      },
      [](int, int from) { hear<int>(from); });
  if (!could) GTEST_SKIP() << kNoNamespaces;
}

TEST(LinkLocal, AddressesKeepTheirScopeAsText) {
  const Result<SocketAddress> address = SocketAddress::parse("[fe80::1%lo]:4711");
  ASSERT_TRUE(address.ok()) << address.status().message();
  EXPECT_EQ(address->scope(), if_nametoindex("lo"));
  EXPECT_EQ(address->to_string(), "[fe80::1%lo]:4711");
  EXPECT_EQ(address->with_scope(0).to_string(), "[fe80::1]:4711");
  EXPECT_EQ(SocketAddress::parse("[fe80::1]:4711")->scope(), 0u);
  for (const char* wrong : {"[fe80::1%no-such]:4711", "[fe80::1%]:4711", "[%lo]:4711"})
    EXPECT_FALSE(SocketAddress::parse(wrong).ok()) << wrong;
  const Status unknown = SocketAddress::resolve("fe80::1%no-such", 1).status();
  EXPECT_NE(unknown.message().find("no interface no-such"), std::string::npos) << unknown.message();
}

}  // namespace
}  // namespace weft::bootstrap
