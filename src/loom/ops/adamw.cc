// AdamW over whole buffers.
#include "ops/adamw_update.h"
#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename T>
void adamw(Workers& workers, const AdamW& settings, const acc_t<T>* gradient, acc_t<T>* master,
           Slots<acc_t<T>> slots, T* parameter, int64_t n) {
  acc_t<T>* const first = slots.at[0];
  acc_t<T>* const second = slots.at[1];
  const AdamWUpdate<acc_t<T>> update(settings);
  for_ranges(workers, n, kPiece, [&](int64_t begin, int64_t end, int) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) update.apply(gradient[i], master[i], first[i], second[i]);
    if (parameter == nullptr || static_cast<const void*>(parameter) == static_cast<const void*>(master))
      return;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) store(parameter[i], master[i]);
  });
}

}  // namespace

template <typename T>
void add_adamw(Operators<T>& table) {
  table.update = adamw<T>;
}
LOOM_FOR_EVERY_TYPE(add_adamw)

}  // namespace loom::ops::LOOM_ISA
