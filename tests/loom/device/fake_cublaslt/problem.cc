// Checks as the library's documentation has them, and plain loops.
#include "loom/device/fake_cublaslt/problem.h"

#include <cmath>

#include "base/fp16.h"

namespace fake_lt {
namespace {

bool is_short(int type) { return type != kLtFloat32; }

/// Whether the library multiplies such inputs into such an output, with sums in fp32.
bool are_types_supported(const Problem& p) {
  if (p.desc.scale_type != kLtFloat32 || p.a.type != p.b.type || p.c.type != p.d.type) return false;
  if (p.desc.compute != kLtComputeFloat32 && !(p.desc.compute == kLtComputeTf32 && p.a.type == kLtFloat32))
    return false;
  return p.d.type == p.a.type || (is_short(p.a.type) && p.d.type == kLtFloat32);
}

bool are_shapes_right(const Problem& p) {
  const int64_t a_rows = p.desc.transpose_a ? p.a.columns : p.a.rows,
                b_rows = p.desc.transpose_b ? p.b.columns : p.b.rows,
                b_columns = p.desc.transpose_b ? p.b.rows : p.b.columns;
  for (const LtLayout* each : {&p.a, &p.b, &p.c, &p.d})
    if (each->rows <= 0 || each->columns <= 0 || each->ld < each->rows) return false;
  return a_rows == p.m() && b_rows == p.k() && b_columns == p.n() && p.c.rows == p.m() &&
         p.c.columns == p.n();
}

int check_epilogue(const Problem& p) {
  switch (p.desc.epilogue) {
    case kLtEpilogueDefault: return kLtSuccess;
    case kLtEpilogueBias:
    case kLtEpilogueGeluAux:
    case kLtEpilogueGeluAuxBias:
    case kLtEpilogueDgelu:
    case kLtEpilogueBgradA:
    case kLtEpilogueBgradB: break;
    default: return kLtNotSupported;
  }
  if ((p.adds_bias() || p.sums()) && p.desc.bias == nullptr) return kLtInvalidValue;
  if (p.desc.bias_type >= 0 && p.desc.bias_type != p.d.type) return kLtNotSupported;
  if (p.sums() && p.beta != 0) return kLtNotSupported;
  if (p.has_aux()) {
    if (p.desc.aux == nullptr || p.desc.aux_ld % 8 != 0 || p.desc.aux_ld < p.m()) return kLtInvalidValue;
    if (reinterpret_cast<uintptr_t>(p.desc.aux) % 16 != 0) return kLtInvalidValue;
  }
  // Stricter than the library may be: an epilogue wants whole words of 16 bytes everywhere.
  for (const LtLayout* each : {&p.a, &p.b, &p.d})
    if (each->ld * size_of(each->type) % 16 != 0) return kLtNotSupported;
  return reinterpret_cast<uintptr_t>(p.desc.bias) % 16 == 0 ? kLtSuccess : kLtNotSupported;
}

float read(const void* from, int type, int64_t i) {
  switch (type) {
    case kLtBfloat16: return to_float(static_cast<const loom::bf16*>(from)[i]);
    case kLtFloat16: return to_float(static_cast<const loom::fp16*>(from)[i]);
    default: return static_cast<const float*>(from)[i];
  }
}

void write(void* to, int type, int64_t i, float x) {
  switch (type) {
    case kLtBfloat16: static_cast<loom::bf16*>(to)[i] = loom::to_bf16(x); break;
    case kLtFloat16: static_cast<loom::fp16*>(to)[i] = loom::to_fp16(x); break;
    default: static_cast<float*>(to)[i] = x;
  }
}

constexpr float kGelu = 0.7978845608f, kGeluCube = 0.044715f;  // √(2/π)

float gelu(float x) { return 0.5f * x * (1 + std::tanh(kGelu * (x + kGeluCube * x * x * x))); }

float gelu_derivative(float x) {
  const float t = std::tanh(kGelu * (x + kGeluCube * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kGelu * (1 + 3 * kGeluCube * x * x);
}

/// A sum over k, made of parts.
template <typename Term>
float sum_over(int64_t k, int parts, Term term) {
  float sum = 0;
  for (int part = 0; part < parts; ++part) {
    float of_part = 0;
    for (int64_t i = part * k / parts; i < (part + 1) * k / parts; ++i) of_part += term(i);
    sum += of_part;
  }
  return sum;
}

}  // namespace

int64_t size_of(int type) { return is_short(type) ? 2 : 4; }

uint64_t extent_of(const LtLayout& layout) {
  return static_cast<uint64_t>(((layout.columns - 1) * layout.ld + layout.rows) * size_of(layout.type));
}

int Problem::check() const {
  if (!are_types_supported(*this)) return kLtNotSupported;
  if (!are_shapes_right(*this) || c.ld != d.ld) return kLtInvalidValue;
  return check_epilogue(*this);
}

uint64_t Problem::hash() const {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](int64_t value) { hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001b3; };
  for (const LtLayout* each : {&a, &b, &d})
    for (const int64_t value : {int64_t{each->type}, each->rows, each->columns, each->ld}) add(value);
  for (const int64_t value : {int64_t{desc.compute}, int64_t{desc.transpose_a}, int64_t{desc.transpose_b},
                              int64_t{desc.epilogue}, desc.aux_ld})
    add(value);
  return hash;
}

void compute(const Problem& p, const void* a, const void* b, void* d, void* bias, void* aux) {
  const auto a_at = [&](int64_t i, int64_t l) {
    return read(a, p.a.type, p.desc.transpose_a ? i * p.a.ld + l : l * p.a.ld + i);
  };
  const auto b_at = [&](int64_t l, int64_t j) {
    return read(b, p.b.type, p.desc.transpose_b ? l * p.b.ld + j : j * p.b.ld + l);
  };
  for (int64_t j = 0; j < p.n(); ++j)
    for (int64_t i = 0; i < p.m(); ++i) {
      const int64_t at = j * p.d.ld + i, at_aux = j * p.desc.aux_ld + i;
      float x = p.alpha * sum_over(p.k(), p.parts, [&](int64_t l) { return a_at(i, l) * b_at(l, j); });
      if (p.beta != 0) x += p.beta * read(d, p.d.type, at);
      if (p.adds_bias()) x += read(bias, p.d.type, i);
      if (p.has(kLtEpilogueDgelu)) {
        x *= gelu_derivative(read(aux, p.d.type, at_aux));
      } else if (p.has_aux()) {
        write(aux, p.d.type, at_aux, x);
        x = gelu(x);
      }
      write(d, p.d.type, at, x);
    }
  if (!p.sums()) return;
  for (int64_t i = 0; i < p.bias_length(); ++i)
    write(bias, p.d.type, i, sum_over(p.k(), p.parts, [&](int64_t l) {
            return p.has(kLtEpilogueBgradA) ? a_at(i, l) : b_at(l, i);
          }));
}

}  // namespace fake_lt
