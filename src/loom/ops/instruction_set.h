// The instruction sets that operators are compiled for. Nothing but names: files of operators include this.
#pragma once

namespace loom::ops {

/// Each has what the ones before it have.
enum class InstructionSet { baseline, avx2, avx512, avx512_bf16, amx };

/// As LOOM_INSTRUCTIONS and Operators::name have it.
constexpr const char* name_of(InstructionSet set) {
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
  return kNames[static_cast<int>(set)];
}

}  // namespace loom::ops
