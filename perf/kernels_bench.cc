// Google Benchmark program of the device layer: reductions and copies against memcpy, in bytes moved to and
// from memory (every source read once, the destination written once). It does not measure communication.
//
//   kernels_bench --benchmark_filter='sum/float/.*' --benchmark_repetitions=5
//   --benchmark_report_aggregates_only
//
// Names are reduce/OP/TYPE/SOURCES/BYTES, with BYTES those of one source.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <vector>

#include "device/kernels.h"
#include "device/reduce.h"

namespace weft::device {
namespace {

/// Zeroed, touched memory that starts on a page.
class Buffer {
 public:
  explicit Buffer(size_t bytes)
      : data_(static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) & ~size_t{4095}))) {
    std::memset(data_.get(), 0, bytes);
  }
  char* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
};

void count_bytes(benchmark::State& state, size_t arrays, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(arrays * bytes));
}

/// With more sources than fit, the same ones again and again would be cheaper than life; `n` arrays of their
/// own each.
void reduce_bench(benchmark::State& state, const Kernels& kernels, Reduction reduction, int n, size_t bytes,
                  bool in_place) {
  std::vector<Buffer> buffers;
  for (int i = 0; i <= n; ++i) buffers.emplace_back(bytes);
  std::vector<const void*> sources;
  for (int i = 0; i < n; ++i) sources.push_back(buffers[static_cast<size_t>(i)].get());
  void* dst = in_place ? buffers[0].get() : buffers[static_cast<size_t>(n)].get();
  const size_t count = bytes / size_of(reduction.type);
  for (auto _ : state) {
    reduce_with(kernels, reduction, dst, sources.data(), n, count);
    benchmark::ClobberMemory();
  }
  count_bytes(state, static_cast<size_t>(n) + 1, bytes);
}

template <typename Copy>
void copy_bench(benchmark::State& state, const Copy& copy, size_t bytes) {
  const Buffer from(bytes), to(bytes);
  for (auto _ : state) {
    copy(to.get(), from.get(), bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2, bytes);
}

void add_reduction(const Kernels& kernels, const std::string& prefix, Reduction r, int n, size_t bytes,
                   bool in_place = false) {
  const std::string name = fmt::format("{}/{}/{}/{}/{}", prefix, name_of(r.op), name_of(r.type), n, bytes);
  benchmark::RegisterBenchmark(name.c_str(), [=, &kernels](benchmark::State& state) {
    reduce_bench(state, kernels, r, n, bytes, in_place);
  });
}

/// A pre-multiplied contribution: every element times a scalar.
void scale_bench(benchmark::State& state, DataType type, size_t bytes) {
  const Buffer from(bytes), to(bytes);
  const uint64_t scalar = 0;  // of any type
  for (auto _ : state) {
    scale(type, to.get(), from.get(), bytes / size_of(type), &scalar);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2, bytes);
}

void add_all() {
  constexpr size_t kSizes[] = {64, 4 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20};
  for (const size_t bytes : kSizes) {
    benchmark::RegisterBenchmark(fmt::format("memcpy/{}", bytes).c_str(), [=](benchmark::State& state) {
      copy_bench(
          state, [](void* to, const void* from, size_t n) { std::memcpy(to, from, n); }, bytes);
    });
    benchmark::RegisterBenchmark(fmt::format("copy/{}", bytes).c_str(), [=](benchmark::State& state) {
      copy_bench(
          state, [](void* to, const void* from, size_t n) { copy(to, from, n); }, bytes);
    });
    benchmark::RegisterBenchmark(fmt::format("stream/{}", bytes).c_str(), [=](benchmark::State& state) {
      copy_bench(state, kernels().stream, bytes);
    });
    for (int t = 0; t < kDataTypes; ++t) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min}) {
        add_reduction(kernels(), "reduce", {static_cast<DataType>(t), op}, 2, bytes);
      }
      const Reduction sum{static_cast<DataType>(t), ReduceOp::sum};
      add_reduction(kernels(), "in_place", sum, 2, bytes, true);
      for (const int n : {3, 4, 8}) add_reduction(kernels(), "reduce", sum, n, bytes);
      add_reduction(kernels(), "tree", {sum.type, sum.op, Order::tree}, 8, bytes);
      const DataType type = sum.type;
      benchmark::RegisterBenchmark(fmt::format("scale/{}/{}", name_of(type), bytes).c_str(),
                                   [=](benchmark::State& state) { scale_bench(state, type, bytes); });
      // All weights are no power of two for two and for eight sources.
      static constexpr uint32_t kWeights[] = {2, 1, 1, 1, 1, 1, 1, 1};
      for (const int n : {2, 3, 8})
        add_reduction(kernels(), "reduce", {sum.type, ReduceOp::avg, Order::sequential, 3, kWeights}, n,
                      bytes);
      for (const Isa isa : {Isa::baseline, Isa::avx2}) {
        if (const Kernels* table = kernels_for(isa)) add_reduction(*table, table->name, sum, 2, bytes);
      }
    }
  }
  for (const DataType type : {DataType::float32, DataType::float16, DataType::int8}) {
    for (const size_t count : {1, 2, 5, 16})
      add_reduction(kernels(), "few", {type}, 2, count * size_of(type));
  }
}

}  // namespace
}  // namespace weft::device

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  weft::device::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
