#include "environment.h"

#include "random.h"

namespace soak {

Environment make_environment(uint64_t seed) {
  Random random(seed);
  Environment environment;
  const auto maybe = [&](int percent, const char* name, std::vector<std::string> values) {
    const std::string& value = values[static_cast<size_t>(random.below(static_cast<int>(values.size())))];
    if (random.chance(percent)) environment.emplace_back(name, value);
  };
  maybe(30, "WEFT_NET", {"tcp", "ofi"});
  maybe(20, "WEFT_SHM", {"0"});
  maybe(25, "WEFT_CMA", {"0"});
  maybe(
      30, "WEFT_ALGO",
      {"*=ring", "*=one_hop", "*=direct", "*=recursive_doubling", "*=binomial", "*=double_tree", "*=bruck"});
  maybe(20, "WEFT_PROGRESS_THREADS", {"2", "3"});
  maybe(20, "WEFT_SPIN_US", {"0", "200"});
  maybe(15, "WEFT_EARLY_BYTES", {"1M"});
  maybe(20, "WEFT_EAGER_INTRA_BYTES", {"64", "1K", "256K"});
  maybe(20, "WEFT_EAGER_INTER_BYTES", {"64", "1K", "256K"});
  maybe(20, "WEFT_SLICE_BYTES", {"4K", "64K"});
  return environment;
}

std::string describe(const Environment& environment) {
  std::string text;
  for (const auto& [name, value] : environment) text += (text.empty() ? "" : " ") + name + "=" + value;
  return text.empty() ? "defaults" : text;
}

}  // namespace soak
