// One short benchmark a kind of kernel. Each call works on other memory than the one before it.
#include "train/kernel_rates.h"

#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <type_traits>

#include "ops/operators.h"

namespace loom::train {
namespace {

using program::KernelKind;

constexpr int64_t kRows = 512, kWidth = 1024;  // of activations, and of products that are large
constexpr int64_t kSmall = 256;                // rows, depth and columns of products that are small
constexpr int64_t kElements = kRows * kWidth;
constexpr size_t kBytes = 32 << 20;    // of all memory that kernels work on
constexpr size_t kLongest = 16 << 20;  // … and one call at most
constexpr int kCalls = 4;              // of each kernel, of which the first does not count

double seconds_of_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Where the operands of a call are: those of forward passes were written just before; saved activations,
/// gradients and states were last used long ago.
enum class Data { recent, cold };

/// Takes memory out of all caches, where the CPU can.
void evict(const std::byte* from, size_t bytes) {
#ifdef __SSE2__
  for (size_t at = 0; at < bytes; at += 64) _mm_clflush(from + at);
  _mm_mfence();
#else
  (void)from, (void)bytes;
#endif
}

template <typename T>
class Measurement {
 public:
  using A = acc_t<T>;

  Measurement(Workers& workers, const program::Job& job, program::Machine& machine)
      : workers_(workers),
        job_(job),
        machine_(machine),
        memory_(std::make_unique_for_overwrite<std::byte[]>(kBytes)),
        clock_(workers.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC) {
    // Values that are neither zeros nor infinite in any type.
    T* const values = reinterpret_cast<T*>(memory_.get());
    for (size_t i = 0; i < kBytes / sizeof(T); ++i) store(values[i], A(0.25) + A(i % 7) / A(16));
  }

  void run() {
    measure_products();
    measure_attention();
    measure_rows();
    measure_elements();
    measure_ends();
    // A CPU's attention reads heads where they lie, and a gradient passes a sum as it is.
    for (const KernelKind kind :
         {KernelKind::heads, KernelKind::heads_gradient, KernelKind::residual_gradient})
      rate(kind) = std::numeric_limits<double>::infinity();
  }

 private:
  double& rate(KernelKind kind) { return machine_.device.rates[static_cast<size_t>(kind)]; }

  /// Memory for `count` elements of U, behind what was taken last.
  template <typename U>
  U* take(int64_t count) {
    const size_t bytes = (static_cast<size_t>(count) * sizeof(U) + 4095) / 4096 * 4096;
    if (at_ + bytes > kBytes) at_ = 0;
    U* const taken = reinterpret_cast<U*>(memory_.get() + at_);
    at_ += bytes;
    return taken;
  }

  /// Brings what the next call takes into a cache that cores share, or out of all.
  void prepare(Data data) {
    const size_t from = at_ + kLongest > kBytes ? 0 : at_;
    at_ = from;
    if (data == Data::cold) return evict(memory_.get() + from, kLongest);
    uint64_t sum = 0;
    for (size_t at = from; at < from + kLongest; at += 64) sum += static_cast<uint64_t>(memory_[at]);
    touched_ = sum;
  }

  /// Seconds of a call.
  template <typename F>
  double seconds_of(Data data, F&& call) {
    std::array<double, kCalls - 1> seconds{};
    for (int i = 0; i < kCalls; ++i) {
      prepare(data);
      const double begin = seconds_of_clock(clock_);
      call();
      const double passed = std::max(1e-9, seconds_of_clock(clock_) - begin);
      if (i > 0) seconds[static_cast<size_t>(i) - 1] = passed;
    }
    std::sort(seconds.begin(), seconds.end());
    return clock_ == CLOCK_MONOTONIC ? seconds.front() : seconds[seconds.size() / 2];
  }

  double product_seconds(KernelKind kind, int64_t rows, int64_t in, int64_t out) {
    const auto& op = ops::operators<T>();
    return seconds_of(kind == KernelKind::product ? Data::recent : Data::cold, [&] {
      T *x = take<T>(rows * in), *y = take<T>(rows * out);
      if (kind == KernelKind::product)
        return op.linear_forward(workers_, x, take<T>(in * out), take<T>(out), y, rows, in, out);
      if (kind == KernelKind::input_gradient)
        return op.linear_backward_input(workers_, y, take<T>(in * out), x, rows, in, out);
      op.linear_backward_weight(workers_, x, y, take<A>(in * out), take<A>(out), rows, in, out);
    });
  }

  /// t = operations / rate + bytes / bandwidth, in two sizes; the bandwidth is that of all three together.
  void measure_products() {
    struct Size {
      int64_t rows, width;
      double operations() const { return 2.0 * static_cast<double>(rows * width * width); }
      double bytes() const { return sizeof(T) * static_cast<double>(2 * rows * width + width * width); }
    };
    constexpr std::array kSizes = {Size{kSmall, kSmall}, Size{kRows, kWidth}};
    constexpr std::array kKinds = {KernelKind::product, KernelKind::input_gradient,
                                   KernelKind::weight_gradient};
    std::array<std::array<double, kKinds.size()>, 2> seconds{};
    std::array<double, 2> sums{};
    for (size_t size = 0; size < 2; ++size)
      for (size_t kind = 0; kind < kKinds.size(); ++kind) {
        seconds[size][kind] =
            product_seconds(kKinds[kind], kSizes[size].rows, kSizes[size].width, kSizes[size].width);
        sums[size] += seconds[size][kind];
      }
    const Size &small = kSizes[0], &large = kSizes[1];
    const double scale = large.operations() / small.operations();
    const double byte_seconds =
        std::max(0.0, (scale * sums[0] - sums[1]) / (scale * small.bytes() - large.bytes()) / kKinds.size());
    if (byte_seconds > 0) machine_.device.operand_bandwidth = 1 / byte_seconds;
    machine_.flops = 0;
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      const double whole = seconds[1][kind];
      machine_.flops = std::max(machine_.flops, large.operations() / whole);
      rate(kKinds[kind]) = large.operations() / std::max(0.5 * whole, whole - large.bytes() * byte_seconds);
    }
  }

  /// Over heads like the job's. Half of the pairs count where it is causal.
  void measure_attention() {
    const auto& op = ops::operators<T>();
    ops::AttentionShape shape;
    shape.batch = 1;
    shape.tokens = std::min<int64_t>(job_.tokens, kRows);
    const model::AttentionGeometry attention = job_.spec.attention();
    shape.head_size = attention.head_size;
    const int64_t heads =
        std::clamp<int64_t>(kElements / (shape.tokens * shape.head_size), 1, attention.query_heads);
    const int64_t sharing = std::min(heads, attention.query_heads / attention.key_value_heads);
    shape.key_value_heads = heads / sharing;
    shape.heads = shape.key_value_heads * sharing;
    shape.scale = job_.spec.attention_scale();
    shape.causal = job_.spec.causal;
    const int64_t elements = shape.tokens * shape.width(), of_all = shape.tokens * shape.qkv_width();
    const double operations = 4.0 * static_cast<double>(elements * shape.tokens) / (shape.causal ? 2 : 1);
    rate(KernelKind::attention) = operations / seconds_of(Data::recent, [&] {
                                    op.attention_forward(workers_, shape, take<T>(of_all), take<T>(elements),
                                                         take<A>(shape.heads * shape.tokens));
                                  });
    rate(KernelKind::attention_gradient) =
        2.5 * operations / seconds_of(Data::cold, [&] {
          // What the log of the sums is does not matter much, but exponentials must not be infinite.
          A* const lse = take<A>(shape.heads * shape.tokens);
          std::fill_n(lse, shape.heads * shape.tokens, A(20));
          op.attention_backward(workers_, shape, take<T>(of_all), take<T>(elements), lse, take<T>(elements),
                                take<T>(of_all));
        });
    machine_.device.fused_flops = rate(KernelKind::attention);
  }

  /// Bytes of so many arrays of T.
  static double arrays(double count) { return count * sizeof(T) * static_cast<double>(kElements); }

  void measure_rows() {
    const auto& op = ops::operators<T>();
    rate(KernelKind::norm) =
        arrays(2) / seconds_of(Data::recent, [&] {
          op.norm_forward(workers_, take<T>(kElements), take<T>(kWidth), take<T>(kWidth), take<T>(kElements),
                          take<A>(kRows), take<A>(kRows), kRows, kWidth, 1e-5f);
        });
    rate(KernelKind::norm_gradient) =
        arrays(4) / seconds_of(Data::cold, [&] {
          op.norm_backward(workers_, take<T>(kElements), take<T>(kWidth), take<A>(kRows), take<A>(kRows),
                           take<T>(kElements), take<T>(kElements), true, take<A>(kWidth), take<A>(kWidth),
                           kRows, kWidth);
        });
    std::array<int32_t, kRows> tokens{};
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 389 % kRows);
    // A forward pass counts 2 e + 1 bytes of an element, a loss three times 2 e.
    const double looked_up = arrays(2) + static_cast<double>(kElements);
    rate(KernelKind::embedding) =
        looked_up / seconds_of(Data::recent, [&] {
          op.embedding_forward(workers_, tokens.data(), nullptr, take<T>(kElements), take<T>(kElements),
                               nullptr, take<T>(kElements), kRows, kRows, kRows, kWidth);
        });
    rate(KernelKind::embedding_gradient) =
        2 * looked_up / seconds_of(Data::cold, [&] {
          op.embedding_backward(workers_, tokens.data(), nullptr, take<T>(kElements), take<A>(kElements),
                                take<A>(kElements), nullptr, kRows, kRows, kRows, kWidth);
        });
    std::array<double, kRows> losses{};
    rate(KernelKind::cross_entropy) =
        arrays(6) / seconds_of(Data::recent, [&] {
          op.cross_entropy(workers_, take<A>(kElements), tokens.data(), losses.data(), kRows, kWidth, A(1));
        });
  }

  void measure_elements() {
    const auto& op = ops::operators<T>();
    ops::Dropout dropout;
    dropout.probability = job_.spec.residual_dropout;
    const double sum = arrays(3) + static_cast<double>(kElements);
    rate(KernelKind::residual) = sum / seconds_of(Data::recent, [&] {
                                   op.add_dropout(workers_, dropout, take<T>(kElements), take<T>(kElements),
                                                  take<T>(kWidth), take<T>(kElements), kRows, kWidth);
                                 });
    rate(KernelKind::dropout) =
        2 * sum / seconds_of(Data::cold, [&] {
          op.dropout(workers_, dropout, take<T>(kElements), take<T>(kElements), kElements);
        });
    rate(KernelKind::activation) = arrays(2) / seconds_of(Data::recent, [&] {
                                     op.activation_forward(workers_, job_.spec.activation, take<T>(kElements),
                                                           take<T>(kElements), kElements);
                                   });
    rate(KernelKind::activation_gradient) =
        arrays(4) / seconds_of(Data::cold, [&] {
          T* const gradient = take<T>(kElements);
          op.activation_backward(workers_, job_.spec.activation, take<T>(kElements), gradient, gradient,
                                 kElements);
        });
  }

  /// What happens to gradients and states, which are long.
  void measure_ends() {
    const auto& op = ops::operators<T>();
    constexpr int64_t kLong = 1 << 21;
    const auto bytes = [](double of_element) { return of_element * static_cast<double>(kLong); };
    machine_.memory_bandwidth = rate(KernelKind::accumulate) =
        bytes(12) / seconds_of(Data::cold, [&] {
          A* const sum = take<A>(kLong);
          op.add(workers_, sum, take<A>(kLong), sum, kLong);
        });
    std::array<double, kLong / program::kShardGrain> chunks{};
    rate(KernelKind::squares) =
        bytes(4) / seconds_of(Data::cold, [&] {
          op.sum_of_squares(workers_, take<A>(kLong), kLong, program::kShardGrain, chunks.data());
        });
    constexpr int64_t kState = kLong / 2;
    ops::AdamW settings;
    settings.learning_rate = 1e-3f;
    rate(KernelKind::optimizer) =
        bytes(14) / seconds_of(Data::cold, [&] {
          A *gradient = take<A>(kState), *master = take<A>(kState);
          const ops::Slots<A> slots = {take<A>(kState), take<A>(kState)};
          T* parameters = nullptr;
          if constexpr (std::is_same_v<T, A>) parameters = master;
          else parameters = take<T>(kState);
          op.update(workers_, settings, gradient, master, slots, parameters, kState);
        });
    machine_.device.pass_bandwidth = machine_.memory_bandwidth;
  }

  Workers& workers_;
  const program::Job& job_;
  program::Machine& machine_;
  const std::unique_ptr<std::byte[]> memory_;
  const clockid_t clock_;
  size_t at_ = 0;
  volatile uint64_t touched_ = 0;
};

}  // namespace

void measure_kernels(Workers& workers, const program::Job& job, program::Machine& machine) {
  program::with_type(job.precision, [&]<typename T>(T) { Measurement<T>(workers, job, machine).run(); });
}

}  // namespace loom::train
