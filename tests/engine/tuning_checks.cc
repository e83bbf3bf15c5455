// Measuring at creation, by real processes: what is kept, what is used again, and that nothing of it keeps a
// job from running.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TuningJob : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "weft-tuning-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  /// A job of ranks that are processes and check their results; its log.
  std::string job(const std::string& shape, const std::string& environment = "") {
    return log_of(environment + " " WEFT_RUN " --no-label --timeout 60 " + shape +
                  " " WEFT_PERF_TOOL " -b 64 -e 64K -f 32 -n 2");
  }

  std::string log_of(const std::string& program) {
    const std::string command =
        "( env -u WEFT_TUNE WEFT_LOG=info WEFT_TUNE_CACHE=" + directory_ + "/cache " + program + " ) 2>&1";
    FILE* const pipe = popen(command.c_str(), "r");
    std::string output;
    char chunk[4096];
    while (const size_t n = fread(chunk, 1, sizeof chunk, pipe)) output.append(chunk, n);
    const int status = pclose(pipe);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command << "\n" << output;
    return output;
  }

  /// Whether a job has not kept what it measured, because other programs keep the cores busy.
  static bool doubtful(const std::string& output) { return mentions(output, " measures again"); }

  /// The log of the first job whose measurement is not doubtful; on a busy machine all ten may be.
  std::string measuring_job(const std::string& shape) {
    std::string output;
    for (int attempt = 0; attempt < 10; ++attempt) {
      output = job(shape);
      if (!doubtful(output)) break;
    }
    return output;
  }

  std::vector<std::filesystem::path> kept() const {
    std::vector<std::filesystem::path> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/cache", error))
      files.push_back(entry.path());
    return files;
  }

  std::string directory_;
};

TEST_F(TuningJob, MeasuresOnceAndUsesItAgain) {
  const std::string first = measuring_job("-n 2");
  if (doubtful(first)) GTEST_SKIP() << "other programs keep the cores busy";
  EXPECT_TRUE(mentions(first, "measuring took ")) << first;
  ASSERT_EQ(kept().size(), 1u);
  const std::string second = job("-n 2");
  EXPECT_TRUE(mentions(second, "measured machine from " + kept()[0].string())) << second;
  EXPECT_FALSE(mentions(second, "measuring took ")) << second;
  EXPECT_TRUE(mentions(job("-n 2", "WEFT_TUNE=refresh"), "measuring took "));
  EXPECT_FALSE(mentions(job("-n 2", "WEFT_TUNE=off"), "measured machine"));
}

/// What ranks that are threads measured, who read each other's memory without a system call, made processes
/// choose plans that took up to 1.7 times as long as others.
TEST_F(TuningJob, ProcessesDoNotUseWhatThreadsMeasured) {
  for (int attempt = 0; attempt < 10 && kept().empty(); ++attempt) log_of(WEFT_STARTUP_TOOL " --threads 2");
  ASSERT_EQ(kept().size(), 1u);
  const std::string processes = job("-n 2");
  EXPECT_FALSE(mentions(processes, "measured machine from ")) << processes;
  EXPECT_TRUE(mentions(processes, "measuring took ")) << processes;
}

TEST_F(TuningJob, MeasuresTheNetworkBetweenPretendedNodes) {
  // Where other programs keep the cores busy a link may not be measured in time; then nothing is kept.
  for (int attempt = 0; attempt < 15 && kept().empty(); ++attempt) {
    const std::string output = job("-n 4 --nodes 2");
    EXPECT_EQ(mentions(output, "could not be measured"), kept().empty()) << output;
  }
  ASSERT_EQ(kept().size(), 1u);
  const auto json = nlohmann::json::parse(std::ifstream(kept()[0]));
  EXPECT_EQ(json["facts"]["one_machine"], true);
  EXPECT_NE(json["facts"]["inter"], "");
  EXPECT_GT(json["machine"]["nic_bytes_per_us"], 1);
}

TEST_F(TuningJob, MeasuresAnewWhereTheCacheIsDamaged) {
  if (doubtful(measuring_job("-n 2"))) GTEST_SKIP() << "other programs keep the cores busy";
  ASSERT_EQ(kept().size(), 1u);
  std::filesystem::resize_file(kept()[0], 100);
  const std::string output = job("-n 2");
  EXPECT_TRUE(mentions(output, "WARN tuning cache " + kept()[0].string() + ": it is damaged")) << output;
  EXPECT_TRUE(mentions(output, "measuring took ")) << output;
  if (doubtful(measuring_job("-n 2"))) GTEST_SKIP() << "other programs keep the cores busy";
  EXPECT_TRUE(mentions(job("-n 2"), "measured machine from "));
}

TEST_F(TuningJob, RunsWhereTheCacheCannotBeWritten) {
  std::ofstream(directory_ + "/cache") << "a file where the directory should be";
  const std::string output = measuring_job("-n 2");
  if (doubtful(output)) GTEST_SKIP() << "other programs keep the cores busy";
  EXPECT_TRUE(mentions(output, "WARN tuning cache: ")) << output;
  EXPECT_TRUE(mentions(output, "WEFT_TUNE_CACHE names another directory")) << output;
}

TEST_F(TuningJob, MeasuresWithoutKeeping) {
  EXPECT_TRUE(mentions(job("-n 2", "WEFT_TUNE_CACHE=none"), "measuring took "));
  EXPECT_TRUE(kept().empty());
}

TEST_F(TuningJob, MeasuresWithMoreRanksThanCores) { EXPECT_TRUE(mentions(job("-n 6"), "measuring took ")); }

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

/// The job does its work all the same. Each rank, a process here, says so once, though every size asks anew.
TEST_F(TuningJob, APinThatCannotDoTheJobIsToldOnceByEachRank) {
  const std::string told = " WARN WEFT_ALGO: \"allreduce=direct\" does not fit AllReduce: direct reads the ";
  const std::string output = job("-n 2 --nodes 2", "WEFT_TUNE=off WEFT_ALGO=allreduce=direct");
  EXPECT_EQ(count(output, told), 2) << output;
  EXPECT_EQ(count(output, "; using the next best"), 2) << output;
  EXPECT_EQ(count(job("-n 2", "WEFT_TUNE=off WEFT_ALGO=allreduce=direct"), told), 0) << "here it can";
}

}  // namespace
