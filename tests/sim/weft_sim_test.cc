// weft_sim: what it answers about small clusters that can be worked out by hand, and how it refuses.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "model/sourced_json.h"
#include "sim/study.h"

namespace weft::sim {
namespace {

bool mentions(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

struct Output {
  int exit_code;
  std::string text;  // both streams
};

Output run(const std::string& arguments) {
  FILE* const pipe = popen(fmt::format("{} {} 2>&1", WEFT_SIM, arguments).c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer;
  while (size_t bytes = fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), bytes);
  return {WEXITSTATUS(pclose(pipe)), text};
}

/// A description with round numbers: alpha 10 µs, 100 bytes/µs on each of two rails, nothing else costs.
class WeftSim : public ::testing::Test {
 protected:
  void write(const std::string& more = "", const std::string& nodes = "4", const char* net = "tcp") {
    std::ofstream(path_) << fmt::format(
        R"({{"nodes": {}, "ranks_per_node": 1, "machine": {{"net": "{}",
             "inter": {{"alpha_us": 10, "overhead_us": 0, "bytes_per_us": 100, "by_cpu": false}},
             "memory": {{"copy_cached": 1e9, "copy_large": 1e9, "reduce_cached": 1e9, "reduce_large": 1e9}},
             "nic_bytes_per_us": 100, "rails": 2, "stripe_bytes": 1, "crossing": 1, "cores": 64, "step_us": 0, "call_us": 0}}{}}})",
        nodes, net, more);
  }
  ~WeftSim() override { std::filesystem::remove(path_); }

  /// The time of an algorithm, by itself.
  double us(const std::string& arguments) {
    const Output output = run(fmt::format("{} --json {}", path_, arguments));
    EXPECT_EQ(output.exit_code, 0) << output.text;
    const auto json = nlohmann::json::parse(output.text, nullptr, false);
    return json.is_discarded() ? -1 : json["rows"][0].value("us", -1.0);
  }
  std::string refusal(const std::string& arguments) {
    const Output output = run(fmt::format("{} {}", path_, arguments));
    EXPECT_EQ(output.exit_code, 2) << output.text;
    return output.text;
  }

  const std::string path_ = ::testing::TempDir() + fmt::format("weft_sim_{}.json", getpid());
};

TEST_F(WeftSim, DrawsAPageThatNeedsNothingElse) {
  write();
  const std::string page = path_ + ".html";
  ASSERT_EQ(run(fmt::format("{} -s 1M-4M -a ring,all_to_all --html {}", path_, page)).exit_code, 0);
  std::ifstream file(page);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(page);
  const std::string begin = "<script type=\"application/json\" class=\"chart\">";
  const size_t at = text.find(begin);
  ASSERT_NE(at, std::string::npos) << text.substr(0, 500);
  const auto chart =
      nlohmann::json::parse(text.substr(at + begin.size(), text.find("</script>", at) - at - begin.size()));
  ASSERT_FALSE(chart["series"].empty());
  for (const auto& series : chart["series"]) {
    ASSERT_EQ(series["points"].size(), 3u) << "a size each";
    EXPECT_EQ(series["points"][0][0], 1 << 20);
    EXPECT_DOUBLE_EQ(series["points"][1][1],
                     us(fmt::format("-s 2M -a {}", series["name"].get<std::string>())));
  }
  for (const char* reference : {"http:", "https:", "src=", "<link", "@import"})
    EXPECT_EQ(text.find(reference), std::string::npos) << reference;
  EXPECT_TRUE(mentions(run(path_ + " --html /nowhere/page.html").text, "/nowhere/page.html: No such file"));
}

TEST_F(WeftSim, CountsOneNodeAsOne) {
  write("", "1");
  const Output output = run(path_ + " -s 1M");
  EXPECT_TRUE(mentions(output.text, " on 1 rank of 1 node\n")) << output.text;
  EXPECT_TRUE(mentions(run("--version").text, "weft_sim 0.")) << run("--version").text;
}

TEST_F(WeftSim, TakesAlphaAndBytes) {
  write();
  // Each of 4 ranks gives a shard of 8000 bytes, short enough to go without a handle, to 3 others at 200
  // bytes/µs.
  EXPECT_NEAR(us("-c allgather -s 32000 -a all_to_all --element-bytes 1 --slice 1M"), 10 + 120, 0.1);
  EXPECT_NEAR(us("-c allgather -s 32000 -a ring --element-bytes 1 --slice 1M"), 3 * (10 + 40), 0.1);
}

TEST_F(WeftSim, TellsCallsInARow) {
  write();
  // The root's two rails carry 8000 bytes in 40 µs.
  const std::string broadcast = "-c broadcast -s 8000 --element-bytes 1 ";
  EXPECT_NEAR(us(broadcast + "-a one_hop"), 3 * 40 + 10, 0.1);
  EXPECT_NEAR(us(broadcast + "-a one_hop --streak"), 3 * 40, 0.1);
  EXPECT_NEAR(us(broadcast + "-a ring"), 3 * (10 + 40), 0.1);
  EXPECT_NEAR(us(broadcast + "-a ring --streak"), 40, 0.1) << "every rank is at a call of its own";
  const double alone_us = us("-s 1M -a ring");
  EXPECT_NEAR(us("-s 1M -a ring --streak"), alone_us, 0.1 * alone_us)
      << "where all wait for all, it is the same";

  const auto answer = [&](const char* more) {
    return nlohmann::json::parse(run(path_ + " --json " + broadcast + more).text, nullptr, false);
  };
  const auto one = answer(""), streak = answer("--streak");
  EXPECT_EQ(one["calls"], "alone") << one;
  EXPECT_EQ(streak["calls"], "streak") << streak;
  EXPECT_EQ(one["rows"][0]["inter_bytes"], 3 * 8000) << one;
  EXPECT_EQ(streak["rows"][0]["inter_bytes"], 3 * 8000) << "of a call";
  EXPECT_TRUE(mentions(run(path_ + " --streak").text, "; back-to-back calls\n"))
      << run(path_ + " --streak").text;
  EXPECT_FALSE(mentions(run(path_).text, "back-to-back calls"));
  EXPECT_TRUE(mentions(refusal("--streak --why"), "--streak excludes --why")) << refusal("--streak --why");
}

TEST_F(WeftSim, AlltoallOutOfPlaceIsQuicker) {
  write();
  const std::string what = "-c alltoall -s 32000 -a all_to_all --element-bytes 1 ";
  EXPECT_LT(us(what + "--out-of-place"), us(what));
  EXPECT_NEAR(us(what + "--out-of-place"), 10 + 120, 0.1) << "no rank asks another whether it may write";
  EXPECT_EQ(us("-s 1M -a ring --out-of-place"), us("-s 1M -a ring")) << "others do not care";
}

TEST_F(WeftSim, InPlaceNothingIsCopiedFromInputToOutput) {
  write();
  const std::string alone = " -c broadcast -s 16M -a direct --nodes 1";
  EXPECT_LT(us(alone + " --in-place"), us(alone)) << "the root's own copy";
  EXPECT_EQ(us("-c alltoall -s 1M --in-place -a all_to_all"), us("-c alltoall -s 1M -a all_to_all"))
      << "planned in place anyway";
  EXPECT_TRUE(mentions(refusal("--in-place --out-of-place"), " excludes --"))
      << refusal("--in-place --out-of-place");
}

TEST_F(WeftSim, TheNetworkSaysWhatGoesWithoutAsking) {
  for (const transport::Net net : {transport::Net::tcp, transport::Net::efa, transport::Net::ofi}) {
    write("", "4", transport::name_of(net));
    const uint64_t most = transport::net_eager_bytes(net);
    const Output output = run(path_ + " -a ring -s 1M --json");
    const auto json = nlohmann::json::parse(output.text, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << output.text;
    EXPECT_EQ(json["eager_inter_bytes"], most);
    EXPECT_EQ(json["eager_intra_bytes"], transport::shm_eager_bytes());
    const std::string one_hop = "-c allreduce -a one_hop --element-bytes 1 -s ";
    EXPECT_GT(us(one_hop + std::to_string(most)), 0);
    EXPECT_TRUE(mentions(refusal(one_hop + std::to_string(most + 1)),
                         fmt::format("at most {} go eagerly between nodes", most)));
    EXPECT_TRUE(
        mentions(run(path_ + " -a ring").text, fmt::format("between nodes ({})\n", transport::name_of(net))));
  }
}

TEST_F(WeftSim, HeedsTheSettingsThatTheLibraryWould) {
  write();
  setenv("WEFT_EAGER_INTER_BYTES", "5000", 1);
  const std::string refused = refusal("-c allreduce -a one_hop -s 8K");
  setenv("WEFT_EAGER_INTER_BYTES", "many", 1);
  const std::string wrong = refusal("-a ring");
  unsetenv("WEFT_EAGER_INTER_BYTES");
  EXPECT_TRUE(mentions(refused, "at most 5000 go eagerly between nodes")) << refused;
  EXPECT_TRUE(mentions(wrong, "WEFT_EAGER_INTER_BYTES")) << wrong;
}

TEST_F(WeftSim, AFailedRailHalvesItsNode) {
  write();
  const std::string what = "-c allgather -s 4M -a all_to_all";
  const double usual = us(what), failed = us(what + " --fail-rail 2:1"),
               slow = us(what + " --slow-rail 2:1=0.5");
  EXPECT_NEAR(failed / usual, 2, 0.05);
  EXPECT_GT(slow, 1.2 * usual);
  EXPECT_LT(slow, failed * 1.01);
}

TEST_F(WeftSim, IncastAtANodeTakesAsManyTimesLonger) {
  write();
  const std::string what = "-c gather -s 4M -a all_to_all";  // three senders to one receiver
  EXPECT_NEAR(us(what), (3 << 20) / 200.0, 100);
  const std::string all = "-c allgather -s 4M -a all_to_all";
  EXPECT_NEAR(us(all + " --incast 1=3") / us(all), 4, 0.1) << "three others and we share";
}

TEST_F(WeftSim, ASlowNodeSlowsAllPlansThatPassThroughIt) {
  write();
  for (const std::string algorithm : {"ring", "all_to_all"}) {
    const std::string what = "-c allreduce -s 8M -a " + algorithm;
    EXPECT_NEAR(us(what + " --slow-node 3=0.5") / us(what), 2, 0.1) << algorithm;
  }
}

TEST_F(WeftSim, OversubscribedSwitchesSlowWhatCrossesThem) {
  write();
  const std::string what = "-c allgather -s 4M -a all_to_all";
  const double ideal = us(what), leaves = us(what + " --nodes-per-leaf 2 --oversubscription 1");
  const double four = us(what + " --nodes-per-leaf 2 --oversubscription 4");
  EXPECT_NEAR(leaves / ideal, 1, 0.15) << "streams meet once more on their way";
  // Two nodes send two thirds of 3 shards each through a link of a quarter of their rate.
  EXPECT_NEAR(four / ideal, 4 * 2.0 / 3, 0.2);
}

TEST_F(WeftSim, SaysHowItWasSimulated) {
  write();
  EXPECT_TRUE(mentions(run(path_ + " -a ring").text, "one node for all"));
  EXPECT_TRUE(mentions(run(path_ + " -a ring --slow-node 0=0.9").text, "every rank"));
  const Output slow = run(path_ + " -a ring,all_to_all --fail-rail 0:1 --why");
  EXPECT_TRUE(mentions(slow.text, "rail 1 of node 0 is down"));
  EXPECT_TRUE(mentions(slow.text, "x usual"));
  EXPECT_TRUE(mentions(slow.text, "between nodes"));
}

TEST_F(WeftSim, IsDeterministic) {
  write();
  const std::string what = "-c reducescatter -s 3M --nodes 7 --slow-node 2=0.7 -a ring";
  EXPECT_EQ(us(what), us(what));
}

TEST_F(WeftSim, SweepsDoubleAndLeaveOutWhatCannotBeShared) {
  write();
  const Output output = run(path_ + " --json -c allgather -a ring -s 8-64 --nodes 2-8");
  const auto json = nlohmann::json::parse(output.text, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << output.text;
  EXPECT_EQ(json["rows"].size(), 4u + 3 + 2) << "8 bytes for 2 ranks, but 32 are least for 8";
}

TEST_F(WeftSim, RefusesWrongDescriptionsByName) {
  const auto says = [&](const std::string& more, std::string_view part, const std::string& nodes = "4") {
    write(more, nodes);
    const std::string text = refusal("-a ring");
    EXPECT_TRUE(mentions(text, part)) << text;
    EXPECT_TRUE(mentions(text, path_)) << text;
  };
  says(R"(, "rail_speed": 3)", "unknown key \"rail_speed\"; known are name, nodes");
  says(R"(, "fabric": {"speed": 3})", "unknown key \"fabric.speed\"");
  says(R"(, "fabric": {"oversubscription": "much"})",
       "fabric.oversubscription is \"much\", must be a number");
  says(R"(, "fabric": {"oversubscription": 0.5})", "fabric.oversubscription is 0.5, must be in [1, 1000]");
  says(R"(, "slow_nodes": [{"node": 9, "rate": 0.5}])", "slow_nodes: node is 9, must be in [0, 4)");
  says(R"(, "slow_nodes": [{"node": 1}])", "slow_nodes[0].rate is missing");
  says(R"(, "slow_nodes": {"node": 1}})", "not a JSON object");
  says(R"(, "slow_rails": [{"node": 1, "rail": 2, "rate": 0}])", "slow_rails: rail is 2, must be in [0, 2)");
  says(R"(, "slow_rails": [{"node": 1, "rail": 0, "rate": 0}, {"node": 2, "rail": 1, "rate": 0}])",
       "each of the 2 rails is down");
  says(R"(, "incast": [{"node": 0, "streams": -1}])", "incast: streams is -1, must be in [0, 1e+06]");
  says("", "nodes is 0, must be in [1, 16384]", "0");
  says("", "nodes is -3", "-3");
  says("", "nodes is \"four\", must be a whole number", "\"four\"");
  says("", "nodes is 1000000000000.0, must be in [1, 16384]", "1e12");
  says("", "nodes.unit", R"({"value": 4, "unit": "nodes"})");
  says("", "nodes.source is 7, must be a string", R"({"value": 4, "source": 7})");
  std::ofstream(path_) << R"({"ranks_per_node": 2})";
  EXPECT_TRUE(mentions(refusal(""), "nodes is missing"));
  std::ofstream(path_) << R"({"nodes": 2, "machine": {"nic_bytes_per_us": -5}})";
  EXPECT_TRUE(mentions(refusal(""), "nic_bytes_per_us is -5, must be in"));
  std::ofstream(path_) << R"({"nodes": 2, "machine": {"net": "pigeons"}})";
  EXPECT_TRUE(mentions(refusal(""), "net is \"pigeons\", must be \"tcp\", \"efa\" or \"ofi\""));
  std::ofstream(path_) << R"({"nodes": 2, "machine": {"nic_speed": 5}})";
  EXPECT_TRUE(mentions(refusal(""), "unknown key \"nic_speed\""));
  std::ofstream(path_) << R"({"nodes": 2, "machine": {"inter": {"alpha_us": 1}, "rails": 1, "rails": 2}})";
  EXPECT_TRUE(mentions(refusal(""), "the key \"machine.rails\" is there twice")) << refusal("");
  std::ofstream(path_) << R"({"node": 2})";
  EXPECT_TRUE(mentions(refusal(""), "unknown key \"node\"; did you mean \"nodes\"?")) << refusal("");
  std::ofstream(path_) << R"({"nodes": 2, "compute": {"gflop": 5}})";
  EXPECT_TRUE(mentions(refusal(""), "unknown key \"compute.gflop\"; did you mean \"compute.gflops\"?"));
  std::ofstream(path_) << R"({"nodes": 2, "name": "two\u0000"})";
  EXPECT_TRUE(mentions(refusal(""), "name is \"two\\u0000\", must be a string without control characters"));
  std::ofstream(path_) << R"({"nodes": 2, "ra\u0000ils": 2})";
  EXPECT_TRUE(mentions(refusal(""), "unknown key \"ra\\u0000ils\"; known are name, nodes")) << refusal("");
  std::ofstream(path_) << "";
  EXPECT_TRUE(mentions(refusal(""), "this is empty, must be a JSON object"));
  std::ofstream(path_) << "\x7f\x45LF";
  EXPECT_TRUE(mentions(refusal(""), "not a JSON object: .ELF (it is wrong at line 1, column 1)"))
      << refusal("");
  std::ofstream(path_) << std::string("{\"nodes\": 2}\n\0, \"nodes\": 3", 26);
  EXPECT_TRUE(mentions(refusal(""), "(byte 13 is a NUL, at line 2, column 1)")) << refusal("");
  const int levels = 200'000;  // more than a stack holds
  std::ofstream(path_) << R"({"nodes": 2, "machine": )" << std::string(levels, '[')
                       << std::string(levels, ']') << "}";
  EXPECT_TRUE(mentions(refusal(""), "nested more than 64 levels deep"));
}

TEST_F(WeftSim, AByteOrderMarkIsNoText) {
  std::ofstream(path_) << "\xef\xbb\xbf{\"nodes\": 2}";
  EXPECT_EQ(run(path_ + " -a ring").exit_code, 0);
}

TEST_F(WeftSim, RefusesWrongQuestionsByName) {
  write();
  const auto says = [&](const std::string& arguments, std::string_view part) {
    const std::string text = refusal(arguments);
    EXPECT_TRUE(mentions(text, part)) << text;
  };
  says("-c allsum", "allsum");
  says("-s much", "much");
  says("-s 0", "less than an element for each");
  says("-s 8M-1M", "must begin with at least 1 and not end before");
  says("-a spiral", "AllReduce has no spiral; it has one_hop");
  says("-a ring,spiral", "AllReduce has no spiral; all_to_all, ring");
  says("-a direct", "direct reads the memory of peers");
  says("-a direct", "all_to_all, ring, recursive_doubling");
  says("-a one_hop -s 64M", "one_hop sends 67108864 bytes at once, at most 65536 go eagerly");
  says("--nodes 0", "nodes is 0");
  says("--nodes 2-2000000000", "nodes is 32768, must be in [1, 16384]");
  says("--nodes many", "\"many\" is no number");
  says("--slow-node 3", "--slow-node is \"3\", must be written NODE=RATE");
  says("--slow-node 3=fast", "\"fast\" is no number");
  says("--slow-node 3=2", "rate is 2, must be in");
  says("--fail-rail 0:7", "rail is 7, must be in [0, 2)");
  says("--element-bytes 9", "--element-bytes is 9");
  says("--frobnicate", "weft_sim --help");
  EXPECT_EQ(run(path_ + " -a one_hop,ring -s 64,64M").exit_code, 0) << "one_hop serves one of the sizes";
  std::ofstream(path_) << R"({"nodes": 2, "machine": {"rai)";
  EXPECT_TRUE(mentions(refusal(""), "not a JSON object")) << "truncated";
  EXPECT_TRUE(mentions(refusal(""), "(it ends too early, at line 1, column 30)")) << refusal("");
  std::ofstream(path_) << "{\"nodes\": 2,\n \"machine\": {rails: 1}}";
  EXPECT_TRUE(mentions(refusal(""), "(it is wrong at line 2, column 14)")) << refusal("");
  const Output folder = run(".");  // once std::terminate: a stream of a folder throws when it is read
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_EQ(folder.text, "weft_sim: cannot read .: Is a directory (errno 21)\n");
  const Output none = run("/no/such/file.json");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_TRUE(mentions(none.text, "known are")) << none.text;
}

/// The descriptions that come with Weft: all there, all readable, every number with its source.
TEST(Clusters, NameTheSourceOfEveryNumber) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_SOURCE_DIR "/clusters")) {
    names.push_back(entry.path().stem().string());
    const Result<model::Cluster> cluster = model::read_cluster(entry.path().string());
    EXPECT_TRUE(cluster.ok()) << cluster.status().message();
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const auto sourceless = model::numbers_without_source(text);
    ASSERT_TRUE(sourceless.ok());
    EXPECT_TRUE(sourceless->empty()) << entry.path() << ": " << sourceless->front();
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"ethernet", "p3dn", "p4d", "p4de", "p5"}));
  for (const std::string& name : names) {
    const auto cluster = model::read_cluster(fmt::format(WEFT_SOURCE_DIR "/clusters/{}.json", name));
    EXPECT_EQ(cluster->machine.net, name == "ethernet" ? transport::Net::tcp : transport::Net::efa) << name;
  }
}

/// Every key of a machine is stated, so that no description depends on what happens to be Weft's default, and
/// each number says by itself where it is from.
TEST(Clusters, StateEveryKeyOfAMachineWithASourceOfItsOwn) {
  const auto keys = nlohmann::json::parse(model::to_json(model::Machine()));
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_SOURCE_DIR "/clusters")) {
    const auto stated = nlohmann::json::parse(std::ifstream(entry.path()));
    const auto expect_own_source = [&](const nlohmann::json& parent, const std::string& key) {
      ASSERT_TRUE(parent.contains(key)) << entry.path() << ": " << key << " is missing";
      const nlohmann::json& one = parent[key];
      ASSERT_TRUE(one.is_object() && one.contains("source")) << entry.path() << ": " << key;
      EXPECT_TRUE(one["value"].is_number()) << entry.path() << ": " << key;
      EXPECT_FALSE(one["source"].get<std::string>().empty()) << entry.path() << ": " << key;
    };
    expect_own_source(stated, "nodes");
    expect_own_source(stated, "ranks_per_node");
    for (const auto& [key, value] : keys.items()) {
      if (value.is_number()) expect_own_source(stated["machine"], key);
      if (value.is_string() && key != "name") {
        EXPECT_TRUE(stated["machine"].contains(key)) << entry.path() << ": " << key;
      }
      if (!value.is_object()) continue;
      for (const auto& [inner, field] : value.items()) {
        if (field.is_number()) {
          expect_own_source(stated["machine"][key], inner);
        } else {
          EXPECT_TRUE(stated["machine"][key].contains(inner)) << entry.path() << ": " << key << "." << inner;
        }
      }
    }
  }
}

TEST(Clusters, AnEmptySourceIsNone) {
  const auto found = model::numbers_without_source(
      R"({"nodes": {"value": 4, "source": ""}, "machine": {"source": " ", "rails": 2, "cores": {"value": 8, "source": "a sheet"}}})");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, (std::vector<std::string>{"nodes.value", "machine.rails"}));
}

TEST(Clusters, AreFoundByName) {
  const Output output = run("p4d --nodes 2 -a ring -s 1M");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_TRUE(mentions(output.text, "p4d.24xlarge")) << output.text;
}

/// Four thousand ranks take seconds, not hours; a moment is enough where nodes are alike.
TEST(Scale, ThousandsOfRanks) {
  const Output output = run("p4d --nodes 512 --json -c allgather,allreduce -a all_to_all,ring -s 1G");
  const auto json = nlohmann::json::parse(output.text, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << output.text;
  ASSERT_EQ(json["rows"].size(), 4u);
  for (const auto& row : json["rows"]) {
    EXPECT_EQ(row["ranks"], 4096);
    EXPECT_EQ(row["scope"], "one node for all");
    EXPECT_GT(row["us"], 1e9 / 50e3) << "no faster than the interfaces";
  }
}

/// Also where nodes are not alike, or a plan does not treat them alike: then every rank is executed.
TEST(Scale, ThousandsOfRanksOneByOne) {
  const Output output = run("p4d --nodes 512 --json -c allreduce -a double_tree -s 256K --slow-node 5=0.5");
  const auto json = nlohmann::json::parse(output.text, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << output.text;
  ASSERT_EQ(json["rows"].size(), 1u);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["ranks"], 4096);
  EXPECT_EQ(row["scope"], "every rank");
  EXPECT_GT(row["events"], 4096);
  EXPECT_GT(row["us"], row["healthy_us"]) << "everybody waits for the slow node";
}

}  // namespace
}  // namespace weft::sim
