// nccl-tests' own checker, run by the CPU: its source, as it was found, compiled as plain C++, and its
// kernels made known to the fake runtime. VERIFIABLE is a copy without the statement that launches its
// self-test with
// <<<…>>>, which C++ does not know.
#include <cuda_runtime.h>

#include "kernels.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#define threadIdx fake_runtime::t_place.thread
#define blockIdx fake_runtime::t_place.block
#define blockDim fake_runtime::t_place.block_size
#define gridDim fake_runtime::t_place.grid_size

// The one instruction of a GPU that stands in the source, for x86: adds to what an address points to.
asm(R"(
.macro red.global.add.u64 address, value
.intel_syntax prefix
lock add qword ptr \address, \value
.att_syntax prefix
.endm
)");

#include VERIFIABLE

namespace {

template <typename Element, typename Bits, typename Operator>
void add_kernels_of() {
  fake_runtime::add_kernel(&prepareInput2<Element, Operator>);
  fake_runtime::add_kernel(&prepareExpected2<Element, Operator>);
  fake_runtime::add_kernel(&verifyInline2<Element, Bits, Operator>);
}

template <typename Element, typename Bits>
void add_kernels() {
  add_kernels_of<Element, Bits, ReduceNil>();
  add_kernels_of<Element, Bits, ReduceSum>();
  add_kernels_of<Element, Bits, ReduceProd>();
  add_kernels_of<Element, Bits, ReduceMin>();
  add_kernels_of<Element, Bits, ReduceMax>();
  add_kernels_of<Element, Bits, ReduceAvg>();
  add_kernels_of<Element, Bits, ReducePreMulSum>();
  fake_runtime::add_kernel(&verifyPrepared<Bits>);
}

[[maybe_unused]] const bool g_added = [] {
  add_kernels<int8_t, uint8_t>();
  add_kernels<uint8_t, uint8_t>();
  add_kernels<int32_t, uint32_t>();
  add_kernels<uint32_t, uint32_t>();
  add_kernels<int64_t, uint64_t>();
  add_kernels<uint64_t, uint64_t>();
  add_kernels<half, uint16_t>();
  add_kernels<__nv_bfloat16, uint16_t>();
  add_kernels<__nv_fp8_e4m3, uint8_t>();
  add_kernels<__nv_fp8_e5m2, uint8_t>();
  add_kernels<float, uint32_t>();
  add_kernels<double, uint64_t>();
  return true;
}();

}  // namespace
