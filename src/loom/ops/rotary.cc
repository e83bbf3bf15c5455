// Rotary position embedding. A rotation's gradient is the rotation back, so one function does both.
#include "ops/cpu.h"
#include "ops/rotary_angle.h"

namespace loom::ops::LOOM_ISA {
namespace {

template <typename T>
void rotary(Workers& workers, const RotaryShape& s, T* qkv, bool back) {
  using A = acc_t<T>;
  const int64_t pairs = s.dims / 2, width = s.qkv_width();
  for_parts(workers, s.tokens, [&](int64_t token, int worker) {
    A* cosine = reinterpret_cast<A*>(workers.scratch(worker, sizeof(A) * 2 * pairs));
    A* sine = cosine + pairs;
    for (int64_t p = 0; p < pairs; ++p) {
      const double angle = rotary_angle(s.base, s.scaling, s.first_position + token, p, s.dims);
      cosine[p] = static_cast<A>(std::cos(angle));
      sine[p] = static_cast<A>(back ? -std::sin(angle) : std::sin(angle));
    }
    const int64_t step = s.interleaved ? 2 : 1, partner = s.interleaved ? 1 : pairs;
    for (int64_t sequence = 0; sequence < s.batch; ++sequence)
      for (int64_t head = 0; head < s.turned_heads(); ++head) {
        T* at = qkv + (sequence * s.tokens + token) * width + head * s.head_size;
        for (int64_t p = 0; p < pairs; ++p) {
          T &first = at[p * step], &second = at[p * step + partner];
          const A x = load(first), y = load(second);
          store(first, x * cosine[p] - y * sine[p]);
          store(second, y * cosine[p] + x * sine[p]);
        }
      }
  });
}

}  // namespace

template <typename T>
void add_rotary(Operators<T>& table) {
  table.rotary = rotary<T>;
}
LOOM_FOR_EVERY_TYPE(add_rotary)

}  // namespace loom::ops::LOOM_ISA
