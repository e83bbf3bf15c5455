// One instruction set's table, put together.
#include "ops/cpu.h"

namespace loom::ops::LOOM_ISA {

template <typename T>
void add_activation(Operators<T>&);
template <typename T>
void add_adamw(Operators<T>&);
template <typename T>
void add_attention(Operators<T>&);
template <typename T>
void add_cross_entropy(Operators<T>&);
template <typename T>
void add_dropout(Operators<T>&);
template <typename T>
void add_elementwise(Operators<T>&);
template <typename T>
void add_embedding(Operators<T>&);
template <typename T>
void add_norm(Operators<T>&);
template <typename T>
void add_linear(Operators<T>&);
template <typename T>
void add_normal(Operators<T>&);
template <typename T>
void add_rotary(Operators<T>&);
template <typename T>
void add_rows(Operators<T>&);
template <typename T>
void add_split_cross_entropy(Operators<T>&);
template <typename T>
void add_split_embedding(Operators<T>&);

template <typename T>
void fill(Operators<T>& table) {
  add_activation(table);
  add_adamw(table);
  add_attention(table);
  add_cross_entropy(table);
  add_dropout(table);
  add_elementwise(table);
  add_embedding(table);
  add_norm(table);
  add_linear(table);
  add_normal(table);
  add_rotary(table);
  add_rows(table);
  add_split_cross_entropy(table);
  add_split_embedding(table);
}
LOOM_FOR_EVERY_TYPE(fill)

}  // namespace loom::ops::LOOM_ISA
