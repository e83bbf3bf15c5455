#include "growth.h"

#include <algorithm>
#include <functional>

namespace soak {
namespace {

constexpr size_t kLeastSamples = 24;

struct Watched {
  const char* name;
  std::function<int64_t(const Usage&)> value;
  int64_t slack;
};

const Watched kWatched[] = {
    {"open descriptors", [](const Usage& u) { return u.descriptors; }, 2},
    {"threads", [](const Usage& u) { return u.threads; }, 1},
    {"bytes of heap", [](const Usage& u) { return u.heap_bytes; }, 2 << 20},
    {"bytes of resident memory", [](const Usage& u) { return u.resident_bytes; }, 32 << 20},
};

}  // namespace

std::string growth_of(const std::vector<Usage>& samples) {
  if (samples.size() < kLeastSamples) return {};
  const size_t quarter = samples.size() / 4;
  for (const Watched& watched : kWatched) {
    int64_t before = INT64_MIN, after = INT64_MAX;
    for (size_t i = 0; i < quarter; ++i) {
      before = std::max(before, watched.value(samples[quarter + i]));
      after = std::min(after, watched.value(samples[samples.size() - 1 - i]));
    }
    if (after > before + watched.slack)
      return std::string(watched.name) + " grew from " + std::to_string(before) + " at most to " +
             std::to_string(after) + " at least, in " + std::to_string(samples.size()) + " rounds";
  }
  return {};
}

}  // namespace soak
