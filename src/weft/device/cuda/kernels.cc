#include "device/cuda/kernels.h"

#include <algorithm>
#include <cstring>

#include "device/cuda/reduce_range.h"
#include "device/kernels.h"

namespace weft::device::cuda {
namespace {

constexpr unsigned kThreads = 512;     // of a block; reduce.cu's launch bound
constexpr size_t kBytesOfThread = 64;  // of a source: fewer would not pay for another block

}  // namespace

const char* kernel_suffix(DataType type) {
  constexpr const char* suffix[kDataTypes] = {"int8",    "uint8",    "int32",      "uint32",
                                              "int64",   "uint64",   "float16",    "float32",
                                              "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return suffix[static_cast<int>(type)];
}

Result<std::unique_ptr<Kernels>> Kernels::load(Device& device, int blocks) {
  const std::span<const std::byte> image = kernel_image();
  if (image.empty())
    return fail(Code::unsupported, "this build of Weft has no GPU kernels: it was made without nvcc");
  const Scope scope(device);
  const Driver& d = **driver();
  ModuleHandle* module = nullptr;
  if (Status loaded = check(d.module_load_data(&module, image.data()), "cuModuleLoadData"); !loaded)
    return fail(Code::unsupported, "the GPU kernels of this build do not run on {}: {}", device.describe(),
                loaded.message());
  std::unique_ptr<Kernels> kernels(new Kernels(blocks));
  for (int type = 0; type < kDataTypes; ++type) {
    const auto find = [&](const char* what, FunctionHandle*& into) {
      const std::string name = fmt::format("weft_{}_{}", what, kernel_suffix(static_cast<DataType>(type)));
      return check(d.module_get_function(&into, module, name.c_str()), name);
    };
    WEFT_TRY(find("reduce", kernels->reduce_[type]));
    WEFT_TRY(find("scale", kernels->scale_[type]));
    if (is_float(static_cast<DataType>(type))) WEFT_TRY(find("mean", kernels->mean_[type]));
  }
  return kernels;
}

bool Kernels::takes(int sources) { return sources <= static_cast<int>(kMaxSources); }

Status Kernels::reduce(Queue& queue, const Reduction& reduction, void* dst, const void* const* sources, int n,
                       size_t count) const {
  const size_t element_bytes = size_of(reduction.type);
  if (count == 0) return {};
  const bool floats = is_float(reduction.type), mean = floats && reduction.op == ReduceOp::avg;
  uint32_t divisor = 1;
  if (mean) divisor = total_of(reduction.weights, n);
  else if (reduction.op == ReduceOp::avg) divisor = reduction.divisor;
  if (n == 1 && (floats || divisor <= 1))
    return dst == sources[0] ? Status() : queue.copy(dst, sources[0], count * element_bytes);
  const Combiner combiner = combiner_of(reduction.op);
  const bool ordered = floats && (combiner == Combiner::sum || combiner == Combiner::prod);
  MeanArguments with_weights;
  ReduceArguments& arguments = with_weights.reduce;
  arguments.out = dst;
  arguments.count = count;
  arguments.sources = static_cast<uint32_t>(n);
  arguments.divisor = divisor;
  arguments.op = static_cast<uint32_t>(combiner);
  arguments.tree = ordered && reduction.order == Order::tree;
  std::copy_n(sources, n, arguments.source);
  if (mean) {
    if (reduction.weights) std::copy_n(reduction.weights, n, with_weights.weight);
    else std::fill_n(with_weights.weight, n, 1);
    return launch(queue, mean_[static_cast<int>(reduction.type)], count, element_bytes, &with_weights);
  }
  return launch(queue, reduce_[static_cast<int>(reduction.type)], count, element_bytes, &arguments);
}

Status Kernels::scale(Queue& queue, DataType type, void* dst, const void* src, size_t count,
                      const void* scalar) const {
  if (count == 0) return {};
  ScaleArguments arguments{dst, src, count, {}};
  std::memcpy(arguments.scalar, scalar, size_of(type));
  return launch(queue, scale_[static_cast<int>(type)], count, size_of(type), &arguments);
}

Status Kernels::launch(Queue& queue, FunctionHandle* kernel, size_t count, size_t element_bytes,
                       void* arguments) const {
  const size_t of_block = kThreads * kBytesOfThread;
  const size_t wanted = (count * element_bytes + of_block - 1) / of_block;
  const unsigned blocks = static_cast<unsigned>(std::min(wanted, static_cast<size_t>(blocks_)));
  void* parameters[] = {arguments};
  return check((*driver())->launch_kernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, queue.stream(), parameters,
                                          nullptr),
               "a reduction on the GPU (cuLaunchKernel)");
}

}  // namespace weft::device::cuda
