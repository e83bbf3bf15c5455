// Setting: where the arrays of a test's model lie, and with what its steps run. The CPU's is here; the GPU's
// is beside the tests of devices.
#pragma once

#include <cstring>
#include <deque>
#include <vector>

#include "device/context.h"
#include "ops/fused.h"

namespace loom::testing {

template <typename T>
class Setting {
 public:
  virtual ~Setting() = default;
  virtual device::Context context() = 0;
  virtual const ops::Operators<T>& table() const = 0;
  /// Null where steps are done one by one.
  virtual const ops::FusedOperators<T>* fused() const { return nullptr; }
  /// Whether shapes must not depend on the batch: BatchLayout's `fixed`.
  virtual bool is_fixed() const { return false; }
  /// Memory that lives as long as the place, its content undefined.
  virtual std::byte* take(int64_t bytes) = 0;
  virtual void write(void* to, const void* from, int64_t bytes) = 0;
  virtual void read(void* to, const void* from, int64_t bytes) = 0;

  template <typename E>
  E* put(const std::vector<E>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(E));
    E* const there = reinterpret_cast<E*>(take(bytes));
    write(there, values.data(), bytes);
    return there;
  }
  template <typename E>
  std::vector<E> get(const E* from, int64_t count) {
    std::vector<E> values(static_cast<size_t>(count));
    read(values.data(), from, count * static_cast<int64_t>(sizeof(E)));
    return values;
  }
};

template <typename T>
class CpuSetting final : public Setting<T> {
 public:
  device::Context context() override { return workers_; }
  const ops::Operators<T>& table() const override { return ops::operators<T>(); }
  std::byte* take(int64_t bytes) override { return memory_.emplace_back(static_cast<size_t>(bytes)).data(); }
  void write(void* to, const void* from, int64_t bytes) override { read(to, from, bytes); }
  void read(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

 private:
  Workers workers_{1};
  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace loom::testing
