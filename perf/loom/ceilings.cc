// Each operator alone, on random numbers: a GPU multiplies zeros faster.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include "device/cuda/compute.h"
#include "device/cuda/operators.h"
#include "loom/probe.h"
#include "model/recipe.h"
#include "program/job.h"

namespace loom::probe {
namespace {

/// A device with all that operators take, and the time of what is queued there.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> open(int gpu, int repeats) {
    std::unique_ptr<Bench> bench(new Bench);
    bench->repeats_ = repeats;
    Result<std::unique_ptr<cuda::Device>> device = cuda::Device::open(gpu);
    LOOM_TRY(device.status());
    bench->device_ = device.take();
    Result<std::unique_ptr<device::Queue>> queue = bench->device_->make_queue();
    LOOM_TRY(queue.status());
    bench->queue_ = queue.take();
    Result<std::unique_ptr<cuda::Kernels>> kernels = cuda::Kernels::load(*bench->device_);
    LOOM_TRY(kernels.status());
    bench->kernels_ = kernels.take();
    Result<std::unique_ptr<cuda::Products>> products = cuda::Products::create(*bench->device_, {});
    LOOM_TRY(products.status());
    bench->products_ = products.take();
    Result<std::unique_ptr<cuda::Compute>> compute =
        cuda::Compute::create(*bench->device_, *bench->queue_, *bench->kernels_, *bench->products_);
    LOOM_TRY(compute.status());
    bench->compute_ = compute.take();
    return bench;
  }

  cuda::Device& device() { return *device_; }
  cuda::Queue& queue() { return static_cast<cuda::Queue&>(*queue_); }
  device::Context context() { return *compute_; }

  /// Milliseconds of one call, the mean of many in a row.
  template <typename Work>
  Result<double> ms_of(Work&& work) {
    work();  // loads kernels, and chooses how a product is done
    LOOM_TRY(queue_->drain());
    const cuda::Scope scope(*device_);
    Status made_begin, made_end;
    const cuda::TimedEvent begin(made_begin), end(made_end);
    LOOM_TRY(made_begin);
    LOOM_TRY(made_end);
    LOOM_TRY(begin.record(queue().stream()));
    for (int i = 0; i < repeats_; ++i) work();
    LOOM_TRY(end.record(queue().stream()));
    LOOM_TRY(queue_->drain());
    const Result<float> ms = end.ms_since(begin);
    LOOM_TRY(ms.status());
    return double{*ms} / repeats_;
  }

 private:
  Bench() = default;
  int repeats_ = 1;
  std::unique_ptr<cuda::Device> device_;
  std::unique_ptr<device::Queue> queue_;
  std::unique_ptr<cuda::Kernels> kernels_;
  std::unique_ptr<cuda::Products> products_;
  std::unique_ptr<cuda::Compute> compute_;
};

template <typename T>
class Ceilings {
 public:
  Ceilings(const CeilingOptions& options, Bench& bench) : o_(options), bench_(bench) {}

  Status measure() {
    LOOM_TRY(copy());
    LOOM_TRY(linear("the square product", o_.cube, o_.cube, o_.cube, false));
    const int64_t rows = o_.batch * o_.tokens, c = o_.width;
    Sum products;
    sum_ = &products;
    for (const auto& [name, in, out] :
         {std::tuple("qkv", c, 3 * c), {"projection", c, c}, {"up", c, 4 * c}, {"down", 4 * c, c}})
      LOOM_TRY(linear(name, rows, in, out, true));
    LOOM_TRY(head(rows));
    sum_ = nullptr;
    LOOM_TRY(head(model::kHeadRows));  // each piece of rows reads and writes the gradient of the embedding
    print_sum("all products of a step", products);
    Sum attention;
    sum_ = &attention;
    LOOM_TRY(attend());
    print_sum("all attention of a step", attention);
    return {};
  }

 private:
  struct Sum {
    double ms = 0, flops = 0;
  };

  /// Random numbers of about the size that activations have.
  Result<T*> random(int64_t count) {
    constexpr int64_t kPiece = 1 << 24;
    const auto take = [&](int64_t bytes) -> Result<std::byte*> {
      Result<device::Memory> memory = bench_.device().allocate(bytes);
      LOOM_TRY(memory.status());
      return memory_.emplace_back(memory.take()).data();
    };
    if (piece_ == nullptr) {
      const Result<std::byte*> piece = take(kPiece * static_cast<int64_t>(sizeof(float)));
      LOOM_TRY(piece.status());
      piece_ = reinterpret_cast<float*>(*piece);
    }
    const Result<std::byte*> taken = take(count * static_cast<int64_t>(sizeof(T)));
    LOOM_TRY(taken.status());
    T* const values = reinterpret_cast<T*>(*taken);
    for (int64_t first = 0; first < count; first += kPiece) {
      const int64_t n = std::min(kPiece, count - first);
      table_.normal(bench_.context(), {1, 0, 0}, static_cast<uint64_t>(first), 0.5f, piece_, n);
      table_.convert(bench_.context(), piece_, values + first, n);
    }
    return values;
  }
  /// Several arrays of random numbers, in memory that the last ones have had.
  template <size_t count>
  Result<std::array<T*, count>> arrays(const std::array<int64_t, count>& sizes) {
    LOOM_TRY(bench_.queue().drain());
    memory_.clear();
    piece_ = nullptr;
    std::array<T*, count> all{};
    for (size_t i = 0; i < count; ++i) {
      const Result<T*> one = random(sizes[i]);
      LOOM_TRY(one.status());
      all[i] = *one;
    }
    return all;
  }
  /// As many elements of T as take the memory of fp32.
  static int64_t floats(int64_t count) { return count * static_cast<int64_t>(sizeof(float) / sizeof(T)); }

  template <typename Work>
  Status time(const std::string& what, double calls, double flops, Work&& work) {
    const Result<double> ms = bench_.ms_of(work);
    LOOM_TRY(ms.status());
    fmt::print(R"({{"what": "{}", "calls a step": {}, "ms": {:.4f}, "TFLOP/s": {:.1f}}})"
               "\n",
               what, calls, *ms, flops / *ms * 1e-9);
    std::fflush(stdout);
    if (sum_ == nullptr) return {};
    sum_->ms += calls * *ms;
    sum_->flops += calls * flops;
    return {};
  }
  static void print_sum(const char* what, const Sum& sum) {
    fmt::print(R"({{"what": "{}", "ms": {:.3f}, "TFLOP/s": {:.1f}}})"
               "\n",
               what, sum.ms, sum.flops / sum.ms * 1e-9);
    std::fflush(stdout);
  }

  Status copy() {
    const int64_t bytes = o_.copy_bytes;
    const auto arrays =
        this->arrays<2>({bytes / static_cast<int64_t>(sizeof(T)), bytes / static_cast<int64_t>(sizeof(T))});
    LOOM_TRY(arrays.status());
    const Result<double> ms =
        bench_.ms_of([&, to = (*arrays)[0], from = (*arrays)[1]] { bench_.queue().copy(to, from, bytes); });
    LOOM_TRY(ms.status());
    fmt::print(
        R"({{"what": "a copy inside the device, read and written", "bytes": {}, "ms": {:.4f}, "GB/s": {:.0f}}})"
        "\n",
        bytes, *ms, 2.0 * static_cast<double>(bytes) / *ms * 1e-6);
    std::fflush(stdout);
    return {};
  }

  /// A linear layer's products as training has them, with biases; or y = x·W alone.
  Status linear(const std::string& name, int64_t rows, int64_t in, int64_t out, bool trains) {
    const auto arrays =
        this->arrays<6>({rows * in, in * out, floats(out), rows * out, floats(in * out), rows * in});
    LOOM_TRY(arrays.status());
    T *const x = (*arrays)[0], *const w = (*arrays)[1], *const bias = (*arrays)[2], *const y = (*arrays)[3],
             *const gradient = (*arrays)[4], *const dx = (*arrays)[5];
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
    const std::string sizes = fmt::format(", {} rows, {} to {}", rows, in, out);
    const device::Context context = bench_.context();
    const auto calls = static_cast<double>(o_.layers);
    LOOM_TRY(time(name + (trains ? " forward" : "") + sizes, trains ? calls : 0, flops,
                  [&] { table_.linear_forward(context, x, w, trains ? bias : nullptr, y, rows, in, out); }));
    if (!trains) return {};
    LOOM_TRY(time(name + " backward to the input" + sizes, calls, flops,
                  [&] { table_.linear_backward_input(context, y, w, dx, rows, in, out); }));
    float *const dw = reinterpret_cast<float*>(gradient), *const dbias = reinterpret_cast<float*>(bias);
    return time(name + " backward to the weight" + sizes, calls, flops,
                [&] { table_.linear_backward_weight(context, x, y, dw, dbias, rows, in, out); });
  }

  /// The logits and their derivatives, of so many rows at once.
  Status head(int64_t most) {
    const int64_t all = o_.batch * o_.tokens, rows = std::min(most, all), c = o_.width, v = o_.vocabulary;
    const auto arrays =
        this->arrays<5>({rows * c, v * c, rows * ops::padded_logits(v), rows * c, floats(v * c)});
    LOOM_TRY(arrays.status());
    T *const x = (*arrays)[0], *const w = (*arrays)[1], *const logits = (*arrays)[2],
             *const dx = (*arrays)[3], *const gradient = (*arrays)[4];
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(c) * static_cast<double>(v);
    const auto calls = std::ceil(static_cast<double>(all) / static_cast<double>(rows));
    const device::Context context = bench_.context();
    LOOM_TRY(time(fmt::format("logits of {} rows at once", rows), calls, flops,
                  [&] { table_.head_forward(context, x, w, nullptr, logits, rows, c, v); }));
    float* const dw = reinterpret_cast<float*>(gradient);
    return time(fmt::format("logits of {} rows at once, backward", rows), calls, 2 * flops,
                [&] { table_.head_backward(context, logits, x, w, dx, dw, nullptr, true, rows, c, v); });
  }

  Status attend() {
    ops::AttentionShape shape;
    shape.batch = o_.batch, shape.tokens = o_.tokens, shape.heads = o_.heads;
    shape.head_size = o_.width / o_.heads;
    shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_size));
    const int64_t rows = o_.batch * o_.tokens, c = o_.width;
    const auto arrays =
        this->arrays<5>({3 * rows * c, rows * c, floats(rows * o_.heads), rows * c, 3 * rows * c});
    LOOM_TRY(arrays.status());
    T *const qkv = (*arrays)[0], *const out = (*arrays)[1], *const statistics = (*arrays)[2],
             *const dout = (*arrays)[3], *const dqkv = (*arrays)[4];
    float* const lse = reinterpret_cast<float*>(statistics);
    // Half of the square of scores is computed: two products forward, five backward.
    const double flops =
        2.0 * static_cast<double>(rows) * static_cast<double>(o_.tokens) * static_cast<double>(c);
    const device::Context context = bench_.context();
    const auto calls = static_cast<double>(o_.layers);
    LOOM_TRY(time("attention forward", calls, flops,
                  [&] { table_.attention_forward(context, shape, qkv, out, lse); }));
    return time("attention backward", calls, 2.5 * flops,
                [&] { table_.attention_backward(context, shape, qkv, out, lse, dout, dqkv); });
  }

  const CeilingOptions& o_;
  Bench& bench_;
  const ops::Operators<T>& table_ = cuda::operators<T>();
  std::deque<device::Memory> memory_;
  float* piece_ = nullptr;
  Sum* sum_ = nullptr;  // of what is measured now
};

}  // namespace

Status measure_ceilings(const CeilingOptions& options) {
  if (options.width % options.heads != 0)
    return fail(Code::invalid_argument, "--width is {}, must be a multiple of --heads, {}", options.width,
                options.heads);
  LOOM_TRY(cuda::check_sizes(options.width, options.width / options.heads));
  Result<std::unique_ptr<Bench>> bench = Bench::open(options.gpu, options.repeats);
  LOOM_TRY(bench.status());
  const auto precision = options.precision == "fp32"   ? program::Precision::fp32
                         : options.precision == "fp16" ? program::Precision::fp16
                                                       : program::Precision::bf16;
  return program::with_type(precision,
                            [&]<typename T>(T) { return Ceilings<T>(options, **bench).measure(); });
}

}  // namespace loom::probe
