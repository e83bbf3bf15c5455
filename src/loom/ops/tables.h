// The tables of operators that this CPU can run, and which of them is used: the best, or the one that the
// environment variable LOOM_INSTRUCTIONS names. Another instruction set fuses and orders additions otherwise,
// so it rounds otherwise: machines with different CPUs have the same bits only with the same one.
//
// Thread safety: any thread. The environment is read once, when a table is first asked for.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "ops/instruction_set.h"
#include "ops/operators.h"

namespace loom::ops {

/// The best first. Tiles (amx) are for bf16 and fp16 alone, avx512_bf16 for bf16; of double there is the
/// baseline's only.
template <typename T>
std::span<const Operators<T>> all_operators();

/// What this process rounds by where it computes with T: its operators, and the library of products, which
/// chooses for itself unless LOOM_INSTRUCTIONS is set; tiles and avx512_bf16 make the products, too.
struct Instructions {
  InstructionSet operators = InstructionSet::baseline, products = InstructionSet::baseline;
  bool operator==(const Instructions&) const = default;
};
template <typename T>
Instructions instructions();
/// "avx512", or "avx512, products by avx2".
std::string to_string(const Instructions& instructions);

/// Errors (invalid_argument): LOOM_INSTRUCTIONS names no instruction set, or one that this CPU does not have.
/// operators() gives the best then.
Status check_instructions();

}  // namespace loom::ops
