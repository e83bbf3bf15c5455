// Targets of the fuzzers: what reads bytes that others have written. A target takes any bytes, and may only
// return.
//
// FUZZ_TARGET(name) { … } defines one, which reads `input`. A file has one target. Under clang's libFuzzer
// each file becomes a program of its own. In the ordinary test build all files become two programs, which
// replay the corpus (replay.cc).
//
// Thread safety: a target is called by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace fuzz {

/// The bytes of one run, taken from the front. Past the end all values are zero.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }
  template <typename T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::span<const std::byte> bytes = take_bytes(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  /// A number in [0, below).
  size_t take_below(size_t below) { return take<uint16_t>() % below; }
  std::span<const std::byte> take_bytes(size_t most) {
    const auto taken = left_.first(most < left_.size() ? most : left_.size());
    left_ = left_.subspan(taken.size());
    return taken;
  }
  std::span<const std::byte> rest() { return take_bytes(left_.size()); }
  /// The text before the next `end`, which is taken away, too.
  std::string take_until(char end) {
    std::string text;
    while (!left_.empty()) {
      const char next = take<char>();
      if (next == end) break;
      text += next;
    }
    return text;
  }
  std::string rest_as_text() {
    const std::span<const std::byte> bytes = rest();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> left_;
};

using Target = void (*)(Input input);

/// Ends the process: a property that a target checks does not hold.
void require(bool holds, const char* what);

#ifdef WEFT_FUZZ
#define FUZZ_TARGET(name)                                                    \
  static void fuzz_##name(fuzz::Input input);                                \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) { \
    fuzz_##name(fuzz::Input(std::as_bytes(std::span(data, bytes))));         \
    return 0;                                                                \
  }                                                                          \
  static void fuzz_##name(fuzz::Input input)
#else
/// Adds a target to those of the program.
struct Registered {
  Registered(const char* name, Target target);
};
#define FUZZ_TARGET(name)                                              \
  static void fuzz_##name(fuzz::Input input);                          \
  static const fuzz::Registered registered_##name(#name, fuzz_##name); \
  static void fuzz_##name(fuzz::Input input)
#endif

}  // namespace fuzz
