// Element types and reduction operators: numerically equal to weftDataType_t and weftRedOp_t of weft/weft.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::device {

enum class DataType : uint8_t {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8e4m3 = 10,
  float8e5m2 = 11,
};
inline constexpr int kDataTypes = 12;

enum class ReduceOp : uint8_t { sum = 0, prod = 1, max = 2, min = 3, avg = 4, band = 5, bor = 6, bxor = 7 };
inline constexpr int kReduceOps = 8;

constexpr bool is_integer(DataType type) { return type <= DataType::uint64; }
/// Whether the operator has a meaning for the type: floats have no bitwise operators.
constexpr bool applies(ReduceOp op, DataType type) { return op < ReduceOp::band || is_integer(type); }

constexpr size_t size_of(DataType type) {
  constexpr uint8_t bytes[kDataTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[static_cast<int>(type)];
}
const char* name_of(DataType type);  // "float" and so on, as nccl-tests prints them
const char* name_of(ReduceOp op);    // "sum", "prod", "max", "min", "avg", "band", "bor", "bxor"

}  // namespace weft::device
