// An operator's arrays on the CPU and on the GPU, to compare what both devices make of them.
#pragma once

#include "base/workers.h"
#include "device/cuda/operators.h"
#include "loom/device/gpu_setting.h"
#include "ops/arrays.h"
#include "support.h"

namespace loom::testing {

class GpuOperators : public OnGpuTable {
 protected:
  Workers workers{1};
};

/// One array on both devices, with the same bits at first.
template <typename E>
class Both {
 public:
  Both(const std::vector<E>& values, device::Memory there) : here_(values), there_(std::move(there)) {}
  E* cpu() { return here_.data(); }
  E* gpu() { return there_.as<E>(); }
  const std::vector<E>& values() const { return here_; }

 private:
  std::vector<E> here_;
  device::Memory there_;
};

template <typename T>
class TypedGpuOperators : public GpuOperators {
 protected:
  template <typename E>
  Both<E> both(const Doubles& values) {
    const std::vector<E> converted = as<E>(values);
    return Both<E>(converted, upload(converted));
  }
  /// Calls an operator of the CPU and of the GPU; use(table, context, which) picks the arrays.
  template <typename Use>
  void on_both(Use&& use) {
    use(ops::operators<T>(), device::Context(workers), [](auto& array) { return array.cpu(); });
    use(cuda::operators<T>(), device::Context(*compute), [](auto& array) { return array.gpu(); });
  }
  /// How far the GPU's array is from the CPU's.
  template <typename E>
  double difference(Both<E>& array) {
    return error_of(doubles(download(array.gpu(), static_cast<int64_t>(array.values().size()))),
                    doubles(array.values()));
  }
  template <typename E>
  bool same_bits(Both<E>& array) {
    const std::vector<E> there = download(array.gpu(), static_cast<int64_t>(array.values().size()));
    return std::memcmp(there.data(), array.values().data(), there.size() * sizeof(E)) == 0;
  }
};

}  // namespace loom::testing
