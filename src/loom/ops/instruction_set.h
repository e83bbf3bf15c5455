// The instruction sets that operators are compiled for. Nothing but names: files of operators include this.
#pragma once

namespace loom::ops {

/// Each has what the ones before it have.
enum class InstructionSet { baseline, avx2, avx512 };

/// As LOOM_INSTRUCTIONS and Operators::name have it.
constexpr const char* name_of(InstructionSet set) {
  return set == InstructionSet::avx512 ? "avx512" : set == InstructionSet::avx2 ? "avx2" : "baseline";
}

}  // namespace loom::ops
