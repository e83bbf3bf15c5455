// Names of types and operators.
#include "device/types.h"

namespace weft::device {

const char* name_of(DataType type) {
  static constexpr const char* names[kDataTypes] = {"int8",   "uint8",    "int32",  "uint32",
                                                    "int64",  "uint64",   "half",   "float",
                                                    "double", "bfloat16", "f8e4m3", "f8e5m2"};
  const auto i = static_cast<unsigned>(type);
  return i < kDataTypes ? names[i] : "unknown";
}

const char* name_of(ReduceOp op) {
  static constexpr const char* names[kReduceOps] = {"sum", "prod", "max", "min",
                                                    "avg", "band", "bor", "bxor"};
  const auto i = static_cast<unsigned>(op);
  return i < kReduceOps ? names[i] : "unknown";
}

}  // namespace weft::device
