// Attention by cuDNN, on the fake driver and a fake cuDNN, beside the CPU's in double; what is refused; plans
// for a GPU that is only described. With LOOM_CUDNN_LIBRARY and LOOM_CUBLASLT_LIBRARY naming NVIDIA's
// libraries the plans are made by cuDNN itself, which needs no GPU for that, but a libcuda.so.1.
#include <array>

#include "device/cuda/attentions.h"
#include "loom/device/both_devices.h"
#include "loom/device/fake_cudnn/control.h"

namespace loom::testing::cudnn_attention_test {
namespace {

using ops::AttentionShape;

/// How often the fake library was called; 0 with another library.
uint64_t cudnn_calls(const char* what) {
  (void)cuda::cudnn();
  void* const library = dlopen(std::getenv("LOOM_CUDNN_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  const auto calls = reinterpret_cast<decltype(&fake_cudnn_calls)>(dlsym(library, "fake_cudnn_calls"));
  return calls != nullptr ? calls(what) : 0;
}

/// A table whose attention is cuDNN's.
class GpuAttention : public GpuOperators {
 protected:
  void SetUp() override {
    GpuOperators::SetUp();
    take_attentions(false);
  }
  void TearDown() override {
    compute->attend_by(nullptr);
    attentions.reset();
    GpuOperators::TearDown();
  }
  void take_attentions(bool deterministic) {
    compute->attend_by(nullptr);
    attentions.reset();
    auto made = cuda::Attentions::create(cuda_queue(*queue), deterministic);
    ASSERT_TRUE(made.ok()) << made.status().message();
    attentions = made.take();
    compute->attend_by(attentions.get());
  }
  /// The failure of the queue, which is made anew.
  Status failure() {
    const Status status = queue->drain();
    compute->attend_by(nullptr);
    attentions.reset();
    compute.reset();
    queue = new_queue();
    compute = cuda::Compute::create(*device, *queue, *kernels, *products).take();
    attentions = cuda::Attentions::create(cuda_queue(*queue), false).take();
    compute->attend_by(attentions.get());
    return status;
  }

  std::unique_ptr<cuda::Attentions> attentions;
};

AttentionShape shape_of(int64_t batch, int64_t tokens, int64_t heads, int64_t head_size, bool causal) {
  AttentionShape shape;
  shape.batch = batch, shape.tokens = tokens, shape.heads = heads, shape.head_size = head_size;
  shape.scale = 1.3f / std::sqrt(static_cast<float>(head_size)), shape.causal = causal;
  return shape;
}

/// Both passes on the GPU, and in double on the CPU from the same rounded inputs.
template <typename T>
struct Passes {
  AttentionShape shape;
  std::vector<int32_t> lengths;  // empty: no padding
  std::vector<T> qkv, dout;
  device::Memory qkv_there, dout_there, lengths_there, out, lse, dqkv;

  int64_t elements() const { return shape.batch * shape.tokens * shape.width(); }
  int64_t qkv_elements() const { return shape.batch * shape.tokens * shape.qkv_width(); }
  int64_t rows() const { return shape.batch * shape.heads * shape.tokens; }
};

template <typename T>
class TypedGpuAttention : public GpuAttention {
 protected:
  Passes<T> passes(const AttentionShape& shape, const std::vector<int32_t>& lengths = {}, uint32_t seed = 1) {
    Passes<T> p;
    p.shape = shape, p.lengths = lengths;
    p.qkv = as<T>(random_values(p.qkv_elements(), seed)),
    p.dout = as<T>(random_values(p.elements(), seed + 1));
    p.qkv_there = upload(p.qkv), p.dout_there = upload(p.dout);
    const auto nan = [&](int64_t bytes) {
      return upload(std::vector<uint8_t>(static_cast<size_t>(bytes), 0xff));
    };
    p.out = nan(p.elements() * 2), p.dqkv = nan(p.qkv_elements() * 2), p.lse = nan(p.rows() * 4);
    if (!lengths.empty())
      p.lengths_there = upload(lengths), p.shape.lengths = p.lengths_there.template as<int32_t>();
    return p;
  }
  void forward(Passes<T>& p) {
    cuda::operators<T>().attention_forward(*compute, p.shape, p.qkv_there.template as<T>(),
                                           p.out.template as<T>(), p.lse.template as<float>());
  }
  void backward(Passes<T>& p) {
    cuda::operators<T>().attention_backward(*compute, p.shape, p.qkv_there.template as<T>(),
                                            p.out.template as<T>(), p.lse.template as<float>(),
                                            p.dout_there.template as<T>(), p.dqkv.template as<T>());
  }
  void expect_right(const Passes<T>& p) {
    AttentionShape here = p.shape;
    here.lengths = p.lengths.empty() ? nullptr : p.lengths.data();
    const Doubles qkv = doubles(p.qkv), dout = doubles(p.dout);
    Doubles out(dout.size()), lse(static_cast<size_t>(p.rows())), dqkv(qkv.size());
    const auto& op = ops::operators<double>();
    op.attention_forward(workers, here, qkv.data(), out.data(), lse.data());
    op.attention_backward(workers, here, qkv.data(), out.data(), lse.data(), dout.data(), dqkv.data());
    const auto there = [&](const auto* array, int64_t count) { return doubles(download(array, count)); };
    EXPECT_LT(error_of(there(p.out.template as<T>(), p.elements()), out), kTolerance<T>);
    EXPECT_LT(error_of(there(p.lse.template as<float>(), p.rows()), lse), 10 * kTolerance<float>);
    EXPECT_LT(error_of(there(p.dqkv.template as<T>(), p.qkv_elements()), dqkv), 2 * kTolerance<T>);
  }
};

using ShortTypes = ::testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(TypedGpuAttention, ShortTypes);

TYPED_TEST(TypedGpuAttention, IsTheCpusInDouble) {
  using Shape = std::array<int64_t, 4>;
  for (const bool deterministic : {false, true}) {
    this->take_attentions(deterministic);
    for (const auto& [batch, tokens, heads, head_size] :
         {Shape{3, 7, 2, 8}, {1, 17, 3, 64}, {2, 9, 1, 128}, {1, 1, 1, 16}, {2, 5, 2, 256}, {3, 12, 5, 24}})
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(fmt::format("{} × {} tokens, {} heads of {}, {}", batch, tokens, heads, head_size,
                                 causal ? "causal" : "all"));
        auto passes = this->passes(shape_of(batch, tokens, heads, head_size, causal));
        this->forward(passes);
        this->backward(passes);
        this->expect_right(passes);
      }
  }
  EXPECT_EQ(cudnn_calls("deterministic plans") > 0, this->fake.is_fake());
}

/// Gradients of keys are sums over heads, of terms that are rounded once.
TYPED_TEST(TypedGpuAttention, SharedKeysAreTheCpusInDouble) {
  using Shape = std::array<int64_t, 5>;
  for (const bool deterministic : {false, true}) {
    this->take_attentions(deterministic);
    for (const auto& [batch, tokens, heads, key_heads, head_size] :
         {Shape{2, 7, 4, 2, 8}, {1, 17, 3, 1, 64}, {2, 9, 2, 2, 24}, {1, 1, 6, 3, 16}})
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(fmt::format("{} × {} tokens, {} heads and {} of keys, of {}, {}", batch, tokens, heads,
                                 key_heads, head_size, causal ? "causal" : "all"));
        AttentionShape shape = shape_of(batch, tokens, heads, head_size, causal);
        shape.key_value_heads = key_heads;
        auto passes = this->passes(shape);
        this->forward(passes);
        this->backward(passes);
        this->expect_right(passes);
      }
  }
}

TYPED_TEST(TypedGpuAttention, PaddedSequencesHaveNoGradientsThere) {
  for (const bool deterministic : {false, true}) {
    this->take_attentions(deterministic);
    for (const int64_t head_size : {16, 64}) {
      auto passes = this->passes(shape_of(3, 11, 2, head_size, false), {11, 4, 1});
      this->forward(passes);
      this->backward(passes);
      this->expect_right(passes);
    }
  }
}

TYPED_TEST(TypedGpuAttention, ADeterministicGradientHasTheSameBitsEachTime) {
  using T = TypeParam;
  auto passes = this->passes(shape_of(2, 40, 2, 16, true));
  this->forward(passes);
  const auto gradient = [&] {
    this->backward(passes);
    std::vector<float> values;
    for (const T& x : this->download(passes.dqkv.template as<T>(), 3 * passes.elements()))
      values.push_back(to_float(x));
    return values;
  };
  const bool differ = gradient() != gradient();
  EXPECT_TRUE(differ || !this->fake.is_fake()) << "the fake's sums have an order of their own in each run";
  this->take_attentions(true);
  EXPECT_EQ(gradient(), gradient());
}

using Bf16GpuAttention = TypedGpuAttention<bf16>;

TEST_F(Bf16GpuAttention, APlanIsMadeOnceForItsShapeAndNothingAfterPreparing) {
  auto passes = this->passes(shape_of(2, 8, 2, 16, true)), others = this->passes(shape_of(2, 9, 2, 16, true));
  forward(passes);
  backward(passes);
  const uint64_t plans = cudnn_calls("plans");
  const int64_t bytes = compute->memory_bytes();
  forward(passes);
  backward(passes);
  EXPECT_EQ(cudnn_calls("plans"), plans);
  compute->end_preparing();
  const uint64_t allocations = fake.calls("cuMemAlloc");
  forward(passes);
  backward(passes);
  expect_right(passes);
  EXPECT_EQ(fake.calls("cuMemAlloc"), allocations);
  EXPECT_EQ(compute->memory_bytes(), bytes);
  EXPECT_LE(attentions->scratch_bytes(*attentions->plan_shape(passes.shape, cuda::ElementType::bf16)), bytes);
  forward(others);
  EXPECT_TRUE(fails_with(failure(), Code::internal_error,
                         "attention of 2 × 9 tokens with 2 heads of 16 (bf16, causal) was not prepared"));
}

TEST_F(Bf16GpuAttention, ScratchStaysBelowItsBound) {
  for (const bool deterministic : {false, true}) {
    take_attentions(deterministic);
    for (const int64_t tokens : {7, 70, 300, 3000})
      for (const int64_t key_heads : {4, 1}) {
        AttentionShape shape = shape_of(3, tokens, 4, 64, true);
        shape.key_value_heads = key_heads;
        const auto planned = attentions->plan_shape(shape, cuda::ElementType::bf16);
        ASSERT_TRUE(attentions->prepare(*planned).ok());
        EXPECT_LE(attentions->scratch_bytes(*planned), cuda::attention_scratch_bound(*planned));
      }
  }
}

TEST_F(Bf16GpuAttention, RunsOnItsStreamAndAMissingWaitIsFound) {
  if (!fake.is_fake()) GTEST_SKIP() << "the driver follows no races";
  const auto other_queue = new_queue();
  const auto other = cuda::Compute::create(*device, *other_queue, *kernels, *products).take();
  const auto other_attentions = cuda::Attentions::create(cuda_queue(*other_queue), false).take();
  other->attend_by(other_attentions.get());
  auto passes = this->passes(shape_of(2, 8, 2, 16, true));
  const auto backward_there = [&] {
    cuda::operators<bf16>().attention_backward(*other, passes.shape, passes.qkv_there.as<bf16>(),
                                               passes.out.as<bf16>(), passes.lse.as<float>(),
                                               passes.dout_there.as<bf16>(), passes.dqkv.as<bf16>());
  };
  const auto event = new_event();
  for (const bool waits : {true, false}) {
    forward(passes);
    queue->record(*event);
    if (waits) other_queue->wait(*event);
    backward_there();
    ASSERT_TRUE(other_queue->drain().ok());
    ASSERT_TRUE(queue->drain().ok());
    if (waits) expect_right(passes);
    else EXPECT_NE(fake.race().find("attention of cuDNN"), std::string::npos);
  }
  EXPECT_EQ(fake.race(), "");
}

TEST_F(Bf16GpuAttention, WhatCudnnHasNotIsNamed) {
  const auto refused = [&](const AttentionShape& shape, Code code, const std::string& words) {
    auto passes = this->passes(shape);
    forward(passes);
    EXPECT_TRUE(fails_with(failure(), code, words));
  };
  AttentionShape shape = shape_of(2, 8, 2, 16, true);
  shape.dropout.probability = 0.1f;
  refused(shape, Code::unsupported, "cuDNN's attention has no dropout here");
  shape = shape_of(2, 8, 2, 16, true), shape.window = 4;
  refused(shape, Code::unsupported, "cuDNN's attention has no window here");
  shape = shape_of(2, 8, 2, 16, true), shape.alibi = true;
  refused(shape, Code::unsupported, "cuDNN's attention has no ALiBi here");
  const std::string heads = "takes heads of a multiple of 8 elements up to 256, not of ";
  refused(shape_of(2, 8, 2, 20, true), Code::unsupported, heads + "20");
  refused(shape_of(2, 8, 1, 264, true), Code::unsupported, heads + "264");
  shape = shape_of(2, 8, 4, 16, false), shape.key_value_heads = 2;
  const device::Memory lengths = upload(std::vector<int32_t>{8, 3});
  shape.lengths = lengths.as<int32_t>();
  refused(shape, Code::unsupported,
          "cuDNN's attention is not taken where sequences are padded and 4 heads of queries share 2 of keys");
  const auto planned = attentions->plan_shape(shape_of(2, 8, 2, 16, true), cuda::ElementType::fp32);
  EXPECT_TRUE(fails_with(attentions->prepare(*planned), Code::unsupported, "takes bf16 and fp16, not fp32"));
}

TEST_F(Bf16GpuAttention, ArraysThatAreNotAlignedAreRefused) {
  auto passes = this->passes(shape_of(2, 8, 2, 16, true));
  cuda::operators<bf16>().attention_forward(*compute, passes.shape, passes.qkv_there.as<bf16>(2),
                                            passes.out.as<bf16>(), passes.lse.as<float>());
  EXPECT_TRUE(
      fails_with(failure(), Code::system_error, "cudnnBackendExecute: CUDNN_STATUS_BAD_PARAM_MISALIGNED"));
}

TEST_F(Bf16GpuAttention, IsTimedByName) {
  auto passes = this->passes(shape_of(2, 8, 2, 16, true));
  forward(passes);
  cuda::KernelTimes times(cuda_queue(*queue));
  compute->time_with(&times);
  forward(passes);
  backward(passes);
  compute->time_with(nullptr);
  const auto taken = times.take();
  ASSERT_TRUE(taken.ok());
  std::set<std::string> names;
  for (const cuda::KernelTime& time : *taken) names.insert(time.name);
  EXPECT_EQ(names, (std::set<std::string>{"cuDNN's attention", "the gradient of cuDNN's attention"}));
}

// ---- Plans without a GPU

/// What cuDNN knows of an H200. It is from the device's properties, and no text of NVIDIA's.
constexpr const char* kHopper = R"({"cudaDeviceId": 0, "deviceName": "NVIDIA H200", "deviceVer": 900,
  "driverVer": 13000, "isTccDriver": 0, "l2CacheSize": 62914560, "maxCtasPerSM": 32, "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "maxThreadsPerBlock": 1024,
  "maxThreadsPerSM": 2048, "memClockRateKHz": 3201000, "multiProcessorCount": 132, "pciDeviceId": 0,
  "regsPerBlock": 65536, "reservedSharedMemoryPerBlock": 1024, "smClockRateKHz": 1980000, "supportCoopLaunch": 1,
  "totalGlobalMem": 150754934784, "warpSize": 32, "maxGridSize": [2147483647, 65535, 65535],
  "maxBlockSize": [1024, 1024, 64]})";

TEST(CudnnPlans, AreMadeForADescribedGpu) {
  const auto loaded = cuda::cudnn();
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto described = cuda::describe_dnn_device(kHopper);
  ASSERT_TRUE(described.ok()) << described.status().message();
  const cuda::DnnTarget target{.device = described->get()};
  for (const cuda::ElementType type : {cuda::ElementType::bf16, cuda::ElementType::fp16})
    for (const int64_t head_size : {64, 96, 128, 256})
      for (const auto& [causal, padded] : {std::pair(true, false), {false, false}, {false, true}})
        for (const auto& [deterministic, key_heads] :
             {std::pair(false, int64_t{12}), {true, 12}, {false, 4}, {true, 4}, {false, 1}}) {
          if (padded && key_heads < 12) continue;
          const cuda::AttentionGraphShape shape{type,      4,      1000,   12,           key_heads,
                                                head_size, causal, padded, deterministic};
          const auto forward = cuda::AttentionForward::create(shape, target);
          EXPECT_TRUE(forward.ok()) << forward.status().message();
          const auto backward = cuda::AttentionBackward::create(shape, target);
          EXPECT_TRUE(backward.ok()) << backward.status().message();
          if (!forward.ok() || !backward.ok()) continue;
          const int64_t most = std::max((*forward)->scratch_bytes(), (*backward)->scratch_bytes());
          EXPECT_LE(most, cuda::attention_scratch_bound(shape)) << to_string(shape);
        }
}

TEST(CudnnPlans, ADescriptionThatIsNoneIsRefused) { EXPECT_FALSE(cuda::describe_dnn_device("").ok()); }

}  // namespace
}  // namespace loom::testing::cudnn_attention_test
