// Fiber: a function with a stack of its own, which runs until it yields. The address sanitizer is told of
// every change of stacks.
//
// Thread safety: a fiber stays with the thread of the program that made it.
#pragma once

#include <cstddef>

namespace loom::cuda::emulated {

class Fiber {
 public:
  /// `function` must not return.
  explicit Fiber(void (*function)());
  Fiber(const Fiber&) = delete;
  ~Fiber();

  /// Runs it until it yields. Not from a fiber.
  void resume();
  /// From the fiber that runs: back to where it was resumed.
  static void yield();

 private:
  static void begin();

  void (*const function_)();
  std::byte* memory_;      // a guard page, and the stack above it
  void* stack_ = nullptr;  // where it goes on
  void* sanitizer_ = nullptr;
};

}  // namespace loom::cuda::emulated
