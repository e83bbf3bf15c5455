#include "reduction.h"

#include <ATen/ATen.h>

#include "work.h"

namespace weft_torch {

namespace {

using c10d::ReduceOp;

std::optional<weftDataType_t> own_type(at::ScalarType type) {
  switch (type) {
    case at::kChar: return weftInt8;
    case at::kByte: return weftUint8;
    case at::kInt: return weftInt32;
    case at::kUInt32: return weftUint32;
    case at::kLong: return weftInt64;
    case at::kUInt64: return weftUint64;
    case at::kHalf: return weftFloat16;
    case at::kFloat: return weftFloat32;
    case at::kDouble: return weftFloat64;
    case at::kBFloat16: return weftBfloat16;
    case at::kFloat8_e4m3fn: return weftFloat8e4m3;
    case at::kFloat8_e5m2: return weftFloat8e5m2;
    default: return std::nullopt;
  }
}

// The type in which a type that Weft cannot reduce is reduced.
std::optional<at::ScalarType> wider_type(at::ScalarType type) {
  switch (type) {
    case at::kShort:
    case at::kUInt16: return at::kInt;
    case at::kFloat8_e4m3fnuz:
    case at::kFloat8_e5m2fnuz: return at::kFloat;
    default: return std::nullopt;
  }
}

[[noreturn]] void refuse(ReduceOp::RedOpType op, at::ScalarType type, const char* right) {
  C10_THROW_ERROR(ValueError, c10::str("ReduceOp.", op_name(op), " of ", c10::toString(type),
                                       " has no meaning in Weft; ", right, "."));
}

// The type's name in torch 2.11, an alias in later versions.
using ScaledSumFactor = c10d::NCCLPreMulSumSupplement;

double factor_of(const ReduceOp& op) {
  auto* scale = dynamic_cast<ScaledSumFactor*>(op.supplement_.get());
  if (scale == nullptr) {
    C10_THROW_ERROR(ValueError,
                    "PREMUL_SUM needs its factor: make it by torch.distributed._make_nccl_premul_sum().");
  }
  return scale->tensor_factor.defined() ? scale->tensor_factor.item<double>() : scale->double_factor;
}

weftRedOp_t own_op(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::AVG: return weftAvg;
    case ReduceOp::PRODUCT: return weftProd;
    case ReduceOp::MIN: return weftMin;
    case ReduceOp::MAX: return weftMax;
    case ReduceOp::BAND: return weftBand;
    case ReduceOp::BOR: return weftBor;
    case ReduceOp::BXOR: return weftBxor;
    default: return weftSum;
  }
}

// Values of bool are the bytes 0 and 1.
Reduction bool_reduction(ReduceOp::RedOpType op) {
  Reduction made;
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::MAX:
    case ReduceOp::BOR: made.op = weftMax; break;
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::BAND: made.op = weftMin; break;
    case ReduceOp::BXOR: made.op = weftBxor; break;
    default: refuse(op, at::kBool, "use SUM, PRODUCT, MIN, MAX, BAND, BOR or BXOR, or another type");
  }
  return made;
}

Reduction complex_reduction(ReduceOp::RedOpType op, at::ScalarType type) {
  if (op != ReduceOp::SUM && op != ReduceOp::AVG && op != ReduceOp::PREMUL_SUM) {
    refuse(op, type, "complex numbers have SUM, AVG and PREMUL_SUM");
  }
  Reduction made;
  made.wire = {*own_type(c10::toRealValueType(type)), 2};
  made.op = own_op(op);
  return made;
}

}  // namespace

const char* op_name(ReduceOp::RedOpType op) {
  static const char* const names[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                      "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};
  return names[op <= ReduceOp::UNUSED ? op : ReduceOp::UNUSED];
}

WireType wire_type(at::ScalarType type) {
  if (auto own = own_type(type)) return {*own, 1};
  if (c10::isComplexType(type)) return {*own_type(c10::toRealValueType(type)), 2};
  return {weftUint8, c10::elementSize(type)};
}

ScaledSum::ScaledSum(double factor, at::ScalarType type, weftDataType_t wire, weftComm_t comm) : comm_(comm) {
  at::Tensor scalar = at::full({1}, factor, at::TensorOptions().dtype(type));
  if (weftRedOpCreatePreMulSum(&op_, scalar.data_ptr(), wire, weftScalarHostImmediate, comm) != weftSuccess) {
    std::rethrow_exception(backend_error(weftGetLastError(comm)));
  }
}

ScaledSum::~ScaledSum() { weftRedOpDestroy(op_, comm_); }

Reduction reduction_for(const ReduceOp& op, at::ScalarType type, weftComm_t comm) {
  if (op.op_ >= ReduceOp::UNUSED) C10_THROW_ERROR(ValueError, "ReduceOp.UNUSED is no operator.");
  if (type == at::kBool) return bool_reduction(op.op_);
  if (op.op_ == ReduceOp::BAND || op.op_ == ReduceOp::BOR || op.op_ == ReduceOp::BXOR) {
    if (!c10::isIntegralType(type, false))
      refuse(op.op_, type, "bitwise operators are for integers and bool");
    Reduction made;
    made.wire = wire_type(type);  // of a type that Weft lacks, the bytes
    made.op = own_op(op.op_);
    return made;
  }
  Reduction made;
  at::ScalarType computed = type;
  if (c10::isComplexType(type)) {
    made = complex_reduction(op.op_, type);
    computed = c10::toRealValueType(type);
  } else {
    made.wide = wider_type(type);
    computed = made.wide.value_or(type);
    auto own = own_type(computed);
    if (!own) refuse(op.op_, type, "reduce a type with arithmetic, such as float32");
    made.wire = {*own, 1};
    made.op = own_op(op.op_);
  }
  if (op.op_ == ReduceOp::PREMUL_SUM) {
    made.scaled = std::make_shared<ScaledSum>(factor_of(op), computed, made.wire.type, comm);
    made.op = made.scaled->op();
  }
  return made;
}

}  // namespace weft_torch
