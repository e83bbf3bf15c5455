#include "format/float16.h"

#include <cstring>

#include "base/fp16.h"

namespace loom::format {
namespace {

/// Elements of `Stored` at any alignment, one by one.
template <typename Stored, typename Convert>
void load(std::span<const std::byte> bytes, std::span<float> into, Convert convert) {
  for (size_t i = 0; i < into.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    into[i] = convert(stored);
  }
}

template <typename Stored, typename Convert>
void store(std::span<const float> values, std::span<std::byte> into, Convert convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(into.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

Status check_length(DType dtype, size_t bytes, size_t elements) {
  if (dtype_bytes(dtype, elements) == bytes) return {};
  return fail(Code::invalid_argument, "{} bytes, must be {} for {} elements of {}", bytes,
              dtype_bytes(dtype, elements).value_or(0), elements, dtype_name(dtype));
}

Status no_float(DType dtype) {
  return fail(Code::unsupported, "elements are {}, must be F16, BF16, F32 or F64", dtype_name(dtype));
}

}  // namespace

Status to_f32(DType dtype, std::span<const std::byte> bytes, std::span<float> into) {
  if (dtype != DType::f16 && dtype != DType::bf16 && dtype != DType::f32 && dtype != DType::f64)
    return no_float(dtype);
  LOOM_TRY(check_length(dtype, bytes.size(), into.size()));
  switch (dtype) {
    case DType::f16: load<fp16>(bytes, into, [](fp16 v) { return to_float(v); }); break;
    case DType::bf16: load<bf16>(bytes, into, [](bf16 v) { return to_float(v); }); break;
    case DType::f64: load<double>(bytes, into, [](double v) { return static_cast<float>(v); }); break;
    default:
      if (!into.empty()) std::memcpy(into.data(), bytes.data(), bytes.size());
  }
  return {};
}

Status from_f32(DType dtype, std::span<const float> values, std::span<std::byte> into) {
  if (dtype != DType::f16 && dtype != DType::bf16 && dtype != DType::f32 && dtype != DType::f64)
    return no_float(dtype);
  LOOM_TRY(check_length(dtype, into.size(), values.size()));
  switch (dtype) {
    case DType::f16: store<fp16>(values, into, to_fp16); break;
    case DType::bf16: store<bf16>(values, into, to_bf16); break;
    case DType::f64: store<double>(values, into, [](float v) { return static_cast<double>(v); }); break;
    default:
      if (!into.empty()) std::memcpy(into.data(), values.data(), into.size());
  }
  return {};
}

}  // namespace loom::format
