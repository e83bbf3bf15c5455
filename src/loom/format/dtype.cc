#include "format/dtype.h"

#include <algorithm>
#include <iterator>

namespace loom::format {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  unsigned bits;
};

constexpr Row kRows[] = {
    {DType::boolean, "BOOL", 8},
    {DType::u8, "U8", 8},
    {DType::i8, "I8", 8},
    {DType::u16, "U16", 16},
    {DType::i16, "I16", 16},
    {DType::u32, "U32", 32},
    {DType::i32, "I32", 32},
    {DType::u64, "U64", 64},
    {DType::i64, "I64", 64},
    {DType::f8_e4m3, "F8_E4M3", 8},
    {DType::f8_e5m2, "F8_E5M2", 8},
    {DType::f8_e8m0, "F8_E8M0", 8},
    {DType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8},
    {DType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8},
    {DType::f4, "F4", 4},
    {DType::f6_e2m3, "F6_E2M3", 6},
    {DType::f6_e3m2, "F6_E3M2", 6},
    {DType::f16, "F16", 16},
    {DType::bf16, "BF16", 16},
    {DType::f32, "F32", 32},
    {DType::f64, "F64", 64},
    {DType::c64, "C64", 64},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(in_order(), "a row is found by the value of its type");

}  // namespace

std::string_view dtype_name(DType dtype) { return kRows[static_cast<size_t>(dtype)].name; }

std::optional<DType> dtype_named(std::string_view name) {
  const Row* const row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
  if (row == std::end(kRows)) return std::nullopt;
  return row->dtype;
}

unsigned dtype_bits(DType dtype) { return kRows[static_cast<size_t>(dtype)].bits; }

std::optional<uint64_t> dtype_bytes(DType dtype, uint64_t elements) {
  uint64_t bits = 0;
  if (__builtin_mul_overflow(elements, uint64_t{dtype_bits(dtype)}, &bits) || bits % 8 != 0)
    return std::nullopt;
  return bits / 8;
}

}  // namespace loom::format
