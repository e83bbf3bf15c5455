// One call of NCCL's interface as text: what the recording NCCL notes of a call that reaches it, and what the
// test expects of the call that it has made. And what such a call returns.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "nccl/abi.h"

namespace weft::nccl_shim_test {

template <typename Argument>
std::string text_of(const Argument& argument) {
  if constexpr (std::is_same_v<Argument, nccl::Comm_t*>) {
    return "a-place";  // the shim lets NCCL write to one of its own
  } else if constexpr (std::is_pointer_v<Argument>) {
    return std::to_string(reinterpret_cast<uintptr_t>(argument));
  } else if constexpr (std::is_integral_v<Argument>) {
    return std::to_string(argument);
  } else {
    std::string text;
    for (size_t i = 0; i < sizeof argument; ++i)
      text += std::to_string(reinterpret_cast<const unsigned char*>(&argument)[i]) + ".";
    return text;
  }
}

template <typename... Arguments>
std::string call_text(const char* name, const Arguments&... arguments) {
  std::string text = name;
  ((text += " " + text_of(arguments)), ...);
  return text;
}

/// What the recording NCCL answers.
template <typename Value>
Value answer() {
  if constexpr (std::is_same_v<Value, nccl::Team>) return {7, 5, 3};
  else if constexpr (std::is_same_v<Value, const char*>) return "recorded";
  else if constexpr (std::is_same_v<Value, int>) return 4321;
  else if constexpr (std::is_same_v<Value, nccl::Result_t>) return nccl::kSuccess;
}

}  // namespace weft::nccl_shim_test
