// What users and scripts rely on in the perf tools: columns, exit codes, JSON.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Outcome {
  int code = -1;
  std::string output;  // both streams
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* const pipe = popen(("( " + command + " ) 2>&1").c_str(), "r");
  if (!pipe) return outcome;
  char chunk[4096];
  while (const size_t n = fread(chunk, 1, sizeof chunk, pipe)) outcome.output.append(chunk, n);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

Outcome perf(int ranks, const std::string& arguments) {
  return shell(std::string(WEFT_BIN "/weft_run --no-label --timeout 60 -n ") + std::to_string(ranks) +
               " " WEFT_BIN "/" + arguments);
}

/// The rows of the table, in words. A line of the launcher's is none: it may come before a rank's last rows.
std::vector<std::vector<std::string>> rows_of(const std::string& output) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#' || line.starts_with("weft_run: ")) continue;
    std::istringstream words(line);
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  return rows;
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PerfTools, PrintTheColumnsOfNcclTests) {
  const Outcome run = perf(2, "all_reduce_perf -b 8 -e 32 -f 2 -n 2 -w 1 -d half -o max");
  ASSERT_EQ(run.code, 0) << run.output;
  const auto rows = rows_of(run.output);
  ASSERT_EQ(rows.size(), 3u) << run.output;
  ASSERT_EQ(rows[1].size(), 13u);
  EXPECT_EQ(std::vector<std::string>(rows[1].begin(), rows[1].begin() + 5),
            (std::vector<std::string>{"16", "8", "half", "max", "-1"}));
  EXPECT_EQ(rows[1][8], "0");
  EXPECT_EQ(rows[1][12], "0");
  EXPECT_TRUE(mentions(run.output, "# Out of bounds values : 0 OK\n"));
  EXPECT_TRUE(mentions(run.output, "# Avg bus bandwidth    : "));
  EXPECT_TRUE(mentions(run.output, "#  Rank  1 Group  0 Pid "));
}

TEST(PerfTools, SayNotApplicableWhereNothingIsCheckedOrInPlace) {
  const auto unchecked = rows_of(perf(2, "all_gather_perf -b 64 -e 64 -n 1 -c 0").output);
  ASSERT_EQ(unchecked.size(), 1u);
  EXPECT_EQ(unchecked[0].at(8), "N/A");
  EXPECT_EQ(unchecked[0].at(12), "N/A");
  const auto sendrecv = rows_of(perf(2, "sendrecv_perf -b 64 -e 64 -n 1").output);
  ASSERT_EQ(sendrecv.size(), 1u);
  EXPECT_EQ(sendrecv[0].at(8), "0");
  EXPECT_EQ(sendrecv[0].at(9), "N/A");
}

TEST(PerfTools, MeasureNccl) {
  const Outcome run = shell("WEFT_NCCL_LIBRARY=" WEFT_FAKE_NCCL " " WEFT_BIN
                            "/all_reduce_perf --backend nccl -b 8 -e 64 -f 8 -n 2 -w 1");
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(mentions(run.output, "# Algorithms           : nccl (8 B to 64 B)")) << run.output;
  EXPECT_TRUE(mentions(run.output, "# Transports           : NCCL")) << run.output;
}

TEST(PerfTools, MeasureWhoeverTakesGpuMemory) {
  const std::string fakes = "WEFT_CUDA_LIBRARY=" WEFT_FAKE_CUDA " WEFT_NCCL_LIBRARY=" WEFT_FAKE_NCCL " ";
  const std::string tool = WEFT_BIN "/all_reduce_perf --device cuda -b 8 -e 64 -f 8 -n 2 -w 1 --backend ";
  const Outcome nccl = shell(fakes + tool + "nccl");
  EXPECT_EQ(nccl.code, 0) << nccl.output;
  EXPECT_TRUE(mentions(nccl.output, "# Algorithms           : nccl (8 B to 64 B)")) << nccl.output;
  EXPECT_TRUE(mentions(nccl.output, "# Out of bounds values : 0 OK")) << nccl.output;
  const Outcome weft = shell(fakes + tool + "weft");
  EXPECT_EQ(weft.code, 0) << weft.output;
  EXPECT_FALSE(mentions(weft.output, "nccl (")) << weft.output;
  EXPECT_TRUE(mentions(weft.output, "# Out of bounds values : 0 OK")) << weft.output;
  const Outcome mpi = shell(fakes + tool + "mpi");
  EXPECT_EQ(mpi.code, 2);
  EXPECT_TRUE(mentions(mpi.output, "leave --device at host")) << mpi.output;
}

/// Every tool over NCCL; whose AlltoAll cannot be in place.
TEST(PerfTools, MeasureEveryCollectiveOfNccl) {
  for (const std::string collective : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                                       "alltoall", "gather", "scatter", "sendrecv"}) {
    for (const std::string device : {"host", "cuda"}) {
      const Outcome run =
          shell("WEFT_CUDA_LIBRARY=" WEFT_FAKE_CUDA " WEFT_NCCL_LIBRARY=" WEFT_FAKE_NCCL " " WEFT_BIN "/" +
                collective + "_perf --backend nccl --device " + device + " -b 8 -e 64 -f 8 -n 2 -w 1");
      EXPECT_EQ(run.code, 0) << collective << ": " << run.output;
      EXPECT_TRUE(mentions(run.output, "nccl (8 B to 64 B)")) << collective << ": " << run.output;
      EXPECT_TRUE(mentions(run.output, "# Out of bounds values : 0 OK")) << collective << ": " << run.output;
      const auto rows = rows_of(run.output);
      ASSERT_EQ(rows.size(), 2u) << run.output;
      EXPECT_EQ(rows[0].at(9) == "N/A", collective == "alltoall" || collective == "sendrecv") << run.output;
    }
  }
  const Outcome by_setting = shell("WEFT_BACKEND=nccl WEFT_NCCL_LIBRARY=" WEFT_FAKE_NCCL " " WEFT_BIN
                                   "/alltoall_perf -b 64 -e 64 -n 1");
  EXPECT_EQ(by_setting.code, 0) << by_setting.output;
  EXPECT_EQ(rows_of(by_setting.output).at(0).at(9), "N/A");
}

TEST(PerfTools, MeasureBackendsInTurns) {
  const std::string tool = "WEFT_NCCL_LIBRARY=" WEFT_FAKE_NCCL " " WEFT_BIN
                           "/all_reduce_perf -b 8 -e 64 -f 8 -n 2 -w 1 -o sum -J /dev/stdout --backend ";
  const Outcome run = shell(tool + "weft,nccl");
  ASSERT_EQ(run.code, 0) << run.output;
  const auto rows = rows_of(run.output.substr(0, run.output.find("# Avg bus bandwidth")));
  ASSERT_EQ(rows.size(), 4u) << run.output;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i].front(), i < 2 ? "8" : "64") << run.output;
    EXPECT_EQ(rows[i].back(), i % 2 ? "nccl" : "weft") << run.output;
  }
  EXPECT_TRUE(mentions(run.output, "nccl (8 B to 64 B)")) << run.output;
  EXPECT_TRUE(mentions(run.output, "# Avg bus bandwidth    : 0 (weft), 0 (nccl)\n")) << run.output;
  EXPECT_TRUE(mentions(run.output, "\"backend\": \"weft,nccl\"")) << run.output;
  EXPECT_TRUE(mentions(run.output, "\"backend\": \"nccl\"")) << run.output;
  EXPECT_TRUE(mentions(shell(tool + "weft,weft").output, "names one twice"));
  EXPECT_TRUE(mentions(shell(tool + "weft,nccl -R 1").output, "leave -R at 0"));
  EXPECT_EQ(shell(tool + "weft,gloo").code, 2);
}

TEST(PerfTools, MeasureCudaGraphs) {
  const std::string fake = "WEFT_CUDA_LIBRARY=" WEFT_FAKE_CUDA " ";
  const std::string tool = WEFT_BIN "/all_reduce_perf --device cuda -b 8 -e 64 -f 8 -n 2 -w 1 -m 2 -G 3";
  const Outcome run = shell(fake + WEFT_BIN "/weft_run -n 2 " + tool);
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(mentions(run.output, " graph: 3\n")) << run.output;
  EXPECT_TRUE(mentions(run.output, "# Out of bounds values : 0 OK")) << run.output;
  EXPECT_FALSE(mentions(run.output, "N/A")) << run.output;
  // Only a capture is refused without such operations.
  const Outcome refused = shell("WEFT_CUDA_MEMOPS=off " + fake + tool);
  EXPECT_EQ(refused.code, 3) << refused.output;
  EXPECT_TRUE(mentions(refused.output, "captured")) << refused.output;
  const Outcome on_host = shell(WEFT_BIN "/all_reduce_perf -G 1 -b 8");
  EXPECT_EQ(on_host.code, 2);
  EXPECT_TRUE(mentions(on_host.output, "set --device cuda")) << on_host.output;
}

TEST(PerfTools, SayWhatIsMissingForAnotherBackend) {
  const Outcome no_nccl =
      shell("WEFT_NCCL_LIBRARY=/nowhere/nccl.so " WEFT_BIN "/all_reduce_perf --backend nccl -b 8");
  EXPECT_EQ(no_nccl.code, 3);
  EXPECT_TRUE(mentions(no_nccl.output,
                       "rank 0 cannot use NCCL: WEFT_NCCL_LIBRARY: /nowhere/nccl.so cannot be opened"))
      << no_nccl.output;
  const Outcome no_launcher =
      shell("env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE " WEFT_BIN "/all_reduce_perf --backend mpi -b 8");
  EXPECT_EQ(no_launcher.code, 3);
  EXPECT_TRUE(mentions(no_launcher.output, "wants ranks that mpirun or mpiexec has started"))
      << no_launcher.output;
  const Outcome streams = shell(WEFT_BIN "/all_reduce_perf --backend mpi -z 0 -b 8");
  EXPECT_EQ(streams.code, 2);
  EXPECT_TRUE(mentions(streams.output, "blocking calls only")) << streams.output;
}

TEST(PerfTools, SayOnceWhichCallFailed) {
  for (const std::string tool : {"all_reduce_perf -b 8", "startup_perf"}) {
    const Outcome misspelt = shell("WEFT_TRANSPORTS=tcp " WEFT_BIN "/" + tool);
    EXPECT_EQ(misspelt.code, 3);
    const Outcome half = shell("WEFT_RANK=0 " WEFT_BIN "/" + tool);
    EXPECT_EQ(half.code, 3);
    const size_t first = half.output.find("weftCommInitEnv: ");
    EXPECT_EQ(first, 0u) << half.output;
    EXPECT_EQ(half.output.find("weftCommInitEnv: ", first + 1), std::string::npos) << half.output;
  }
}

TEST(PerfTools, SayThatThereIsNoDriver) {
  const Outcome none =
      shell("WEFT_CUDA_LIBRARY=/nowhere/libcuda.so " WEFT_BIN "/all_reduce_perf --device cuda -b 8");
  EXPECT_EQ(none.code, 3);
  EXPECT_TRUE(mentions(none.output, "--device cuda: there is no CUDA driver here (/nowhere/libcuda.so"))
      << none.output;
  EXPECT_TRUE(mentions(none.output, "leave --device out")) << none.output;
}

/// Every collective, in and out of place, with its results checked.
[[maybe_unused]] void measure_mpi(const std::string& launcher, int root) {
  for (const std::string tool : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                                 "alltoall", "gather", "scatter", "sendrecv"}) {
    const Outcome run = shell(launcher + " " WEFT_BIN "/" + tool +
                              "_perf --backend mpi -b 8 -e 64K -f 90 -n 2 -w 1 -r " + std::to_string(root));
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_TRUE(mentions(run.output, "# Algorithms           : mpi")) << run.output;
    EXPECT_TRUE(mentions(run.output, "# Out of bounds values : 0 OK")) << run.output;
  }
  const Outcome turns = shell(launcher + " " WEFT_BIN "/reduce_perf --backend weft,mpi -b 8 -e 8 -n 2 -w 1");
  EXPECT_EQ(turns.code, 0) << turns.output;
  const auto rows = rows_of(turns.output);
  ASSERT_EQ(rows.size(), 2u) << turns.output;
  EXPECT_EQ(rows[0].back() + " " + rows[1].back(), "weft mpi");
  EXPECT_TRUE(mentions(turns.output, "# Out of bounds values : 0 OK")) << turns.output;
  const Outcome average = shell(launcher + " " WEFT_BIN "/all_reduce_perf --backend mpi -b 8 -e 8 -o avg");
  EXPECT_NE(average.code, 0);
  EXPECT_TRUE(mentions(average.output, "MPI has no average")) << average.output;
}

#ifdef WEFT_HAS_openmpi
TEST(PerfTools, MeasureOpenMpi) { measure_mpi("mpirun.openmpi --allow-run-as-root --oversubscribe -n 3", 1); }
#endif
#ifdef WEFT_HAS_mpich
// MPICH 4.0.2 does not survive MPI_Reduce of 64 KiB in place at a root other than 0, called by any program.
TEST(PerfTools, MeasureMpich) { measure_mpi("mpiexec.hydra -n 2", 0); }
#endif

TEST(PerfTools, TakeTypesByTheNamesOfOthers) {
  for (const auto& [given, shown] : {std::pair{"bf16", "bfloat16"},
                                     {"bfloat16", "bfloat16"},
                                     {"fp16", "half"},
                                     {"half", "half"},
                                     {"fp8e4m3", "f8e4m3"}}) {
    const Outcome run = perf(2, std::string("all_reduce_perf -b 64 -e 64 -n 1 -w 0 -o avg -d ") + given);
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_TRUE(mentions(run.output, std::string(" ") + shown + " ")) << given << ":\n" << run.output;
  }
}

TEST(PerfTools, FailWhenResultsAreWrong) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer wants to be the first library of a program";
#endif
  setenv("LD_PRELOAD", WEFT_CORRUPTER, 1);
  const Outcome run = perf(2, "all_reduce_perf -b 256 -e 1K -f 4 -n 1 -w 0");
  unsetenv("LD_PRELOAD");
  EXPECT_EQ(run.code, 1) << run.output;
  const auto rows = rows_of(run.output);
  ASSERT_GE(rows.size(), 2u) << run.output;
  EXPECT_EQ(rows[0].at(8), "0");  // 64 elements
  EXPECT_EQ(rows[1].at(8), "1");  // 256 elements, one of them wrong
  EXPECT_TRUE(mentions(run.output, "# Out of bounds values : 2 FAILED"));
}

TEST(PerfTools, MeasureOnStreamsInGroupsAndInRegisteredMemory) {
  for (const char* options :
       {"-z 0", "-z 0 -m 3", "-m 2", "-R 1", "--rotate 1", "-u 1", "-a 3", "-N 2", "-C 1", "-M 1"}) {
    const Outcome run = perf(2, std::string("reduce_scatter_perf -b 1K -e 64K -f 8 -n 3 -w 1 ") + options);
    EXPECT_EQ(run.code, 0) << options << "\n" << run.output;
  }
}

/// Runs a tool with --json, and returns what it has written.
nlohmann::json json_of(int ranks, const std::string& arguments) {
  char path[] = "/tmp/weft_perf_XXXXXX";
  const int fd = mkstemp(path);
  EXPECT_GE(fd, 0);
  close(fd);
  const Outcome run = perf(ranks, arguments + " --json " + path);
  std::ifstream file(path);
  auto document = nlohmann::json::parse(file, nullptr, false);
  unlink(path);
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_FALSE(document.is_discarded());
  return document;
}

TEST(PerfTools, SayBeforeTheyMeasureThatJsonCannotBeWritten) {
  for (const char* tool : {"all_gather_perf -b 1K -e 1K -n 2", "overlap_perf --sizes 64K -n 2"}) {
    const Outcome run = perf(1, std::string(tool) + " -J /nowhere/results.json");
    EXPECT_EQ(run.code, 2) << run.output;
    EXPECT_TRUE(mentions(run.output, "cannot write /nowhere/results.json: No such file")) << run.output;
    EXPECT_FALSE(mentions(run.output, "Weft ")) << "it has begun: " << run.output;
  }
}

TEST(PerfTools, SayTheirVersion) {
  for (const std::string tool : {"all_gather_perf", "overlap_perf", "startup_perf"}) {
    const Outcome run = perf(2, tool + " --version");
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_EQ(run.output.find(tool + " 0."), 0u) << run.output;
    EXPECT_EQ(run.output.find('\n'), run.output.size() - 1) << "one rank says it: " << run.output;
  }
}

TEST(PerfTools, WriteJson) {
  const auto document = json_of(2, "all_gather_perf -b 1K -e 4K -f 4 -n 2");
  EXPECT_EQ(document["collective"], "AllGather");
  EXPECT_EQ(document["ranks"].size(), 2u);
  ASSERT_EQ(document["results"].size(), 2u);
  const auto& row = document["results"][1];
  EXPECT_EQ(row["size"], 4096);
  EXPECT_EQ(row["count"], 512);
  EXPECT_NE(row["algorithm"], "");
  EXPECT_EQ(row["in_place"]["nwrong"], 0);
  EXPECT_GT(row["out_of_place"]["time"].get<double>(), 0);
  EXPECT_EQ(document["out_of_bounds"]["okay"], true);
}

TEST(PerfTools, MeasureListedSizesForATime) {
  const auto document = json_of(2, "all_reduce_perf --sizes 4M,8,1K --time_ms 5 --in_place 0");
  const auto& rows = document["results"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["size"], 4 << 20);
  EXPECT_EQ(rows[1]["size"], 8);
  EXPECT_EQ(rows[2]["in_place"], nullptr);
  for (const auto& row : rows) {
    EXPECT_GE(row["out_of_place"]["iterations"].get<int>(), 3);
    EXPECT_LE(row["out_of_place"]["iterations"].get<int>(), 200000);
    EXPECT_EQ(row["out_of_place"]["nwrong"], 0);
  }
}

TEST(PerfTools, TellWhatCpuTimeAByteCosts) {
  const auto row = json_of(2, "all_reduce_perf -b 16M -e 16M -n 10")["results"][0]["out_of_place"];
  const double cpu_us = row["cpu_us"].get<double>();
  EXPECT_GT(cpu_us, 0);
  EXPECT_NEAR(row["cpu_s_per_gb"].get<double>(), cpu_us * 1e-6 / (16 << 20) * 1e9, 1e-3 * cpu_us);
}

TEST(PerfTools, MeasureOverlap) {
  const auto document = json_of(2, "overlap_perf --sizes 64K,1M -n 2");
  ASSERT_EQ(document["overlap"].size(), 4u);  // AllReduce and AllGather
  ASSERT_EQ(document["two_streams"].size(), 2u);
  for (const auto& row : document["overlap"]) {
    EXPECT_GT(row["transfer_us"].get<double>(), 0);
    EXPECT_GT(row["compute_us"].get<double>(), 0);
    EXPECT_TRUE(row["hidden_asleep"].is_number());
    EXPECT_TRUE(row["slowed"].is_number());
  }
  EXPECT_EQ(document["two_streams"][1]["size"], 1 << 20);
  EXPECT_GT(document["two_streams"][1]["ratio"].get<double>(), 0);
}

TEST(PerfTools, MeasureTheStart) {
  const Outcome processes = perf(2, "startup_perf --json");
  EXPECT_EQ(processes.code, 0);
  EXPECT_EQ(nlohmann::json::parse(processes.output, nullptr, false).value("ranks", 0), 2) << processes.output;
  const Outcome threads = perf(1, "startup_perf --threads 5");
  EXPECT_EQ(threads.code, 0);
  EXPECT_TRUE(mentions(threads.output, "5 ranks: ")) << threads.output;
}

TEST(PerfTools, ExplainWrongUsage) {
  const struct {
    const char* arguments;
    const char* sentence;
  } cases[] = {
      {"all_reduce_perf -b 12Q", "--minbytes: is 12Q, must be a number of bytes"},
      {"all_reduce_perf -b 2M -e 1M", "--minbytes: is 2M, must not be more than --maxbytes, 1M"},
      {"all_reduce_perf -o plus", "--op: is plus, must be one of"},
      {"all_reduce_perf -d float7", "--datatype: is float7, must be one of"},
      {"all_reduce_perf -n 0", "--iters"},
      {"all_reduce_perf -g 2", "--ngpus"},
      {"broadcast_perf -r -1", "--root: is -1, must be a rank or all"},
      {"broadcast_perf -r 1 -b 8 -e 8", "--root is 1, must be below the number of ranks, 1"},
      {"all_reduce_perf --nonsense", "--nonsense"},
      {"all_reduce_perf --sizes 8,9Z", "--sizes: is 9Z, must be a number of bytes"},
      {"all_reduce_perf --time_ms -1", "--time_ms"},
      {"overlap_perf --sizes x", "--sizes: is x, must be a number of bytes"},
      {"overlap_perf --factor 0", "--factor"},
      {"startup_perf --threads 0", "--threads"},
  };
  for (const auto& [arguments, sentence] : cases) {
    const Outcome run = perf(1, arguments);
    EXPECT_EQ(run.code, 2) << arguments << "\n" << run.output;
    EXPECT_TRUE(mentions(run.output, sentence)) << run.output;
  }
}

TEST(PerfTools, ExplainThemselves) {
  const Outcome run = perf(3, "all_reduce_perf --help");
  EXPECT_EQ(run.code, 0);
  EXPECT_TRUE(mentions(run.output, "--stepfactor"));
  EXPECT_EQ(run.output.find("--stepfactor"), run.output.rfind("--stepfactor"))
      << "printed by more than one rank";
}

}  // namespace
