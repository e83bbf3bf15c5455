// What the tests of the command share: shells, and a small dataset with a config.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>

#include "format/json_file.h"
#include "support.h"

namespace loom::testing {

struct Outcome {
  int code;
  std::string text;  // both outputs
};

inline Outcome shell(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  Outcome outcome{-1, ""};
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

inline Outcome loom(const std::string& arguments) { return shell(LOOM_PROGRAM " " + arguments); }

/// On so many ranks of one node, or of several pretended ones; those that remain go on when one dies, and
/// must end by themselves.
inline Outcome on_processes(int ranks, const std::string& command, int nodes = 1) {
  return shell(fmt::format(WEFT_RUN " -n {} --nodes {} --no-label --keep-going --timeout 120 {}", ranks,
                           nodes, command));
}

class Command : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 800; ++i) text += fmt::format("line {} of {}\n", i, i * 7 % 10);
    put_file(folder_ / "text.txt", text);
    const Outcome made = loom("tokenize " + (folder_ / "text.txt") + " --out " + (folder_ / "data"));
    ASSERT_EQ(made.code, 0) << made.text;
    const format::Json config = {
        {"model", {{"width", 32}, {"layers", 2}}},
        {"data", {{"folder", folder_ / "data"}, {"sequence_length", 16}, {"global_batch", 8}}},
        {"parallel", {{"threads", 1}}},
        {"optimizer", {{"schedule", "constant"}, {"warmup_steps", 2}}},
        {"run", {{"steps", 6}, {"out", folder_ / "run"}, {"checkpoint_every", 2}}}};
    LOOM_ASSERT_OK(format::write_json(folder_ / "config.json", config));
  }
  std::string config() const { return folder_ / "config.json"; }
  /// The command that trains with the config and some keys of its own.
  std::string train(const std::string& keys = "") const {
    return LOOM_PROGRAM " train " + config() + " " + keys;
  }

  /// What log.jsonl of a run says of each step; those that were done again after a crash stand there twice.
  static std::multimap<int64_t, double> losses(const std::string& out) {
    std::multimap<int64_t, double> losses;
    std::istringstream lines(get_file(out + "/log.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Result<format::Json> json = format::parse_json(line);
      if (json.ok() && json->contains("step")) losses.emplace((*json)["step"], (*json)["loss"]);
    }
    return losses;
  }

  TemporaryFolder folder_;
};

}  // namespace loom::testing
