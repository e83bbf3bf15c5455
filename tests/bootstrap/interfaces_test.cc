// Which interfaces a rank listens on.
#include "bootstrap/interfaces.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "topology/host.h"

namespace weft::bootstrap {
namespace {

Interface make(const std::string& name, const std::string& address, bool physical) {
  return {name, *SocketAddress::parse(address + ":0"), physical};
}

const std::vector<Interface> kHost = {make("lo", "127.0.0.1", false), make("eth0", "10.0.0.1", true),
                                      make("eth1", "10.1.0.1", true), make("docker0", "172.17.0.1", false)};

std::string chosen(std::string_view filter) {
  Result<std::vector<Interface>> some = choose_interfaces(kHost, filter);
  if (!some.ok()) return some.status().message();
  std::string names;
  for (const Interface& each : *some) names.append(names.empty() ? "" : " ").append(each.name);
  return names;
}

TEST(Interfaces, AreChosenByPrefixInTheFiltersOrder) {
  EXPECT_EQ(chosen(""), "lo eth0 eth1 docker0");
  EXPECT_EQ(chosen("eth"), "eth0 eth1");
  EXPECT_EQ(chosen("eth1,eth0"), "eth1 eth0");
  EXPECT_EQ(chosen("eth1,eth"), "eth1 eth0");
  EXPECT_EQ(chosen(",lo,"), "lo");
}

TEST(Interfaces, AreExcludedAfterACaret) {
  EXPECT_EQ(chosen("^docker,lo"), "eth0 eth1");
  EXPECT_EQ(chosen("^eth"), "lo docker0");
}

TEST(Interfaces, AreChosenByWholeNamesAfterAnEqualsSign) {
  EXPECT_EQ(chosen("=eth1"), "eth1");
  EXPECT_EQ(chosen("=docker0,eth0"), "docker0 eth0");
  EXPECT_EQ(chosen("^=eth0,lo"), "eth1 docker0");
  EXPECT_NE(chosen("=eth").find("leaves no interface"), std::string::npos);
}

// An interface that is up has a link-local address of its own accord, and became the root's and a rail.
TEST(Interfaces, WithNothingButALinkLocalAddressAreChosenWhereNoOtherIs) {
  const auto names = [](const std::vector<Interface>& all, std::string_view filter) {
    std::string names;
    const Result<std::vector<Interface>> some = choose_interfaces(all, filter);
    EXPECT_TRUE(some.ok()) << some.status().message();
    for (const Interface& each : *some) names.append(each.name).append(" ");
    return names;
  };
  const Interface local = make("eth0", "[fe80::1]", true), other = make("eth2", "[fe80::2]", true);
  EXPECT_EQ(names({local, make("eth1", "10.0.0.1", true), other}, "eth"), "eth1 ");
  EXPECT_EQ(names({local, make("eth1", "[fd00::1]", true), other}, "=eth0,eth1"), "eth1 ");
  EXPECT_EQ(names({local, make("ib0", "10.0.0.1", true), other}, "eth"), "eth0 eth2 ");
}

TEST(Interfaces, AFilterThatLeavesNoneNamesWhatThereIs) {
  const Status status = choose_interfaces(kHost, "ib").status();
  EXPECT_EQ(status.code(), Code::invalid_setting);
  EXPECT_NE(status.message().find("lo, eth0, eth1, docker0"), std::string::npos) << status.message();
}

TEST(Interfaces, OfThisHostIncludeTheOneThatItsAddressIsOn) {
  Result<std::vector<Interface>> all = interfaces();
  ASSERT_TRUE(all.ok()) << all.status().message();
  Result<SocketAddress> address = host_address("");
  ASSERT_TRUE(address.ok()) << address.status().message();
  EXPECT_TRUE(std::any_of(all->begin(), all->end(), [&](auto& i) { return i.address.same_host(*address); }));
}

// A host was described with interfaces that no rank listens on: links of containers, and such as have nothing
// but a link-local address.
TEST(Interfaces, ThatCarryByTheHostsDescriptionAreAmongThem) {
  const Result<topology::Host>& host = topology::discover_host();
  const Result<std::vector<Interface>> all = interfaces();
  ASSERT_TRUE(host.ok() && all.ok());
  for (const topology::Interface& each : host->interfaces) {
    if (each.rdma || !each.up || !each.carries) continue;
    EXPECT_TRUE(std::any_of(all->begin(), all->end(), [&](auto& i) { return i.name == each.name; }))
        << each.name;
  }
}

TEST(Rails, AJobOnLoopbackHasOne) {
  const SocketAddress local = *SocketAddress::parse("127.0.0.1:4711");
  Result<std::vector<SocketAddress>> rails = rail_addresses(local, "", 0);
  ASSERT_TRUE(rails.ok());
  ASSERT_EQ(rails->size(), 1u);
  EXPECT_EQ(rails->front().to_string(), "127.0.0.1:4711");
}

TEST(Rails, LeaveOutAnAddressThatSeveralHostsHave) {
  const auto at = [](int a, int b) { return *SocketAddress::parse(fmt::format("10.{}.0.{}:4711", a, b)); };
  using Set = std::set<std::string>;
  EXPECT_EQ(shared_addresses({{at(0, 1), at(9, 9)}, {at(0, 1), at(9, 9)}}), Set()) << "ranks of one host";
  EXPECT_EQ(shared_addresses({{at(0, 1), at(1, 1)}, {at(0, 2), at(1, 2)}}), Set());
  EXPECT_EQ(shared_addresses({{at(0, 1), at(9, 9), at(1, 1)}, {at(0, 2), at(9, 9), at(1, 2)}}),
            Set{"10.9.0.9"});
  EXPECT_EQ(shared_addresses({{at(0, 1), at(1, 1)}, {at(1, 1), at(0, 1)}}), Set()) << "one host, in turns";
}

TEST(Rails, AFiltersInterfacesReplaceTheWayToTheRoot) {
  const SocketAddress local = *SocketAddress::parse("192.0.2.99:4711");
  Result<std::vector<SocketAddress>> rails = rail_addresses(local, "lo", 0);
  ASSERT_TRUE(rails.ok()) << rails.status().message();
  ASSERT_EQ(rails->size(), 1u);
  EXPECT_EQ(rails->front().to_string(), "127.0.0.1:4711");
}

TEST(Rails, TheWayToTheRootComesFirstAndTheBoundHolds) {
  const SocketAddress local = *SocketAddress::parse("192.0.2.99:4711");
  Result<std::vector<SocketAddress>> all = rail_addresses(local, "", 0);
  Result<std::vector<SocketAddress>> one = rail_addresses(local, "", 1);
  ASSERT_TRUE(all.ok() && one.ok());
  EXPECT_EQ(all->front().to_string(), local.to_string());
  for (const SocketAddress& rail : *all) {
    EXPECT_EQ(rail.port(), 4711);
    EXPECT_EQ(rail.family(), AF_INET);
    EXPECT_FALSE(rail.loopback());
  }
  ASSERT_EQ(one->size(), 1u);
}

}  // namespace
}  // namespace weft::bootstrap
