#include "model/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "device/reduce.h"

namespace weft::model {
namespace {

// With two sources and a destination this stays in a second-level cache.
constexpr uint64_t kCachedBytes = 128 << 10;
constexpr uint64_t kLargeBytes = 16 << 20;
constexpr uint64_t kMiddleBytes = 4 << 20;  // a last level's cache may hold three of these, or not
constexpr uint64_t kNearBytes = 1 << 20;    // … and a core's own some of these
constexpr double kAsSlow = 1.25;            // times the rate of memory: a cache that hardly tells
// Rows of the same latency differ by less than a factor and what a clock or an interrupt adds.
constexpr double kSameFactor = 2, kSameUs = 1;
constexpr double kSharedFactor = 4;  // by which those who slept are quicker where a core is shared

bool about_as_long(double us, double quickest_us) { return us <= kSameFactor * quickest_us + kSameUs; }

std::vector<double> sorted_medians(std::span<const std::vector<double>> rows) {
  std::vector<double> medians;
  for (const std::vector<double>& row : rows)
    if (!row.empty()) medians.push_back(median(row));
  std::sort(medians.begin(), medians.end());
  return medians;
}

/// Median duration of `repeats` calls in µs, after one that is not counted.
template <typename Work>
double median_us(int repeats, Work work) {
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    const int64_t begin = now_ns();
    work();
    if (i > 0) times.push_back(static_cast<double>(now_ns() - begin) / 1e3);
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return std::max(times[static_cast<size_t>(repeats / 2)], 1e-3);
}

/// Three blocks, of which parts of the same length are copied and reduced; rates in bytes/µs.
struct Blocks {
  float *into, *first, *second;

  double copy_rate(uint64_t bytes, int repeats) const {
    const double us = median_us(repeats, [&] { device::copy(into, first, bytes, bytes); });
    return static_cast<double>(bytes) / us;
  }
  double reduce_rate(uint64_t bytes, int repeats) const {
    const device::Reduction sum{.message_bytes = bytes};
    const void* const sources[] = {first, second};
    const double us =
        median_us(repeats, [&] { device::reduce(sum, into, sources, 2, bytes / sizeof(float)); });
    return 2 * static_cast<double>(bytes) / us;
  }
};

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Latency agree(std::span<const std::vector<double>> spun, std::span<const std::vector<double>> slept,
              bool one_core) {
  const std::vector<double> spinning = sorted_medians(spun), sleeping = sorted_medians(slept);
  if (spinning.empty()) return {};
  Latency latency{spinning.front(), ""};
  if (spinning.size() > 1 && !about_as_long(spinning[1], spinning[0]))
    latency.doubt =
        fmt::format("rows of messages took {:.3g} to {:.3g} µs each", spinning.front(), spinning.back());
  if (sleeping.empty() || sleeping.front() >= spinning.front()) return latency;
  latency.us = sleeping.front();
  latency.doubt.clear();
  if (!one_core && kSharedFactor * sleeping.front() + kSameUs < spinning.front())
    latency.doubt =
        fmt::format("a message took {:.3g} µs between ranks that spun, {:.3g} between sleeping ones",
                    spinning.front(), sleeping.front());
  return latency;
}

double plausible(double measured, double stated, double most) {
  return measured >= stated / most && measured <= stated * most ? measured : stated;
}

Memory measure_memory(const Memory& stated) {
  // Written to once: pages that were never touched are all the same one.
  const uint64_t floats = kLargeBytes / sizeof(float);
  const std::unique_ptr<float[]> memory(new float[3 * floats]);
  for (uint64_t i = 0; i < 3 * floats; i += 16) std::fill_n(memory.get() + i, 16, 1.0f);
  const Blocks blocks{memory.get(), memory.get() + floats, memory.get() + 2 * floats};
  Memory result = stated;
  result.copy_cached = plausible(blocks.copy_rate(kCachedBytes, 25), stated.copy_cached);
  result.reduce_cached = plausible(blocks.reduce_rate(kCachedBytes, 25), stated.reduce_cached);
  result.copy_large =
      std::min(plausible(blocks.copy_rate(kLargeBytes, 3), stated.copy_large), result.copy_cached);
  result.reduce_large =
      std::min(plausible(blocks.reduce_rate(kLargeBytes, 3), stated.reduce_large), result.reduce_cached);
  const auto reduced = [&](uint64_t bytes) {
    return plausible(blocks.reduce_rate(bytes, 15), stated.reduce_cached);
  };
  // A last level that is no quicker than memory ends the way from cached to large.
  const double middle = reduced(kMiddleBytes);
  if (middle > kAsSlow * result.reduce_large) fit_cache(result, 3 * kMiddleBytes, middle, 3 * kLargeBytes);
  else fit_cache(result, 3 * kNearBytes, reduced(kNearBytes), 3 * kMiddleBytes);
  return result;
}

}  // namespace weft::model
