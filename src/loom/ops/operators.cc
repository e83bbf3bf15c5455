// The tables, one for each type and instruction set, and the choice among them.
#include "ops/operators.h"

#ifdef LOOM_HAVE_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
namespace avx512_bf16 {  // what multiplies, in bf16
template <typename T>
void add_attention(Operators<T>&);
template <typename T>
void add_linear(Operators<T>&);
}  // namespace avx512_bf16
namespace amx {  // what multiplies, in bf16 and fp16
template <typename T>
void add_attention(Operators<T>&);
template <typename T>
void add_linear(Operators<T>&);
}  // namespace amx
#endif

namespace {

constexpr InstructionSet kBestFirst[] = {InstructionSet::amx, InstructionSet::avx512_bf16,
                                         InstructionSet::avx512, InstructionSet::avx2,
                                         InstructionSet::baseline};

#ifdef LOOM_HAVE_X86
/// Products of pairs of bfloat16 in vectors.
bool has_pairs() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAvx512Bf16 = 1u << 5;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvx512Bf16) != 0;
}

/// Tiles of bfloat16, and Linux's permission to use them, which it gives to a process for all its threads.
bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0)
    return false;
  if (!has_pairs()) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // asm/prctl.h, from Linux 5.16 on
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

bool runs_here(InstructionSet set) {
#ifdef LOOM_HAVE_X86
  if (set == InstructionSet::amx) {
    static const bool tiles = runs_here(InstructionSet::avx512) && has_tiles();
    return tiles;
  }
  if (set == InstructionSet::avx512_bf16) {
    static const bool pairs = runs_here(InstructionSet::avx512) && has_pairs();
    return pairs;
  }
  if (set == InstructionSet::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (set == InstructionSet::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return set == InstructionSet::baseline;
}

/// Whether the set has a table of T: tiles are for the short floats, and fp64 is for tests. An fp16 would
/// take three products of pairs, which are twice as fast as those of fp32.
template <typename T>
constexpr bool has_table(InstructionSet set) {
  if (std::is_same_v<T, double>) return set == InstructionSet::baseline;
  if (set == InstructionSet::avx512_bf16) return std::is_same_v<T, bf16>;
  return set != InstructionSet::amx || sizeof(T) == 2;
}

template <typename T>
Operators<T> table_of(InstructionSet set) {
  Operators<T> table{};
  table.name = name_of(set);
#ifdef LOOM_HAVE_X86
  if constexpr (has_table<T>(InstructionSet::amx))
    if (set == InstructionSet::amx) {
      avx512::fill(table);
      amx::add_attention(table);
      amx::add_linear(table);
    }
  if constexpr (has_table<T>(InstructionSet::avx512_bf16))
    if (set == InstructionSet::avx512_bf16) {
      avx512::fill(table);
      avx512_bf16::add_attention(table);
      avx512_bf16::add_linear(table);
    }
  if constexpr (has_table<T>(InstructionSet::avx2)) {
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
           "LOOM_INSTRUCTIONS is \"{}\", must be amx, avx512_bf16, avx512, avx2 or baseline, or not be set",
           wanted);
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
      if (runs_here(set) && has_table<T>(set)) made.push_back(table_of<T>(set));
    return made;
  }();
  return tables;
}

/// The best of T's tables that the choice allows.
template <typename T>
InstructionSet used() {
  for (const InstructionSet set : kBestFirst)
    if (set <= choice().set && has_table<T>(set) && runs_here(set)) return set;
  return InstructionSet::baseline;
}

template <typename T>
const Operators<T>& operators() {
  static const Operators<T>& table = []() -> const Operators<T>& {
    const std::span<const Operators<T>> tables = all_operators<T>();
    for (const Operators<T>& each : tables)
      if (std::string_view(each.name) == name_of(used<T>())) return each;
    return tables.back();
  }();
  return table;
}

template <typename T>
Instructions instructions() {
  const InstructionSet set = used<T>();
  return {set, set >= InstructionSet::avx512_bf16 ? set : instruction_set_of_products()};
}

std::string to_string(const Instructions& instructions) {
  if (instructions.operators == instructions.products) return name_of(instructions.operators);
  return fmt::format("{}, products by {}", name_of(instructions.operators), name_of(instructions.products));
}

Status check_instructions() { return choice().status; }

#define LOOM_INSTANTIATE(T)                                  \
  template std::span<const Operators<T>> all_operators<T>(); \
  template const Operators<T>& operators<T>();               \
  template Instructions instructions<T>();
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(bf16)
LOOM_INSTANTIATE(fp16)
LOOM_INSTANTIATE(double)

}  // namespace loom::ops
