// Whether the conformance suite notices a transport that does wrong: it is run again, by itself, against a
// plugin with such a transport, and has to fail.
#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

struct Outcome {
  bool passed;
  std::string output;
};

/// Runs tests of this program against the plugin in which MUTATION does its work.
Outcome run_suite(const std::string& mutation, const std::string& filter) {
  std::array<char, 4096> self{};
  EXPECT_GT(readlink("/proc/self/exe", self.data(), self.size() - 1), 0);
  const std::string command = "MUTATION=" + mutation + " NCCL_NET_UNDER_TEST=" WEFT_NCCL_NET_MUTANT " '" +
                              self.data() + "' --gtest_filter='" + filter + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome{false, ""};
  std::array<char, 4096> part{};
  for (size_t bytes; pipe && (bytes = fread(part.data(), 1, part.size(), pipe)) > 0;)
    outcome.output.append(part.data(), bytes);
  outcome.passed = pipe && pclose(pipe) == 0;
  return outcome;
}

using Harm = std::tuple<const char*, const char*>;  // what is done, and over which way

class Mutation : public ::testing::TestWithParam<Harm> {};

TEST_P(Mutation, IsCaught) {
  const auto [mutation, way] = GetParam();
  std::vector<std::string> tests = {"MessagesOfOneTagStayInOrder", "GroupsOfReceivesReportEverySize"};
  // With one message of a tag at a time, one that took its neighbour's place would be waited for in vain.
  if (mutation != std::string("reorder")) tests.push_back("SendFromAllToAll");
  for (const std::string& test : tests) {
    const Outcome outcome = run_suite(mutation, fmt::format("Conformance/*{}/{}_v12", test, way));
    EXPECT_FALSE(outcome.passed) << test << " did not notice that the transport does wrong";
    EXPECT_NE(outcome.output.find("1 FAILED TEST"), std::string::npos) << outcome.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Conformance, Mutation,
                         ::testing::Combine(::testing::Values("corrupt", "reorder", "missize"),
                                            ::testing::Values("tcp", "ofi_tcp", "ofi_shm")),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
                         });

// The same of GPU memory, which goes another way.
class GpuMutation : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuMutation, IsCaught) {
  const Outcome outcome = run_suite(GetParam(), "*GpuTransfer.MessagesOfOneTagStayInOrder/gpu_v12");
  EXPECT_FALSE(outcome.passed) << "nobody noticed that the transport does wrong";
  EXPECT_NE(outcome.output.find("1 FAILED TEST"), std::string::npos) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Conformance, GpuMutation, ::testing::Values("corrupt", "reorder", "missize"),
                         [](const auto& info) { return std::string(info.param); });

// The same runs, but for the harm: so it is the harm that fails.
class NoMutation : public ::testing::TestWithParam<const char*> {};

TEST_P(NoMutation, IsPassed) {
  std::string filter;
  for (const char* test :
       {"MessagesOfOneTagStayInOrder", "GroupsOfReceivesReportEverySize", "SendFromAllToAll"})
    filter += fmt::format(":Conformance/*{}/{}_v12", test, GetParam());
  const Outcome outcome = run_suite("none", filter.substr(1));
  EXPECT_TRUE(outcome.passed) << outcome.output;
  EXPECT_NE(outcome.output.find("[  PASSED  ] 3 tests."), std::string::npos) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Conformance, NoMutation, ::testing::Values("tcp", "ofi_tcp", "ofi_shm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace weft::nccl_net_test
