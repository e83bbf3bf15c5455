// NCCL's low-latency protocols over a network that does not write 128 bytes in order: what init() does about
// them, by the time NCCL reads its settings.
#include <algorithm>
#include <optional>

#include "gpu_memory.h"

namespace weft::nccl_net_test {
namespace {

struct Case {
  const char* name;
  std::vector<std::pair<std::string, std::string>> environment;
  std::optional<std::string> given, left;  // NCCL_PROTO before and after
  const char* said;                        // "": nothing
  std::string library = WEFT_NCCL_NET_YOUNGER;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class LowLatency : public ::testing::TestWithParam<Case> {};

int times_logged(const std::string& part) {
  return static_cast<int>(std::count_if(logged().begin(), logged().end(), [&](const std::string& line) {
    return line.find(part) != std::string::npos;
  }));
}

// In a process of its own: settings are read once.
TEST_P(LowLatency, IsLeftToNcclOnlyWhereWritesAreInOrder) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const Case& each = GetParam();
    for (const auto& [name, value] : with(each.name, each.environment).environment)
      setenv(name.c_str(), value.c_str(), 1);
    if (each.given) setenv("NCCL_PROTO", each.given->c_str(), 1);
    else unsetenv("NCCL_PROTO");
    const auto first = PluginHost::open(each.library, 12), second = PluginHost::open(each.library, 8);
    const char* left = std::getenv("NCCL_PROTO");
    EXPECT_EQ(left ? std::optional<std::string>(left) : std::nullopt, each.left);
    if (*each.said) {
      EXPECT_EQ(times_logged(each.said), 1);
    }
    EXPECT_EQ(times_logged("NCCL_PROTO"), *each.said ? 1 : 0);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

constexpr char kSet[] = "NCCL_PROTO is set to simple, without the low-latency protocols";
constexpr char kStays[] = "NCCL_PROTO stays LL128, but over device lo the low-latency protocols";
constexpr char kOneStays[] = "NCCL_PROTO stays ^LL, but over device lo the low-latency protocols";

INSTANTIATE_TEST_SUITE_P(
    Conformance, LowLatency,
    ::testing::Values(
        Case{"refused", {}, {}, "simple", kSet}, Case{"granted", {{"FAKE_GPU_ORDER", "1"}}, {}, {}, ""},
        Case{"refused_where_the_user_wants_it", {}, "LL128", "LL128", kStays},
        Case{"refused_where_the_user_does_without", {}, "Simple", "Simple", ""},
        Case{"refused_where_the_user_excludes_both", {}, "^ll128,LL", "^ll128,LL", ""},
        Case{"refused_where_the_user_excludes_one", {}, "^LL", "^LL", kOneStays},
        Case{"granted_where_the_user_does_without", {{"FAKE_GPU_ORDER", "1"}}, "Simple", "Simple", ""},
        Case{"without_gpu_direct", {{"WEFT_GPU_DIRECT", "off"}}, {}, {}, ""},
        Case{"of_an_older_libfabric", {}, {}, "simple", kSet, WEFT_NCCL_NET_MUTANT}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft::nccl_net_test
