// The tables, one for each type and instruction set, and the choice among them.
#include "ops/operators.h"

#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ops/gemm.h"
#include "ops/tables.h"

namespace loom::ops {

namespace baseline {
template <typename T>
void fill(Operators<T>&);
}
#ifdef LOOM_HAVE_X86
namespace avx2 {
template <typename T>
void fill(Operators<T>&);
}
namespace avx512 {
template <typename T>
void fill(Operators<T>&);
}
#endif

namespace {

constexpr InstructionSet kBestFirst[] = {InstructionSet::avx512, InstructionSet::avx2,
                                         InstructionSet::baseline};

bool runs_here(InstructionSet set) {
#ifdef LOOM_HAVE_X86
  if (set == InstructionSet::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (set == InstructionSet::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return set == InstructionSet::baseline;
}

template <typename T>
Operators<T> table_of(InstructionSet set) {
  Operators<T> table{};
  table.name = name_of(set);
#ifdef LOOM_HAVE_X86
  if constexpr (!std::is_same_v<T, double>) {
    if (set == InstructionSet::avx512) avx512::fill(table);
    if (set == InstructionSet::avx2) avx2::fill(table);
  }
#endif
  if (set == InstructionSet::baseline) baseline::fill(table);
  return table;
}

struct Choice {
  InstructionSet set = InstructionSet::baseline;
  Status status;
};

Choice choose() {
  Choice choice;
  for (const InstructionSet set : kBestFirst)
    if (runs_here(set)) {
      choice.set = set;
      break;
    }
  const char* const variable = std::getenv("LOOM_INSTRUCTIONS");
  const std::string_view wanted = variable != nullptr ? variable : "";
  if (wanted.empty()) return choice;
  for (const InstructionSet set : kBestFirst) {
    if (wanted != name_of(set)) continue;
    if (!runs_here(set)) {
      choice.status = fail(Code::invalid_argument,
                           "LOOM_INSTRUCTIONS is {}, which this CPU does not have: {} is its best", wanted,
                           name_of(choice.set));
      return choice;
    }
    limit_products(set);
    choice.set = set;
    return choice;
  }
  choice.status =
      fail(Code::invalid_argument,
           "LOOM_INSTRUCTIONS is \"{}\", must be avx512, avx2 or baseline, or not be set", wanted);
  return choice;
}

const Choice& choice() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace

template <typename T>
std::span<const Operators<T>> all_operators() {
  static const std::vector<Operators<T>> tables = [] {
    std::vector<Operators<T>> made;
    for (const InstructionSet set : kBestFirst)
      if (runs_here(set) && (!std::is_same_v<T, double> || set == InstructionSet::baseline))
        made.push_back(table_of<T>(set));
    return made;
  }();
  return tables;
}

template <typename T>
const Operators<T>& operators() {
  static const Operators<T>& table = []() -> const Operators<T>& {
    const std::span<const Operators<T>> tables = all_operators<T>();
    for (const Operators<T>& each : tables)
      if (std::string_view(each.name) == name_of(choice().set)) return each;
    return tables.back();
  }();
  return table;
}

Instructions instructions() { return {choice().set, instruction_set_of_products()}; }

std::string to_string(const Instructions& instructions) {
  if (instructions.operators == instructions.products) return name_of(instructions.operators);
  return fmt::format("{}, products by {}", name_of(instructions.operators), name_of(instructions.products));
}

Status check_instructions() { return choice().status; }

#define LOOM_INSTANTIATE(T)                                  \
  template std::span<const Operators<T>> all_operators<T>(); \
  template const Operators<T>& operators<T>();
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(fp16)
LOOM_INSTANTIATE(double)

}  // namespace loom::ops
