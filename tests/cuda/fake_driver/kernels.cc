// The fake driver's kernels: the arithmetic of reduce.cu, every thread of a launch one after the other.
#include "cuda/fake_driver/races.h"
#include "cuda/fake_driver/world.h"
#include "device/cuda/reduce_range.h"

namespace fake {
namespace {

DevicePointer address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

/// Whether all memory of a reduction is there; its addresses then are.
bool resolve(ReduceArguments& arguments, size_t element_bytes, int ordinal) {
  const size_t bytes = arguments.count * element_bytes;
  if (arguments.sources > kMaxSources) return false;
  std::vector<Access> accesses{{address_of(arguments.out), bytes, true}};
  for (uint32_t s = 0; s < arguments.sources; ++s)
    accesses.push_back({address_of(arguments.source[s]), bytes, false});
  note_accesses("a reduction", accesses);
  arguments.out = bytes_for_kernel(arguments.out, bytes, ordinal);
  if (!arguments.out) return false;
  for (uint32_t s = 0; s < arguments.sources; ++s) {
    arguments.source[s] = bytes_for_kernel(arguments.source[s], bytes, ordinal);
    if (!arguments.source[s]) return false;
  }
  return true;
}

template <typename Type>
void reduce(const void* passed, int ordinal, uint64_t threads) {
  ReduceArguments arguments = *static_cast<const ReduceArguments*>(passed);
  if (!resolve(arguments, sizeof(typename Type::Storage), ordinal)) return illegal_address(ordinal);
  for (uint64_t thread = 0; thread < threads; ++thread) reduce_range<Type>(arguments, thread, threads);
}

template <typename Type>
void mean(const void* passed, int ordinal, uint64_t threads) {
  MeanArguments arguments = *static_cast<const MeanArguments*>(passed);
  if (!resolve(arguments.reduce, sizeof(typename Type::Storage), ordinal)) return illegal_address(ordinal);
  for (uint64_t thread = 0; thread < threads; ++thread) mean_range<Type>(arguments, thread, threads);
}

template <typename Type>
void scale(const void* passed, int ordinal, uint64_t threads) {
  ScaleArguments arguments = *static_cast<const ScaleArguments*>(passed);
  const size_t bytes = arguments.count * sizeof(typename Type::Storage);
  note_accesses("a scaling",
                {{address_of(arguments.out), bytes, true}, {address_of(arguments.in), bytes, false}});
  arguments.out = bytes_for_kernel(arguments.out, bytes, ordinal);
  arguments.in = bytes_for_kernel(arguments.in, bytes, ordinal);
  if (!arguments.out || !arguments.in) return illegal_address(ordinal);
  for (uint64_t thread = 0; thread < threads; ++thread) scale_range<Type>(arguments, thread, threads);
}

}  // namespace

FunctionHandle* kernel_named(const std::string& name) {
#define WEFT_ENTRY(type, Type)                                     \
  {"weft_reduce_" #type, {reduce<Type>, sizeof(ReduceArguments)}}, \
      {"weft_scale_" #type, {scale<Type>, sizeof(ScaleArguments)}},
#define WEFT_MEAN_ENTRY(type, Type) {"weft_mean_" #type, {mean<Type>, sizeof(MeanArguments)}},
  static std::map<std::string, FunctionHandle> kernels{WEFT_EACH_KERNEL_TYPE(WEFT_ENTRY)
                                                           WEFT_EACH_FLOAT_KERNEL_TYPE(WEFT_MEAN_ENTRY)};
#undef WEFT_ENTRY
#undef WEFT_MEAN_ENTRY
  auto found = kernels.find(name);
  if (found != kernels.end()) return &found->second;
  FunctionHandle* const plan = plan_kernel_named(name);
  return plan ? plan : added_kernel_named(name);
}

}  // namespace fake
