// The machine's JSON, and what of a host goes into it.
#include "model/cost.h"

#include <gtest/gtest.h>

#include <limits>

namespace weft::model {
namespace {

constexpr uint64_t kPiece = 64 << 10;  // what the kernel sends at once
const topology::Layout kFourNodes = topology::Layout::blocks(4, 1);

std::string error_of(const std::string& json) {
  const Result<Machine> machine = machine_from_json(json);
  return machine.ok() ? "ok" : machine.status().message();
}

TEST(Machine, SurvivesJson) {
  Machine machine;
  machine.name = "p4d";
  machine.inter = {.alpha_us = 17.5, .overhead_us = 0.25, .bytes_per_us = 12500, .by_cpu = false};
  machine.net = transport::Net::efa;
  machine.rails = 4;
  machine.memory.cache_bytes = 123456789;
  const Result<Machine> back = machine_from_json(to_json(machine));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(to_json(*back), to_json(machine));
  EXPECT_EQ(back->inter.by_cpu, false);
  EXPECT_EQ(back->net, transport::Net::efa);
  EXPECT_EQ(back->rails, 4);
}

TEST(Machine, SurvivesTheWayToOtherRanks) {
  Machine machine;
  machine.inter = {.alpha_us = 17.5, .overhead_us = 0.25, .bytes_per_us = 12500, .by_cpu = false};
  machine.net = transport::Net::ofi;
  machine.rails = 4;
  machine.cores = 0.5;
  machine.memory.cache_bytes = 1 << 20;
  machine.switch_us = 3.25;
  const Result<Machine> received = from_numbers(to_numbers(machine));
  ASSERT_TRUE(received.ok()) << received.status().message();
  const Machine& back = *received;
  EXPECT_EQ(to_numbers(back), to_numbers(machine));
  EXPECT_EQ(back.inter.by_cpu, false);
  EXPECT_EQ(back.net, transport::Net::ofi);
  EXPECT_EQ(back.rails, 4);
  EXPECT_EQ(back.memory.cache_bytes, uint64_t{1} << 20);
}

TEST(Machine, LeastValuesSurviveTheWayToOtherRanks) {
  Machine machine;
  machine.cores = machine.crossing = 0.01;
  machine.inter.bytes_per_us = 1e-3;
  EXPECT_TRUE(from_numbers(to_numbers(machine)).ok());
}

TEST(Machine, NumbersThatNoFieldMayHaveAreRefused) {
  const std::vector<float> numbers = to_numbers(Machine());
  EXPECT_FALSE(from_numbers(std::vector<float>{1, 2}).ok());
  const float wrong[] = {-1, 3e38F, std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN()};
  for (size_t at = 0; at < numbers.size(); ++at) {
    for (const float value : wrong) {
      std::vector<float> damaged = numbers;
      damaged[at] = value;
      EXPECT_FALSE(from_numbers(damaged).ok()) << "number " << at << " is " << value;
    }
  }
  std::vector<float> slow = numbers;
  slow[2] = 0;
  EXPECT_EQ(from_numbers(slow).status().message(),
            "machine: intra.bytes_per_us is 0, must be in [0.001, 1e+15]");
}

TEST(Machine, RatesFallFromTheCacheToMemory) {
  const Memory memory{.cache_bytes = 1 << 20};
  EXPECT_DOUBLE_EQ(rate_for(memory, 512 << 10, 100, 10), 100);
  EXPECT_DOUBLE_EQ(rate_for(memory, 8 << 20, 100, 10), 10);
  EXPECT_DOUBLE_EQ(rate_for(memory, 2 << 20, 100, 10), 1 / (0.5 / 100 + 0.5 / 10)) << "half way in octaves";
  EXPECT_DOUBLE_EQ(rate_for(Memory(), 8, 100, 10), 10) << "no cache";
}

TEST(Machine, MappedMemoryIsAsFastAsWhereItsBytesAre) {
  const Memory memory{.mapped_near = 10, .mapped_cached = 40, .mapped_large = 5};
  EXPECT_DOUBLE_EQ(mapped_rate(memory, 0), 10);
  EXPECT_DOUBLE_EQ(mapped_rate(memory, 256 << 10), 10);
  EXPECT_DOUBLE_EQ(mapped_rate(memory, 512 << 10), 1 / (1 / 2.0 / 10 + 1 / 2.0 / 40));
  EXPECT_DOUBLE_EQ(mapped_rate(memory, 1 << 20), 40);
  EXPECT_DOUBLE_EQ(mapped_rate(memory, 2 << 20), 40);
  EXPECT_DOUBLE_EQ(mapped_rate(memory, 8 << 20), 1 / (1 / 3.0 / 40 + 2 / 3.0 / 5));
  EXPECT_DOUBLE_EQ(mapped_rate(memory, 1 << 30), 5);
  EXPECT_DOUBLE_EQ(mapped_rate({.mapped_cached = 40, .mapped_large = 5}, 0), 40) << "if nothing is said";
}

TEST(Machine, WhatAPeerHasJustWrittenHasARateOfItsOwnWhileItIsNear) {
  Memory memory{.peer_written = 4, .mapped_near = 10, .mapped_cached = 40, .mapped_large = 5};
  EXPECT_DOUBLE_EQ(written_rate(memory, 256 << 10), 4);
  EXPECT_DOUBLE_EQ(written_rate(memory, 2 << 20), 40);
  memory.peer_written = 0;
  EXPECT_DOUBLE_EQ(written_rate(memory, 256 << 10), 10) << "if nothing is said";
}

TEST(Machine, ACacheIsAsLargeAsAReductionInTheMiddleShows) {
  constexpr uint64_t kMiddle = 12 << 20, kLarge = 48 << 20;
  Memory memory{.reduce_cached = 60, .reduce_large = 10};
  for (const double rate : {60.0, 45.0, 20.0, 13.0}) {
    fit_cache(memory, kMiddle, rate, kLarge);
    EXPECT_NEAR(rate_for(memory, kMiddle, 60, 10), rate, 0.01);
    EXPECT_NEAR(rate_for(memory, kLarge, 60, 10), 10, 0.01);
  }
  fit_cache(memory, kMiddle, 70, kLarge);
  EXPECT_EQ(memory.cache_bytes, 2 * kMiddle) << "all of it is in the cache";
  fit_cache(memory, kMiddle, 5, kLarge);
  EXPECT_EQ(memory.cache_bytes, 2 * kMiddle / 64) << "none of it: as small as is believed";
  memory.reduce_large = 60;
  fit_cache(memory, kMiddle, 60, kLarge);
  EXPECT_EQ(memory.cache_bytes, 2 * kMiddle) << "no cache to be told from memory";
}

TEST(Machine, MissingFieldsKeepTheirDefaults) {
  const Result<Machine> machine = machine_from_json(R"({"inter": {"alpha_us": 3}})");
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine->inter.alpha_us, 3);
  EXPECT_EQ(machine->inter.bytes_per_us, Machine().inter.bytes_per_us);
  EXPECT_EQ(machine->intra.alpha_us, Machine().intra.alpha_us);
}

TEST(Machine, NamesWhatIsWrongInJson) {
  EXPECT_NE(error_of("[1, 2").find("not a JSON object: [1, 2"), std::string::npos);
  EXPECT_NE(error_of("[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(error_of(R"({"alpha": 1})").find("unknown key \"alpha\"; known are name, intra.alpha_us"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"inter": {"alfa_us": 1}})")
                .find("unknown key \"inter.alfa_us\"; did you mean \"inter.alpha_us\"? known are name"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"rails": 1e12})").find("rails is 1000000000000.0, must be in [1, 256]"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"inter": {"beta": 1}})").find("unknown key \"inter.beta\""), std::string::npos);
  EXPECT_NE(error_of(R"({"inter": 3})").find("inter is 3, must be an object"), std::string::npos);
  EXPECT_NE(
      error_of(R"({"inter": {"alpha_us": "fast"}})").find("inter.alpha_us is \"fast\", must be a number"),
      std::string::npos);
  EXPECT_NE(error_of(R"({"inter": {"by_cpu": 1}})").find("must be a boolean"), std::string::npos);
  for (const char* net : {R"("udp")", "7", R"({"of": "nets"})"}) {
    EXPECT_NE(error_of(fmt::format(R"({{"net": {}}})", net)).find("must be \"tcp\", \"efa\" or \"ofi\""),
              std::string::npos)
        << net;
  }
  EXPECT_NE(error_of(R"({"rails": 1.5})").find("must be a whole number"), std::string::npos);
  EXPECT_NE(error_of(R"({"rails": 0})").find("rails is 0, must be in [1, "), std::string::npos);
  EXPECT_NE(error_of(R"({"nic_bytes_per_us": 0})").find("nic_bytes_per_us is 0, must be in [0.001"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"step_us": -1})").find("step_us is -1"), std::string::npos);
  EXPECT_NE(error_of(R"({"machine": {"rails": 2}})").find("unknown key \"machine\""), std::string::npos);
  EXPECT_NE(error_of(R"({"rails": 2, "rails": 4})").find("the key \"rails\" is there twice"),
            std::string::npos);
}

TEST(Machine, AConnectionHoldsWhatItsInterfaceCarriesInAMillisecondAndFourRoundTrips) {
  Machine machine;
  machine.inter = {.alpha_us = 480, .overhead_us = 10, .bytes_per_us = 1000, .by_cpu = true};
  machine.nic_bytes_per_us = 100;
  const uint64_t carried = 100 * (4 * 2 * 500 + 1000);
  EXPECT_EQ(flight_bytes(machine, kFourNodes), carried / kPiece * kPiece);
  machine.rails = 4;
  EXPECT_EQ(flight_bytes(machine, kFourNodes), carried / kPiece * kPiece) << "a connection is one rail's";
  machine.nic_bytes_per_us = 1;
  EXPECT_EQ(flight_bytes(machine, kFourNodes), 2 * kPiece) << "two messages of 64 KiB";
  machine.nic_bytes_per_us = 225;
  EXPECT_EQ(flight_bytes(machine, kFourNodes), 0) << "CPUs are what takes the time";
  machine.nic_bytes_per_us = 100;
  machine.inter.by_cpu = false;
  EXPECT_EQ(flight_bytes(machine, kFourNodes), 0);
  EXPECT_EQ(flight_bytes(Machine(), kFourNodes), 0) << "loopback";
}

// Of 8 nodes of two ranks 14 streams met in a port's queue of 1.25 MiB, each with 128 KiB under way and a
// piece that the kernel had taken besides.
TEST(Machine, ManyConnectionsHoldOnePieceEach) {
  Machine machine;
  machine.inter = {.alpha_us = 5, .overhead_us = 3, .bytes_per_us = 1000, .by_cpu = true};
  machine.nic_bytes_per_us = 60;
  EXPECT_EQ(flight_bytes(machine, kFourNodes), 2 * kPiece);
  EXPECT_EQ(flight_bytes(machine, topology::Layout::blocks(8, 1)), kPiece);
  EXPECT_EQ(flight_bytes(machine, topology::Layout::blocks(8, 2)), kPiece);
  EXPECT_EQ(flight_bytes(machine, topology::Layout::blocks(64, 8)), kPiece);
}

TEST(Machine, TakesFromTheHostWhatTheHostStates) {
  topology::Host host;
  host.cores = 8;
  for (int id = 0; id < 8; ++id) host.cpus.push_back({id, id, 0, 0, true});
  host.caches = {{2, 1 << 20, 8}, {3, 32 << 20, 1}};
  topology::Interface slow{.name = "eth0", .up = true, .gbit_per_s = 10, .near_cpus = {}};
  topology::Interface fast{.name = "efa_0", .rdma = true, .up = true, .gbit_per_s = 100, .near_cpus = {}};
  topology::Interface down{.name = "efa_2", .rdma = true, .up = false, .gbit_per_s = 400, .near_cpus = {}};
  // Nine interfaces of 1.2 GB/s were stated, eight of them containers' links.
  topology::Interface link{.name = "veth7", .up = true, .carries = false, .gbit_per_s = 100, .near_cpus = {}};
  host.interfaces = {slow, fast, fast, down, link};
  const Machine machine = machine_of(host);
  EXPECT_EQ(machine.cores, 8);
  EXPECT_EQ(machine.rails, 2);
  EXPECT_EQ(machine.nic_bytes_per_us, 12500);
  EXPECT_EQ(machine_of(host, 2).cores, 4);
  EXPECT_EQ(machine_of(host, 2).nic_bytes_per_us, Machine().nic_bytes_per_us) << "loopback";
  host.caches.back().bytes = 16 << 20;
  EXPECT_EQ(machine_of(host).memory.cache_bytes, 2u << 20) << "a core's part";
  host.cpu_quota = 3;
  EXPECT_EQ(machine_of(host).cores, 3);
}

}  // namespace
}  // namespace weft::model
