#include "model/measure.h"

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

struct Rates {
  double copy = 0, reduce = 0;  // bytes/µs
};

Rates rates_of(float* into, const float* first, const float* second, uint64_t bytes, int repeats) {
  const auto whole = static_cast<double>(bytes);
  const device::Reduction sum{.message_bytes = bytes};
  const void* const sources[] = {first, second};
  Rates rates;
  rates.copy = whole / median_us(repeats, [&] { device::copy(into, first, bytes, bytes); });
  rates.reduce =
      2 * whole / median_us(repeats, [&] { device::reduce(sum, into, sources, 2, bytes / sizeof(float)); });
  return rates;
}

}  // namespace

double plausible(double measured, double stated, double most) {
  return measured >= stated / most && measured <= stated * most ? measured : stated;
}

Memory measure_memory(const Memory& stated) {
  // Written to once: pages that were never touched are all the same one.
  const uint64_t floats = kLargeBytes / sizeof(float);
  const std::unique_ptr<float[]> memory(new float[3 * floats]);
  for (uint64_t i = 0; i < 3 * floats; i += 16) std::fill_n(memory.get() + i, 16, 1.0f);
  float* const into = memory.get();
  const Rates cached = rates_of(into, into + floats, into + 2 * floats, kCachedBytes, 25);
  const Rates large = rates_of(into, into + floats, into + 2 * floats, kLargeBytes, 3);
  Memory result = stated;
  result.copy_cached = plausible(cached.copy, stated.copy_cached);
  result.reduce_cached = plausible(cached.reduce, stated.reduce_cached);
  result.copy_large = std::min(plausible(large.copy, stated.copy_large), result.copy_cached);
  result.reduce_large = std::min(plausible(large.reduce, stated.reduce_large), result.reduce_cached);
  return result;
}

}  // namespace weft::model
