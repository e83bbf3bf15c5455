// What NCCL's log shows of what the plugin says, by NCCL's own filter.
#include "nccl_log_filter.h"
#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

class Report : public OverNets {};

/// Whether a line with `part` was logged that NCCL shows.
bool is_shown(const std::string& part, const NcclLogFilter& filter) {
  bool said = false, shown = false;
  for (size_t i = 0; i < logged().size(); ++i) {
    if (logged()[i].find(part) == std::string::npos) continue;
    said = true;
    shown = shown || filter.shows(logged_under()[i].level, logged_under()[i].subsystems);
  }
  EXPECT_TRUE(said) << part;
  return shown;
}

TEST_P(Report, ErrorsAreShownWhateverTheMaskAndDevicesAtLevelInfo) {
  run([](Process& self) {
    void* memory = nullptr;
    EXPECT_EQ(self.host().register_memory(nullptr, &memory, 1, abi::kHostMemory, &memory),
              abi::kInvalidArgument);
    const std::string error = "the connection to register memory with is null", device = "device 0: ";
    for (const char* mask : {"", "NET", "COLL", "^NET", "^INIT", "ALL"})
      for (const char* level : {"WARN", "INFO", "TRACE"})
        EXPECT_TRUE(is_shown(error, {level, mask})) << level << " " << mask;
    EXPECT_FALSE(is_shown(error, {"", ""})) << "without NCCL_DEBUG nothing is shown";
    EXPECT_FALSE(is_shown(error, {"VERSION", "ALL"}));
    for (const char* mask : {"", "INIT", "NET", "^NET", "^INIT", "ALL"})
      EXPECT_TRUE(is_shown(device, {"INFO", mask})) << mask;
    EXPECT_FALSE(is_shown(device, {"INFO", "COLL"}));
    EXPECT_FALSE(is_shown(device, {"WARN", ""}));
  });
}

INSTANTIATE_TEST_SUITE_P(Conformance, Report,
                         ::testing::Combine(::testing::ValuesIn(real_nets()), ::testing::Values(8, 12)),
                         name_of_net);

}  // namespace
}  // namespace weft::nccl_net_test
