// Operator: an entry of a table of operators. It holds a function of the CPU, or one of a GPU, of that
// signature.
//
// Its functions are always inlined: files that are compiled for one instruction set use them, and the linker
// must not keep a copy of theirs for all (ops/cpu.h).
//
// Thread safety: constant once set.
#pragma once

#include "device/context.h"

namespace loom::device {

template <typename Signature>
class Operator;

template <typename... Arguments>
class Operator<void(Arguments...)> {
 public:
  constexpr Operator() = default;
  [[gnu::always_inline]] Operator& operator=(void (*function)(Workers&, Arguments...)) {
    on_cpu_ = function;
    return *this;
  }
  [[gnu::always_inline]] Operator& operator=(void (*function)(cuda::Compute&, Arguments...)) {
    on_gpu_ = function;
    return *this;
  }

  /// Runs it, or queues it. The context is of the device that the table is for.
  [[gnu::always_inline]] void operator()(const Context& context, Arguments... arguments) const {
    if (on_cpu_ != nullptr) on_cpu_(*context.workers, arguments...);
    else on_gpu_(*context.compute, arguments...);
  }
  [[gnu::always_inline]] explicit operator bool() const { return on_cpu_ != nullptr || on_gpu_ != nullptr; }

 private:
  void (*on_cpu_)(Workers&, Arguments...) = nullptr;
  void (*on_gpu_)(cuda::Compute&, Arguments...) = nullptr;
};

}  // namespace loom::device
