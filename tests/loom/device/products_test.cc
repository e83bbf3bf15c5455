// The products of training by the fake cuBLASLt, against the CPU's operators in double.
#include "device/cuda/products.h"

#include <nlohmann/json.hpp>

#include "base/workers.h"
#include "loom/device/fake_cublaslt/control.h"
#include "loom/device/fakes.h"
#include "ops/arrays.h"
#include "support.h"

namespace loom::testing {
namespace {

using cuda::Products;

class ProductsTest : public OnFakeDevice {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    products = new_products({.prefers_first = true});
    workspace = device->allocate(products->workspace_bytes()).take();
  }
  std::unique_ptr<Products> new_products(const Products::Options& options) const {
    auto made = Products::create(*device, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.take();
  }
  void multiply(const cuda::Product& product) { multiply(*products, product); }
  void multiply(Products& from, const cuda::Product& product) {
    from.prepare(cuda_queue(*queue), product, workspace.data());
    from.multiply(cuda_queue(*queue), product, workspace.data());
  }
  /// The failure that the queue keeps of a product that is refused; then the queue is a new one.
  Status refusal_of(const cuda::Product& product) {
    multiply(product);
    const Status status = queue->status();
    queue = new_queue();
    return status;
  }

  std::unique_ptr<Products> products;
  device::Memory workspace;
};

/// The shapes of a test: whole words of 16 bytes, which epilogues want; and odd ones.
struct Shape {
  int64_t rows, in, out;
};
constexpr Shape kWhole[] = {{24, 16, 40}, {8, 64, 8}, {33, 8, 24}};
constexpr Shape kOdd[] = {{7, 5, 3}, {1, 1, 1}, {30, 17, 50}};

/// A test of one type.
template <typename T>
class TypedProducts : public ProductsTest {
 protected:
  using A = float;
  /// The device's values there, as doubles.
  template <typename E>
  Doubles values_at(const device::Memory& memory, int64_t count) {
    return doubles(download(memory.as<E>(), count));
  }
  device::Memory there(const Doubles& values) { return upload(as<T>(values)); }
  static device::Memory room(cuda::Device& device, int64_t bytes) { return device.allocate(bytes).take(); }

  /// The CPU's operators in double, on one thread.
  const ops::Operators<double>& cpu = ops::operators<double>();
  Workers workers{1};
};
using Types = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(TypedProducts, Types);

/// The rounding that sums in fp32 may cost.
template <typename T>
constexpr double kOfSums = 4 * kTolerance<float>;

TYPED_TEST(TypedProducts, Forward) {
  using T = TypeParam;
  for (const bool odd : {false, true})
    for (const auto& [rows, in, out] : odd ? kOdd : kWhole)
      for (const bool with_bias : {false, true}) {
        if (odd && with_bias) continue;  // a kernel's task
        const Doubles x = rounded<T>(random_values(rows * in, 1)), w = rounded<T>(random_values(in * out, 2)),
                      bias = rounded<T>(random_values(out, 3));
        const device::Memory tx = this->there(x), tw = this->there(w), tb = this->there(bias),
                             ty = this->room(*this->device, rows * out * int64_t{sizeof(T)});
        this->multiply(cuda::linear_forward(tx.as<T>(), tw.as<T>(), with_bias ? tb.as<T>() : nullptr,
                                            ty.as<T>(), rows, in, out));
        Doubles wanted(rows * out);
        this->cpu.linear_forward(this->workers, x.data(), w.data(), with_bias ? bias.data() : nullptr,
                                 wanted.data(), rows, in, out);
        EXPECT_LT(error_of(this->template values_at<T>(ty, rows * out), wanted), kTolerance<T>)
            << rows << "×" << in << "×" << out;
      }
}

TYPED_TEST(TypedProducts, ForwardWithGelu) {
  using T = TypeParam;
  for (const auto& [rows, in, out] : kWhole)
    for (const bool with_bias : {false, true}) {
      const int64_t ld = out + 8;
      const Doubles x = rounded<T>(random_values(rows * in, 1)), w = rounded<T>(random_values(in * out, 2)),
                    bias = rounded<T>(random_values(out, 3));
      const device::Memory tx = this->there(x), tw = this->there(w), tb = this->there(bias),
                           ty = this->room(*this->device, rows * out * int64_t{sizeof(T)}),
                           tp = this->there(Doubles(rows * ld, 5));
      this->multiply(cuda::linear_forward(tx.as<T>(), tw.as<T>(), with_bias ? tb.as<T>() : nullptr,
                                          ty.as<T>(), rows, in, out, tp.as<T>(), ld));
      Doubles pre(rows * out), wanted(rows * out);
      this->cpu.linear_forward(this->workers, x.data(), w.data(), with_bias ? bias.data() : nullptr,
                               pre.data(), rows, in, out);
      this->cpu.activation_forward(this->workers, ops::Activation::gelu_tanh, pre.data(), wanted.data(),
                                   rows * out);
      EXPECT_LT(error_of(this->template values_at<T>(ty, rows * out), wanted), kTolerance<T>);
      const Doubles kept = this->template values_at<T>(tp, rows * ld);
      Doubles kept_pre;
      for (int64_t row = 0; row < rows; ++row) {
        kept_pre.insert(kept_pre.end(), kept.begin() + row * ld, kept.begin() + row * ld + out);
        EXPECT_EQ(kept[row * ld + out], 5) << "beyond the row";
      }
      EXPECT_LT(error_of(kept_pre, pre), kTolerance<T>);
    }
}

TYPED_TEST(TypedProducts, BackwardInput) {
  using T = TypeParam;
  for (const bool odd : {false, true})
    for (const auto& [rows, in, out] : odd ? kOdd : kWhole)
      for (const bool through_gelu : {false, true}) {
        if (odd && through_gelu) continue;
        const Doubles dy = rounded<T>(random_values(rows * out, 1)),
                      w = rounded<T>(random_values(in * out, 2)),
                      pre = rounded<T>(random_values(rows * in, 3));
        const device::Memory tdy = this->there(dy), tw = this->there(w), tp = this->there(pre),
                             tdx = this->room(*this->device, rows * in * int64_t{sizeof(T)});
        this->multiply(cuda::linear_backward_input(tdy.as<T>(), tw.as<T>(), tdx.as<T>(), rows, in, out,
                                                   through_gelu ? tp.as<T>() : nullptr,
                                                   through_gelu ? in : 0));
        Doubles wanted(rows * in);
        this->cpu.linear_backward_input(this->workers, dy.data(), w.data(), wanted.data(), rows, in, out);
        if (through_gelu)
          this->cpu.activation_backward(this->workers, ops::Activation::gelu_tanh, pre.data(), wanted.data(),
                                        wanted.data(), rows * in);
        EXPECT_LT(error_of(this->template values_at<T>(tdx, rows * in), wanted), kTolerance<T>);
      }
}

TYPED_TEST(TypedProducts, BackwardWeight) {
  using T = TypeParam;
  for (const bool odd : {false, true})
    for (const auto& [rows, in, out] : odd ? kOdd : kWhole)
      for (const bool with_bias : {false, true}) {
        if (odd && with_bias) continue;
        const Doubles x = rounded<T>(random_values(rows * in, 1)),
                      dy = rounded<T>(random_values(rows * out, 2));
        const device::Memory tx = this->there(x), tdy = this->there(dy),
                             tdw = this->room(*this->device, in * out * 4),
                             tdb = this->room(*this->device, out * 4);
        this->multiply(cuda::linear_backward_weight(tx.as<T>(), tdy.as<T>(), tdw.as<float>(),
                                                    with_bias ? tdb.as<float>() : nullptr, rows, in, out));
        Doubles dw(in * out), db(out);
        this->cpu.linear_backward_weight(this->workers, x.data(), dy.data(), dw.data(), db.data(), rows, in,
                                         out);
        EXPECT_LT(error_of(this->template values_at<float>(tdw, in * out), dw), kOfSums<T>);
        if (with_bias) {
          EXPECT_LT(error_of(this->template values_at<float>(tdb, out), db), kOfSums<T>);
        }
      }
}

/// Rows of logits, which are padded to a leading dimension.
Doubles padded(const Doubles& values, int64_t rows, int64_t width, int64_t ld, double beyond) {
  Doubles result(rows * ld, beyond);
  for (int64_t i = 0; i < rows * width; ++i) result[i / width * ld + i % width] = values[i];
  return result;
}

TYPED_TEST(TypedProducts, HeadForward) {
  using T = TypeParam;
  for (const bool with_bias : {false, true}) {
    const int64_t rows = 19, width = 24, vocabulary = 53, ld = 56;
    const Doubles x = rounded<T>(random_values(rows * width, 1)),
                  w = rounded<T>(random_values(vocabulary * width, 2)),
                  bias = rounded<T>(random_values(vocabulary, 3));
    const device::Memory tx = this->there(x), tw = this->there(w), tb = this->there(bias),
                         tl = this->there(Doubles(rows * ld, 7));
    this->multiply(cuda::head_forward(tx.as<T>(), tw.as<T>(), with_bias ? tb.as<T>() : nullptr, tl.as<T>(),
                                      rows, width, vocabulary, ld));
    Doubles wanted(rows * vocabulary);
    this->cpu.head_forward(this->workers, x.data(), w.data(), with_bias ? bias.data() : nullptr,
                           wanted.data(), rows, width, vocabulary);
    EXPECT_LT(error_of(this->template values_at<T>(tl, rows * ld), padded(wanted, rows, vocabulary, ld, 7)),
              kTolerance<T>);
  }
}

TYPED_TEST(TypedProducts, HeadBackward) {
  using T = TypeParam;
  const int64_t rows = 19, width = 24, vocabulary = 53, ld = 56;
  const Doubles x = rounded<T>(random_values(rows * width, 1)),
                w = rounded<T>(random_values(vocabulary * width, 2)),
                dlogits = rounded<T>(random_values(rows * vocabulary, 3)),
                before = random_values(vocabulary * width, 4);
  const device::Memory tx = this->there(x), tw = this->there(w),
                       tl = this->there(padded(dlogits, rows, vocabulary, ld, 100)),
                       tdx = this->room(*this->device, rows * width * int64_t{sizeof(T)}),
                       tdw = this->room(*this->device, vocabulary * width * 4),
                       tdb = this->room(*this->device, vocabulary * 4);
  Doubles dx(rows * width), dw(vocabulary * width), db(vocabulary);
  this->cpu.head_backward(this->workers, dlogits.data(), x.data(), w.data(), dx.data(), dw.data(), db.data(),
                          false, rows, width, vocabulary);
  this->multiply(cuda::head_backward_input(tl.as<T>(), tw.as<T>(), tdx.as<T>(), rows, width, vocabulary, ld));
  this->multiply(cuda::head_backward_weight(tl.as<T>(), tx.as<T>(), tdw.as<float>(), tdb.as<float>(), false,
                                            rows, width, vocabulary, ld));
  EXPECT_LT(error_of(this->template values_at<T>(tdx, rows * width), dx), kTolerance<T>);
  EXPECT_LT(error_of(this->template values_at<float>(tdw, vocabulary * width), dw), kOfSums<T>);
  EXPECT_LT(error_of(this->template values_at<float>(tdb, vocabulary), db), kOfSums<T>);

  this->multiply(cuda::head_backward_weight(tl.as<T>(), tx.as<T>(), tdw.as<float>(), nullptr, true, rows,
                                            width, vocabulary, ld));
  for (double& value : dw) value *= 2;
  EXPECT_LT(error_of(this->template values_at<float>(tdw, vocabulary * width), dw), kOfSums<T>);
}

// ---- Plans

class Plans : public ProductsTest {
 protected:
  void SetUp() override {
    ProductsTest::SetUp();
    const std::vector<float> values = as<float>(random_values(64 * 64, 1));
    x = upload(values);
    w = upload(values);
    y = upload(values);
    void* const library = dlopen(std::getenv("LOOM_CUBLASLT_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    calls = reinterpret_cast<decltype(calls)>(dlsym(library, "fake_cublaslt_calls"));
    slow_epilogues =
        reinterpret_cast<decltype(slow_epilogues)>(dlsym(library, "fake_cublaslt_slow_epilogues"));
    ASSERT_TRUE(calls != nullptr && slow_epilogues != nullptr);
  }
  cuda::Product product() const {
    return cuda::linear_forward<float>(x.as<float>(), w.as<float>(), nullptr, y.as<float>(), 64, 64, 64);
  }
  std::vector<float> result_of(Products& from) {
    multiply(from, product());
    return download(y.as<float>(), 64 * 64);
  }
  /// Choices with so many parts of each sum over k, which is how the fake's algorithms differ.
  std::string with_parts(const std::string& choices, uint64_t parts) const {
    auto read = nlohmann::ordered_json::parse(choices);
    for (auto& algorithm : read["algorithms"]) {
      algorithm[2] = parts;
      algorithm[3] = (parts - 1) << 20;
    }
    return read.dump();
  }

  device::Memory x, w, y;
  decltype(&fake_cublaslt_calls) calls = nullptr;
  decltype(&fake_cublaslt_slow_epilogues) slow_epilogues = nullptr;
};

TEST_F(Plans, AreMadeOnceForEachShape) {
  const uint64_t before = calls("cublasLtMatmulAlgoGetHeuristic");
  multiply(product());
  multiply(product());
  EXPECT_EQ(calls("cublasLtMatmulAlgoGetHeuristic") - before, 1u);
  cuda::Product smaller = product();
  smaller.shape.n = 32;
  multiply(smaller);
  EXPECT_EQ(calls("cublasLtMatmulAlgoGetHeuristic") - before, 2u);
  EXPECT_TRUE(queue->drain().ok());
}

TEST_F(Plans, EightCandidatesAreTimed) {
  const auto timing = new_products({});
  const uint64_t before = calls("cublasLtMatmul");
  (void)result_of(*timing);
  EXPECT_EQ(calls("cublasLtMatmul") - before, 8u * 4 + 1);
}

TEST_F(Plans, WithoutSplitsThereIsOneCandidate) {
  const auto strict = new_products({.split_k = false});
  const uint64_t before = calls("cublasLtMatmul");
  (void)result_of(*strict);
  EXPECT_EQ(calls("cublasLtMatmul") - before, 1u * 4 + 1);
}

/// A product with an epilogue takes 50 ms, other work next to nothing.
class Epilogues : public Plans {
 protected:
  void SetUp() override {
    Plans::SetUp();
    slow_epilogues(50);
  }
  void TearDown() override {
    slow_epilogues(0);
    Plans::TearDown();
  }
  cuda::Product with_bias() const {
    return cuda::linear_forward<float>(x.as<float>(), w.as<float>(), x.as<float>(), y.as<float>(), 64, 64,
                                       64);
  }
  template <typename T>
  cuda::Product with_sums() const {
    return cuda::linear_backward_weight<T>(x.as<T>(), w.as<T>(), y.as<float>(), y.as<float>(), 16, 16, 16);
  }
  /// Also counts how often the work apart ran.
  bool prefers(Products& from, const cuda::Product& product, const cuda::Product& apart) {
    from.prepare(cuda_queue(*queue), apart, workspace.data());
    const bool preferred = from.prefers(cuda_queue(*queue), product, workspace.data(), [&] {
      ++runs_apart;
      from.multiply(cuda_queue(*queue), apart, workspace.data());
    });
    const Status drained = queue->drain();
    EXPECT_TRUE(drained.ok()) << drained.message();
    EXPECT_EQ(from.has(product), preferred);
    return preferred;
  }
  int runs_apart = 0;
};

TEST_F(Epilogues, AreUsedOnlyIfTheyAreFaster) {
  const auto timing = new_products({.split_k = false});
  EXPECT_FALSE(prefers(*timing, with_bias(), product()));
  EXPECT_EQ(runs_apart, 4);
  EXPECT_FALSE(prefers(*timing, with_bias(), product()));
  EXPECT_EQ(runs_apart, 4) << "it is known";
  cuda::Product quick = product();
  quick.shape.n = 32;
  EXPECT_TRUE(prefers(*timing, quick, with_bias()));
}

TEST_F(Epilogues, ThatWereSlowerAreAmongTheChoices) {
  const auto timing = new_products({.split_k = false}), same = new_products({.split_k = false});
  EXPECT_FALSE(prefers(*timing, with_bias(), product()));
  ASSERT_TRUE(same->adopt(timing->choices()).ok());
  runs_apart = 0;
  EXPECT_FALSE(prefers(*same, with_bias(), product()));
  EXPECT_EQ(runs_apart, 0);
}

TEST_F(Epilogues, OfChoicesAreUsedWithoutTiming) {
  const auto same = new_products({.split_k = false});
  const auto first = new_products({.split_k = false, .prefers_first = true});
  EXPECT_TRUE(prefers(*first, with_bias(), product()));
  ASSERT_TRUE(same->adopt(first->choices()).ok());
  EXPECT_TRUE(prefers(*same, with_bias(), product()));
  EXPECT_EQ(runs_apart, 0);
}

TEST_F(Epilogues, WithoutTimingSumsOf16BitElementsAreTakenApart) {
  EXPECT_TRUE(prefers(*products, with_sums<float>(), product()));
  EXPECT_FALSE(prefers(*products, with_sums<bf16>(), product()));
  EXPECT_FALSE(prefers(*products, with_sums<fp16>(), product()));
  EXPECT_EQ(runs_apart, 0);
}

TEST_F(Plans, AProductThatWasNotPreparedIsNamed) {
  products->multiply(cuda_queue(*queue), product(), workspace.data());
  EXPECT_TRUE(fails_with(queue->status(), Code::internal_error,
                         "product of m 64, n 64, k 64 (fp32 to fp32, epilogue none) was not prepared"));
  queue = new_queue();
}

TEST_F(Plans, ChoicesThatAreTakenOverGiveTheSameBits) {
  (void)result_of(*products);
  const auto three = new_products({}), same = new_products({});
  const Result<int64_t> taken = three->adopt(with_parts(products->choices(), 3));
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_EQ(*taken, 1);
  const std::vector<float> in_one = result_of(*products), in_three = result_of(*three);
  EXPECT_NE(in_one, in_three);
  ASSERT_TRUE(same->adopt(three->choices()).ok());
  const uint64_t before = calls("cublasLtMatmulAlgoGetHeuristic");
  EXPECT_EQ(result_of(*same), in_three);
  EXPECT_EQ(calls("cublasLtMatmulAlgoGetHeuristic"), before);
}

TEST_F(Plans, ChoicesOfAnotherLibraryOrDeviceAreLeftOut) {
  (void)result_of(*products);
  std::string other = products->choices();
  other.replace(other.find("cuBLASLt 13"), 11, "cuBLASLt 12");
  EXPECT_EQ(*new_products({})->adopt(other), 0);
  EXPECT_EQ(*new_products({.tf32 = true})->adopt(products->choices()), 0);
}

TEST_F(Plans, AChoiceThatCannotBeKeptFailsAndNamesTheProduct) {
  (void)result_of(*products);
  auto damaged = nlohmann::ordered_json::parse(products->choices());
  for (auto& algorithm : damaged["algorithms"]) algorithm[1] = 1;
  const auto refusal = [&](const std::string& choices) {
    const auto again = new_products({});
    EXPECT_EQ(*again->adopt(choices), 1);
    multiply(*again, product());
    const Status status = queue->status();
    queue = new_queue();
    return status;
  };
  const Status refused = refusal(damaged.dump());
  EXPECT_TRUE(fails_with(refused, Code::system_error, "product of m 64, n 64, k 64"));
  EXPECT_TRUE(fails_with(refused, Code::system_error, "refuses the algorithm that was chosen before"));
  EXPECT_TRUE(fails_with(refusal(with_parts(products->choices(), 1000)), Code::invalid_data,
                         "wants a workspace of 1047527424 bytes, and there are 33554432"));
}

TEST_F(Plans, OfChoicesOneOfWhichIsDamagedNoneIsTaken) {
  (void)result_of(*products);
  cuda::Product smaller = product();
  smaller.shape.n = 32;
  multiply(smaller);
  auto damaged = nlohmann::ordered_json::parse(products->choices());
  ASSERT_EQ(damaged["algorithms"].size(), 2u);
  damaged["algorithms"].back() = "damaged";
  const auto other = new_products({});
  const std::string before = other->choices();
  EXPECT_TRUE(fails_with(other->adopt(damaged.dump()), Code::invalid_data, "is not 8 numbers"));
  EXPECT_EQ(other->choices(), before);
}

TEST_F(Plans, WhatAreNoChoicesIsRefused) {
  EXPECT_TRUE(fails_with(products->adopt("{"), Code::invalid_data, "no choices of matrix products"));
  (void)result_of(*products);
  auto damaged = nlohmann::ordered_json::parse(products->choices());
  for (auto& algorithm : damaged["algorithms"]) algorithm[1] = -1;
  EXPECT_TRUE(fails_with(products->adopt(damaged.dump()), Code::invalid_data, "is not 8 numbers"));
  damaged = nlohmann::ordered_json::parse(products->choices());
  damaged["apart"] = {1};
  EXPECT_TRUE(
      fails_with(products->adopt(damaged.dump()), Code::invalid_data, "an array of names was expected"));
}

// ---- Order

TEST_F(Plans, AMissingWaitAfterAProductIsFound) {
  multiply(product());
  const auto other = new_queue();
  const device::Memory copy = device->allocate(y.bytes()).take();
  other->copy(copy.data(), y.data(), y.bytes());
  EXPECT_TRUE(other->drain().ok());
  EXPECT_TRUE(queue->drain().ok());
  EXPECT_EQ(fake.race(),
            "a copy reads memory that a product writes on another stream, and does not wait for it");
}

TEST_F(Plans, TwoQueuesWithOneWorkspaceAreFound) {
  (void)result_of(*products);
  const auto two = new_products({});
  ASSERT_TRUE(two->adopt(with_parts(products->choices(), 2)).ok());
  (void)result_of(*two);
  const auto other = new_queue();
  const device::Memory elsewhere = upload(std::vector<float>(64 * 64));
  cuda::Product beside = product();
  beside.d = elsewhere.data();
  multiply(product());
  EXPECT_EQ(fake.race(), "");
  two->multiply(cuda_queue(*queue), product(), workspace.data());
  two->multiply(cuda_queue(*other), beside, workspace.data());
  EXPECT_TRUE(other->drain().ok());
  EXPECT_TRUE(queue->drain().ok());
  EXPECT_EQ(fake.race(),
            "a product writes memory that a product writes on another stream, and does not wait for it");
}

TEST_F(Plans, AnArrayThatIsTooShortIsFound) {
  const device::Memory small = device->allocate(64 * 64 * 4 - 4).take();
  cuda::Product beyond = product();
  beyond.d = small.data();
  multiply(beyond);
  EXPECT_TRUE(fails_with(queue->drain(), Code::system_error, "CUDA_ERROR_ILLEGAL_ADDRESS"));
  repair();
}

// ---- What the library refuses

class Refusals : public ProductsTest {
 protected:
  void SetUp() override {
    ProductsTest::SetUp();
    memory = device->allocate(1 << 16).take();
  }
  template <typename T>
  T* at(int64_t bytes) const {
    return memory.as<T>(bytes);
  }
  device::Memory memory;
};

TEST_F(Refusals, MixedTypes) {
  auto product = cuda::linear_forward<bf16>(at<bf16>(0), at<bf16>(4096), nullptr, at<bf16>(8192), 8, 8, 8);
  product.shape.output = cuda::ElementType::fp16;
  EXPECT_TRUE(fails_with(refusal_of(product), Code::unsupported, "bf16 to fp16"));
}

TEST_F(Refusals, AnEpilogueOnArraysThatAreNotAligned) {
  const auto x = at<bf16>(0), w = at<bf16>(4096), bias = at<bf16>(8192), y = at<bf16>(12288);
  EXPECT_TRUE(refusal_of(cuda::linear_forward<bf16>(x, w, bias, y, 8, 8, 8)).ok());
  const Status statuses[] = {refusal_of(cuda::linear_forward<bf16>(x + 1, w, bias, y, 8, 8, 8)),
                             refusal_of(cuda::linear_forward<bf16>(x, w + 1, bias, y, 8, 8, 8)),
                             refusal_of(cuda::linear_forward<bf16>(x, w, bias + 1, y, 8, 8, 8)),
                             refusal_of(cuda::linear_forward<bf16>(x, w, bias, y + 1, 8, 8, 8)),
                             refusal_of(cuda::linear_forward<bf16>(x, w, bias, y, 8, 8, 7))};
  for (const Status& status : statuses)
    EXPECT_TRUE(fails_with(status, Code::unsupported, "CUBLAS_STATUS_NOT_SUPPORTED"));
  EXPECT_TRUE(refusal_of(cuda::linear_forward<bf16>(x + 1, w, nullptr, y, 8, 8, 7)).ok()) << "no epilogue";
}

TEST_F(Refusals, APreActivationOfAnotherShapeOrAddress) {
  const auto with = [&](bf16* pre, int64_t ld) {
    return refusal_of(
        cuda::linear_forward<bf16>(at<bf16>(0), at<bf16>(4096), nullptr, at<bf16>(8192), 8, 8, 16, pre, ld));
  };
  EXPECT_TRUE(with(at<bf16>(12288), 16).ok());
  EXPECT_TRUE(fails_with(with(at<bf16>(12288), 20), Code::system_error, "CUBLAS_STATUS_INVALID_VALUE"));
  EXPECT_TRUE(fails_with(with(at<bf16>(12288), 8), Code::system_error, "CUBLAS_STATUS_INVALID_VALUE"));
  EXPECT_TRUE(fails_with(with(at<bf16>(12296), 16), Code::system_error, "CUBLAS_STATUS_INVALID_VALUE"));
}

TEST_F(Refusals, EpiloguesWithoutTheirArrayOrInTheWrongPlace) {
  auto product = cuda::linear_forward<bf16>(at<bf16>(0), at<bf16>(4096), nullptr, at<bf16>(8192), 8, 8, 8);
  for (const auto epilogue :
       {cuda::Epilogue::bias, cuda::Epilogue::gelu, cuda::Epilogue::gelu_bias, cuda::Epilogue::gelu_backward,
        cuda::Epilogue::sums_of_a, cuda::Epilogue::sums_of_b}) {
    product.shape.epilogue = epilogue;
    EXPECT_TRUE(fails_with(refusal_of(product), Code::system_error, "CUBLAS_STATUS_INVALID_VALUE"))
        << to_string(product.shape);
  }
  auto sums = cuda::head_backward_weight<bf16>(at<bf16>(0), at<bf16>(4096), at<float>(8192), at<float>(12288),
                                               true, 8, 8, 8, 8);
  EXPECT_FALSE(refusal_of(sums).ok()) << "sums of a product that adds";
}

TEST_F(Refusals, AWorkspaceThatIsNotAligned) {
  const auto product =
      cuda::linear_forward<float>(at<float>(0), at<float>(4096), nullptr, at<float>(8192), 8, 8, 8);
  products->prepare(cuda_queue(*queue), product, workspace.data());
  products->multiply(cuda_queue(*queue), product, workspace.data() + 8);
  EXPECT_TRUE(fails_with(queue->status(), Code::system_error, "CUBLAS_STATUS_INVALID_VALUE"));
}

TEST_F(Refusals, ShapesThatDoNotFit) {
  auto product =
      cuda::linear_forward<float>(at<float>(0), at<float>(4096), nullptr, at<float>(8192), 8, 8, 8);
  product.shape.lda = 7;
  EXPECT_TRUE(fails_with(refusal_of(product), Code::system_error, "m 8, n 8, k 8"));
}

}  // namespace
}  // namespace loom::testing
