// Which kernels this CPU runs.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <initializer_list>

#include "device/kernels.h"

namespace weft::device {

extern const Kernels baseline_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;

namespace {

/// Not every compiler's __builtin_cpu_supports knows this one.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

const Kernels* kernels_for(Isa isa) {
  const auto has = [](bool feature, const Kernels& table) { return feature ? &table : nullptr; };
  __builtin_cpu_init();
  switch (isa) {
    case Isa::baseline: return &baseline_kernels;
    case Isa::avx2: return has(__builtin_cpu_supports("avx2") && has_f16c(), avx2_kernels);
    case Isa::avx512:
      return has(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"),
                 avx512_kernels);
  }
  return nullptr;
}
#else
const Kernels* kernels_for(Isa isa) { return isa == Isa::baseline ? &baseline_kernels : nullptr; }
#endif

const Kernels& kernels() {
  static const Kernels& best = []() -> const Kernels& {
    for (const Isa isa : {Isa::avx512, Isa::avx2}) {
      if (const Kernels* table = kernels_for(isa)) return *table;
    }
    return baseline_kernels;
  }();
  return best;
}

}  // namespace weft::device
