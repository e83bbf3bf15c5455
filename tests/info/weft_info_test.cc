// weft_info: what it prints of this host and of the library, what it explains, and how it refuses.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "base/settings.h"
#include "info/explain.h"
#include "info/section.h"
#include "model/machine_cache.h"
#include "plan/plan.h"
#include "topology/host.h"

namespace weft::info {
namespace {

bool mentions(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

Question four_nodes() {
  Question question;
  question.collective = "allreduce";
  question.size = "4M";
  question.ranks = 16;
  question.nodes = 4;
  return question;
}

std::string refusal(const Question& question) {
  const Result<Section> section = explain(question);
  return section.ok() ? "ok" : section.status().message();
}

TEST(Sections, NameEverySetting) {
  const Section section = settings_section();
  for (const SettingDoc& doc : setting_docs()) EXPECT_TRUE(mentions(section.text, doc.name)) << doc.name;
  EXPECT_EQ(section.json.size(), setting_docs().size());
}

TEST(Sections, NameEveryAlgorithmUnderItsCollective) {
  const Section section = algorithms_section();
  for (const plan::Algorithm& algorithm : plan::algorithms()) {
    EXPECT_TRUE(section.json[plan::name_of(algorithm.collective)].contains(std::string(algorithm.name)));
  }
  EXPECT_TRUE(mentions(section.text, "AllReduce\n  one_hop "));
}

TEST(Explain, OfGpuMemoryNamesThePath) {
  Question question{.collective = "allgather", .size = "256M", .ranks = 4, .cuda = true};
  const Result<Section> unknown = explain(question);
  ASSERT_FALSE(unknown.ok()) << "tests measure nothing";
  EXPECT_NE(unknown.status().message().find("no GPU was measured for 4 ranks on 1 node:"), std::string::npos)
      << unknown.status().message();
  question.machine_file = "p5";
  const Result<Section> section = explain(question);
  ASSERT_TRUE(section.ok()) << section.status().message();
  EXPECT_NE(section->text.find("path: copy engines and kernels; 1 ranks of a device, 1 of a thread"),
            std::string::npos)
      << section->text;
}

// The tests have no path but steps switched on, and the answer says what each would take.
TEST(Explain, OfGpuMemoryHasThePathsOfACall) {
  const std::string file = ::testing::TempDir() + "weft_info_gpu.json";
  std::ofstream(file) << R"({"engines": 1, "engine_us": 7.2, "engine_step_us": 3.2, "device_ranks": 4,
    "thread_ranks": 4, "cores": 16, "intra": {"alpha_us": 0.15, "overhead_us": 0.2, "bytes_per_us": 1300000,
    "by_cpu": false}, "memory": {"copy_cached": 1419000, "copy_large": 1419000, "reduce_cached": 363000,
    "reduce_large": 363000}})";
  Question question;
  question.ranks = 4, question.machine_file = file, question.cuda = true;
  const auto path_of = [&](const char* collective, const char* size, size_t path) -> nlohmann::json {
    question.collective = collective, question.size = size;
    const Result<Section> section = explain(question);
    EXPECT_TRUE(section.ok()) << section.status().message();
    return section.ok() ? nlohmann::json(section->json["paths"][path]) : nlohmann::json();
  };
  enum : size_t { kernel, copies, steps };
  EXPECT_EQ(path_of("allreduce", "64", kernel)["why_not"], "WEFT_CUDA_KERNEL is off");
  EXPECT_EQ(path_of("allreduce", "64", kernel)["path"], "one kernel (one_hop)");
  EXPECT_EQ(path_of("allreduce", "1M", kernel)["path"], "one kernel (direct)");
  EXPECT_TRUE(mentions(path_of("allgather", "64M", kernel)["why_not"], "a kernel moves messages of at most"));
  EXPECT_EQ(path_of("allgather", "1M", copies)["why_not"], "WEFT_CUDA_COPY_BYTES is 0");
  EXPECT_LT(path_of("allgather", "1M", copies)["predicted_us"],
            path_of("allgather", "1M", steps)["predicted_us"]);
  EXPECT_TRUE(
      mentions(path_of("allgather", "256M", copies)["why_not"], "step by step it is predicted to take"));
  EXPECT_EQ(path_of("allreduce", "4M", copies)["why_not"], "copy engines do no AllReduce");
  EXPECT_EQ(path_of("allgather", "256M", steps)["path"], "step by step");
  EXPECT_FALSE(path_of("allgather", "256M", steps).contains("why_not"));
  question.nodes = 2;
  EXPECT_EQ(path_of("allreduce", "64", kernel)["path"], "one kernel, and a proxy (recursive_doubling)");
  EXPECT_EQ(path_of("allreduce", "64", kernel)["why_not"], "WEFT_CUDA_KERNEL is off");
  EXPECT_LT(path_of("allreduce", "64", kernel)["predicted_us"],
            path_of("allreduce", "64", steps)["predicted_us"]);
  EXPECT_EQ(path_of("allreduce", "128K", kernel)["path"], "one kernel, and a proxy (all_to_all)");
  EXPECT_TRUE(
      mentions(path_of("allreduce", "512K", kernel)["why_not"], "all_to_all exposes memory to another node"));
  EXPECT_EQ(path_of("allgather", "64", copies)["why_not"], "the ranks are on 2 nodes");
}

TEST(Explain, NamesLayoutCandidatesAndReason) {
  const Result<Section> section = explain(four_nodes());
  ASSERT_TRUE(section.ok()) << section.status().message();
  EXPECT_TRUE(
      mentions(section->text, "AllReduce of 4 MiB (1048576 × 4 bytes) on 16 ranks on 4 nodes (4 each)"));
  EXPECT_TRUE(mentions(section->text, "one_hop sends")) << "why an algorithm is unfit: " << section->text;
  EXPECT_TRUE(mentions(section->text, "used: "));
  EXPECT_TRUE(mentions(section->text, "critical path: "));
  EXPECT_EQ(section->json["used"]["algorithm"], section->json["candidates"][0]["algorithm"]);
  EXPECT_GT(section->json["simulation"]["inter_bytes"], 0);
}

TEST(Explain, ListsTheStepsOfARank) {
  Question question = four_nodes();
  question.steps = true;
  question.rank = 5;
  EXPECT_TRUE(mentions(explain(question)->text, "rank 5 of 16"));
}

TEST(Explain, CountsSizesAsThePerfToolsDo) {
  Question question = four_nodes();
  question.collective = "all_gather";
  question.size = "64K";
  EXPECT_TRUE(mentions(explain(question)->text, "AllGather of 64 KiB (1024 × 4 bytes)"));
}

TEST(Explain, HandlesEveryCollective) {
  for (int c = 0; c < plan::kCollectives; ++c) {
    Question question = four_nodes();
    question.collective = plan::name_of(static_cast<plan::Collective>(c));
    EXPECT_EQ(refusal(question).substr(0, 2), "ok") << question.collective << ": " << refusal(question);
  }
}

TEST(Explain, RefusesByName) {
  Question question = four_nodes();
  question.nodes = 17;
  EXPECT_EQ(refusal(question), "--nodes is 17, must be in [1, 16]");
  question = four_nodes();
  question.root = 16;
  EXPECT_EQ(refusal(question), "--root is 16, must be in [0, 15]");
  question = four_nodes();
  question.size = "4Q";
  EXPECT_TRUE(mentions(refusal(question), "\"4Q\" is no size"));
  question = four_nodes();
  question.collective = "barrier";
  EXPECT_TRUE(mentions(refusal(question), "there is no collective \"barrier\"; there are: allreduce"));
  question = four_nodes();
  question.machine_file = "/nowhere.json";
  EXPECT_TRUE(mentions(refusal(question), "/nowhere.json"));
  question.machine_file = ".";
  EXPECT_EQ(refusal(question), "cannot read .: Is a directory (errno 21)");
  question = four_nodes();
  question.collective = "allgather";
  question.size = "4";
  EXPECT_TRUE(mentions(refusal(question), "less than an element"));
}

struct Outcome {
  int code = -1;
  std::string out;
};

Outcome run(const std::string& arguments, const std::string& environment = "") {
  Outcome outcome;
  FILE* const pipe =
      popen((environment + "timeout 60 " + std::string(WEFT_INFO) + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const size_t got = fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.out.append(buffer.data(), got);
  outcome.code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

TEST(Program, SaysItInJsonToo) {
  const Outcome outcome = run("--topology --algorithms --json");
  EXPECT_EQ(outcome.code, 0);
  const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << outcome.out;
  EXPECT_GE(json["topology"]["cores"], 1);
  EXPECT_TRUE(json.contains("algorithms"));
  EXPECT_FALSE(json.contains("settings"));
}

// The manual said that the names of clusters are taken, and only paths were.
TEST(Program, KnowsClustersByName) {
  const Outcome named = run("--explain allreduce 4M -n 16 --nodes 2 --machine p4d");
  EXPECT_EQ(named.code, 0) << named.out;
  EXPECT_TRUE(mentions(named.out, "machine p4d.24xlarge: ")) << named.out;
  EXPECT_TRUE(mentions(named.out, "the machine is a node of the cluster p4d.24xlarge, read from "))
      << named.out;
  EXPECT_TRUE(mentions(named.out, "slow nodes, slow rails and incast are weft_sim's matter")) << named.out;
  const Outcome unknown = run("--explain allreduce 4M --machine p9");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(mentions(unknown.out, "there is no file p9, nor a description of that name in "))
      << unknown.out;
  EXPECT_TRUE(mentions(unknown.out, "known are ethernet, p3dn, p4d, p4de, p5")) << unknown.out;
}

// A file with a "machine" in it was read past its other keys.
TEST(Program, ReadsOrRefusesEveryKeyOfAMachinesFile) {
  const std::string path = ::testing::TempDir() + fmt::format("weft_info_{}.json", getpid());
  const auto ask = [&](const std::string& text) {
    std::ofstream(path) << text;
    return run("--explain allreduce 4M -n 16 --nodes 2 --machine " + path);
  };
  const auto refused = [&](const std::string& text, const std::string& words) {
    const Outcome outcome = ask(text);
    return outcome.code == 2 && mentions(outcome.out, words) && mentions(outcome.out, path);
  };
  EXPECT_TRUE(refused(R"({"node": 2, "machine": {}})", "unknown key \"node\"; did you mean \"nodes\"?"));
  EXPECT_TRUE(refused(R"({"rail": 2})", "unknown key \"rail\"; did you mean \"rails\"?"));
  EXPECT_EQ(ask(R"({"rails": 2})").code, 0);

  std::string folder = (std::filesystem::temp_directory_path() / "weft-info-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  model::Facts facts;
  facts.host = {{"cpu", "a"}};
  ASSERT_TRUE(model::keep(folder, facts, model::Machine()).ok());
  const std::string kept = model::cache_file(folder, facts);
  const Outcome cached = run("--explain allreduce 4M -n 16 --nodes 2 --machine " + kept);
  EXPECT_EQ(cached.code, 0) << cached.out;
  EXPECT_TRUE(mentions(cached.out, "read from " + kept)) << cached.out;
  EXPECT_TRUE(refused(R"({"format": 1, "facts": {}, "machine": {}})", "it has format 1, this library reads"));
  std::filesystem::remove_all(folder);
  std::filesystem::remove(path);
}

TEST(Program, NamesTheDoubtOfAMeasurement) {
  std::string folder = (std::filesystem::temp_directory_path() / "weft-info-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const Result<topology::Host>& host = topology::discover_host();
  ASSERT_TRUE(host.ok()) << host.status().message();
  model::Facts facts;
  facts.host = model::host_facts(*host);
  ASSERT_TRUE(model::keep(folder, facts, model::Machine(), "rows took 4 to 3000 µs").ok());
  setenv("WEFT_TUNE_CACHE", folder.c_str(), 1);
  const Outcome outcome = run("--tuning");
  unsetenv("WEFT_TUNE_CACHE");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(
      mentions(outcome.out, "doubtful: rows took 4 to 3000 µs; not used, the next job measures again"))
      << outcome.out;
}

// After a job of weft_run --nodes, whose nodes share a machine, a question about nodes took its measurement,
// or took none, by a crowding that was reckoned as for nodes of their own; and never said what nodes it was
// about.
TEST(Explain, TellsPretendedNodesFromMachinesOfTheirOwn) {
  std::string folder = (std::filesystem::temp_directory_path() / "weft-info-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const Result<topology::Host>& host = topology::discover_host();
  ASSERT_TRUE(host.ok()) << host.status().message();
  const int cpus = host->cpu_quota > 0
                       ? std::max(static_cast<int>(std::min<double>(
                                      static_cast<double>(host->allowed_cpus().size()), host->cpu_quota)),
                                  1)
                       : static_cast<int>(host->allowed_cpus().size());
  const int ranks = 4 * cpus;  // two nodes of 2 · cpus ranks
  model::Facts facts;
  facts.host = model::host_facts(*host);
  facts.active = cpus;
  facts.intra = "shared memory, single copy";
  facts.inter = "tcp";
  const auto keep = [&](bool one_machine, double crowding, double alpha_us) {
    facts.one_machine = one_machine;
    facts.crowding = crowding;
    model::Machine machine;
    machine.inter.alpha_us = alpha_us;
    machine.inter.overhead_us = 0;
    ASSERT_TRUE(model::keep(folder, facts, machine).ok());
  };
  const auto ask = [&](const std::string& more) {
    return run(fmt::format("--explain allreduce 64K -n {} --nodes 2 {}", ranks, more),
               "WEFT_TUNE=auto WEFT_NET=tcp WEFT_LOG=none WEFT_TUNE_CACHE=" + folder + " ")
        .out;
  };
  keep(true, 4, 111);
  std::string apart = ask(""), shared = ask("--one-machine");
  EXPECT_TRUE(mentions(shared, "the machine is measured")) << shared;
  EXPECT_TRUE(mentions(shared, ", for nodes that are pretended on this one machine, kept in")) << shared;
  EXPECT_TRUE(mentions(shared, "between nodes 111 ")) << shared;
  EXPECT_TRUE(mentions(apart,
                       "as this host states, for nodes that are machines of their own like this host; such a "
                       "job would measure it first (measured were nodes pretended on this machine: "
                       "--one-machine)"))
      << apart;
  keep(false, 2, 222);
  apart = ask("");
  EXPECT_TRUE(mentions(apart, "between nodes 222 ")) << apart;
  EXPECT_TRUE(mentions(apart, ", for nodes that are machines of their own like this host, kept in")) << apart;
  EXPECT_TRUE(mentions(ask("--one-machine"), "between nodes 111 "));
  keep(true, 2, 333);  // of half as many ranks on the machine
  EXPECT_TRUE(mentions(ask("--one-machine"), "between nodes 111 "));
  EXPECT_TRUE(mentions(ask(""), "between nodes 222 "));
  std::filesystem::remove_all(folder);
}

TEST(Program, SaysWhatCudaOffers) {
  const std::string fake = "WEFT_LOG=none WEFT_CUDA_LIBRARY=" WEFT_FAKE_CUDA " ";
  const Outcome most = run("--cuda", fake);
  EXPECT_EQ(most.code, 0) << most.out;
  EXPECT_TRUE(mentions(
      most.out,
      "a driver for CUDA 13.0 with 2 devices\nCUDA device 0 (fake device, compute capability 9.0)\n"))
      << most.out;
  for (const char* line : {"  stream memory operations   yes\n", "  CUDA graphs                yes\n",
                           "  CUDA IPC                   yes\n", "CUDA device 1 (fake device"})
    EXPECT_TRUE(mentions(most.out, line)) << line << " is not in\n" << most.out;

  const Outcome least = run(
      "--cuda",
      fake + "FAKE_CUDA_MEMOPS=0 FAKE_CUDA_DEVICES=1 WEFT_CUDA_IPC=off WEFT_CUDA_REDUCE=cpu WEFT_NET=tcp ");
  for (const char* line :
       {"13.0 with 1 device\n",
        "  stream memory operations   no, calls return only when the result is there: ",
        "  CUDA graphs                no, a call in a capture is an error: ",
        "  CUDA IPC                   no, peers' memory is staged in pinned host memory: WEFT_CUDA_IPC is "
        "off\n",
        "  reduction kernels          no, reductions are the CPU's: WEFT_CUDA_REDUCE is cpu\n",
        "  GPUDirect                  no, what goes to other nodes is staged: nodes meet over sockets"})
    EXPECT_TRUE(mentions(least.out, line)) << line << " is not in\n" << least.out;

  // Where streams that wait could keep away the work for which they wait, they do not.
  const char* const kNotWaiting =
      "  stream memory operations   no, calls return only when the result is there: ";
  const Outcome few = run("--cuda", fake + "CUDA_DEVICE_MAX_CONNECTIONS=1 ");
  EXPECT_TRUE(mentions(few.out, kNotWaiting + std::string("CUDA_DEVICE_MAX_CONNECTIONS is 1"))) << few.out;
  const Outcome lazy = run("--cuda", fake + "CUDA_MODULE_LOADING=LAZY ");
  EXPECT_TRUE(mentions(lazy.out, "set CUDA_MODULE_LOADING=EAGER before CUDA is initialized")) << lazy.out;
  const Outcome wanted = run("--cuda", fake + "CUDA_MODULE_LOADING=LAZY WEFT_CUDA_MEMOPS=on ");
  EXPECT_TRUE(mentions(wanted.out, "  stream memory operations   yes\n")) << wanted.out;

  const Outcome one_lacks = run("--cuda --json", fake + "FAKE_CUDA_UNADDRESSED=1 ");
  const auto json = nlohmann::json::parse(one_lacks.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << one_lacks.out;
  EXPECT_EQ(json["cuda"]["devices"][0]["graphs"], true);
  EXPECT_TRUE(mentions(json["cuda"]["devices"][1]["error"], "no addresses in common")) << one_lacks.out;

  const Outcome none = run("--cuda", "WEFT_CUDA_LIBRARY=/nowhere/libcuda.so.1 ");
  EXPECT_EQ(none.code, 0);
  EXPECT_TRUE(mentions(none.out, "CUDA's driver cannot be loaded")) << none.out;
}

TEST(Program, SaysItsVersion) {
  const Outcome outcome = run("--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.find("weft_info 0."), 0u) << outcome.out;
}

TEST(Program, SaysWhatIsNotUtf8InJsonToo) {
  setenv("WEFT_HOSTID", "a\xff", 1);
  const Outcome outcome = run("--settings --json");
  unsetenv("WEFT_HOSTID");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(nlohmann::json::accept(outcome.out)) << outcome.out;
}

// The folder is shared where it is /tmp.
TEST(Program, IsNotHeldUpByAFifoAmongTheTallies) {
  std::string folder = (std::filesystem::temp_directory_path() / "weft-info-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(mkfifo((folder + "/weft-nccl.1").c_str(), 0600), 0);
  setenv("WEFT_RECORDER_DIR", folder.c_str(), 1);
  const Outcome outcome = run("--nccl");
  setenv("WEFT_RECORDER_DIR", "none", 1);  // as CTest has set it
  std::filesystem::remove_all(folder);
  EXPECT_EQ(outcome.code, 0) << outcome.out;
}

/// What weft_info --explain says of an AllReduce on four nodes, with `algo` as WEFT_ALGO.
nlohmann::json explained(const std::string& algo, std::string* text = nullptr) {
  setenv("WEFT_ALGO", algo.c_str(), 1);
  const std::string question = "--explain allreduce 64K -n 8 --nodes 4";
  if (text) *text = run(question).out;
  setenv("WEFT_LOG", "none", 1);  // the log would stand beside the JSON
  const Outcome json = run(question + " --json");
  unsetenv("WEFT_LOG");
  unsetenv("WEFT_ALGO");
  EXPECT_EQ(json.code, 0) << json.out;
  const auto parsed = nlohmann::json::parse(json.out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << json.out;
  return parsed.is_discarded() ? nlohmann::json() : parsed["explain"];
}

TEST(Explain, PredictsATimeForEveryCandidateThatFits) {
  const auto found = explained("");
  std::set<std::string> named;
  int fits = 0;
  for (const auto& candidate : found["candidates"]) {
    named.insert(candidate["algorithm"].get<std::string>());
    ASSERT_NE(candidate.contains("predicted_us"), candidate.contains("unfit")) << candidate;
    if (candidate.contains("unfit")) {
      EXPECT_FALSE(candidate["unfit"].get<std::string>().empty()) << candidate;
    } else {
      ++fits;
      EXPECT_GT(candidate["predicted_us"], 0) << candidate;
      EXPECT_GE(candidate["predicted_us"], found["used"]["predicted_us"]) << candidate;
    }
  }
  EXPECT_GT(fits, 1);
  for (const plan::Algorithm& algorithm : plan::algorithms()) {
    if (algorithm.collective != plan::Collective::all_reduce) continue;
    EXPECT_TRUE(named.contains(std::string(algorithm.name))) << algorithm.name;
  }
}

TEST(Explain, TellsPinsAndBans) {
  std::string text;
  const std::string best = explained("")["used"]["algorithm"];
  const std::string other = best == "ring" ? "all_to_all" : "ring";
  const auto pinned = explained("allreduce=" + other, &text);
  EXPECT_EQ(pinned["used"]["algorithm"], other);
  EXPECT_TRUE(mentions(pinned["used"]["why"].get<std::string>(), "pinned by WEFT_ALGO (\"allreduce=" + other))
      << pinned["used"];
  EXPECT_TRUE(mentions(text, "used: " + other + " (pinned by WEFT_ALGO")) << text;

  const auto banned = explained("allreduce=!" + best, &text);
  EXPECT_NE(banned["used"]["algorithm"], best);
  bool told = false;
  for (const auto& candidate : banned["candidates"]) {
    if (candidate["algorithm"] != best) continue;
    told = true;
    EXPECT_EQ(candidate.value("unfit", ""), "banned by WEFT_ALGO (\"allreduce=!" + best + "\")");
  }
  EXPECT_TRUE(told);
  EXPECT_TRUE(mentions(text, "banned by WEFT_ALGO")) << text;

  const auto unfit = explained("allreduce=direct", &text);
  EXPECT_EQ(unfit["used"]["algorithm"], best) << "nodes do not share memory";
  EXPECT_TRUE(mentions(text, "\"allreduce=direct\" does not fit AllReduce: ")) << text;
}

TEST(Program, EndsWithTwoOnWrongUse) {
  for (const char* wrong :
       {"--frob", "--explain allreduce", "--explain allreduce 4M -n 0", "--rank 1", "-n 4"}) {
    const Outcome outcome = run(wrong);
    EXPECT_EQ(outcome.code, 2) << wrong;
    EXPECT_TRUE(outcome.out.starts_with("weft_info: ")) << outcome.out;
  }
}

TEST(Program, SaysWhatAnOptionTakes) {
  EXPECT_EQ(
      run("--explain allreduce").out,
      "weft_info: --explain takes COLLECTIVE SIZE: At least 2 required but received 1; weft_info --help "
      "lists the options\n");
  EXPECT_TRUE(mentions(run("--explain allreduce 4M -n many").out, "--ranks is many, must be a whole number"));
}

TEST(Program, ShowsRightSettingsBesideAWrongOne) {
  setenv("WEFT_FROB", "1", 1);
  const Outcome outcome = run("--settings");
  unsetenv("WEFT_FROB");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(mentions(outcome.out, "WEFT_ALGO"));
  EXPECT_TRUE(mentions(outcome.out, "WEFT_FROB"));
}

TEST(Program, SaysThatAPinIsWrongWhateverItShows) {
  setenv("WEFT_ALGO", "allreduce=rnig", 1);
  const Outcome outcome = run("--settings");
  unsetenv("WEFT_ALGO");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(mentions(outcome.out, "weft_info: WEFT_ALGO: \"allreduce=rnig\": ")) << outcome.out;
}

}  // namespace
}  // namespace weft::info
