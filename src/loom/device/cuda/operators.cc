// The table, put together.
#include "device/cuda/operators.h"

#include "device/cuda/operator_launches.h"

namespace loom::cuda {

template <typename T>
const ops::Operators<T>& operators() {
  static const ops::Operators<T> table = [] {
    ops::Operators<T> made{};
    made.name = "cuda";
    add_attention(made);
    add_products(made);
    add_rows(made);
    add_elements(made);
    return made;
  }();
  return table;
}
template const ops::Operators<float>& operators<float>();
template const ops::Operators<bf16>& operators<bf16>();
template const ops::Operators<fp16>& operators<fp16>();

}  // namespace loom::cuda
