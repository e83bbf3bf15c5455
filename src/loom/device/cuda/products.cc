// Plans, timing and choices.
#include "device/cuda/products.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "device/cuda/timed_event.h"

namespace loom::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr int kTimedRuns = 3;
constexpr int64_t kWorkspaceFrom90 = 32 << 20, kWorkspaceBefore = 4 << 20;
constexpr int64_t kMostAlignment = 256;

using Json = nlohmann::ordered_json;

LtType lt_type(ElementType type) {
  switch (type) {
    case ElementType::bf16: return kLtBfloat16;
    case ElementType::fp16: return kLtFloat16;
    default: return kLtFloat32;
  }
}

const char* name_of(ElementType type) {
  constexpr const char* names[] = {"fp32", "bf16", "fp16"};
  return names[static_cast<int>(type)];
}

const char* name_of(Epilogue epilogue) {
  constexpr const char* names[] = {"none",          "bias",      "gelu",     "gelu_bias",
                                   "gelu_backward", "sums_of_a", "sums_of_b"};
  return names[static_cast<int>(epilogue)];
}

uint32_t lt_epilogue(Epilogue epilogue) {
  constexpr LtEpilogueValue values[] = {kLtEpilogueDefault,     kLtEpilogueBias,  kLtEpilogueGeluAux,
                                        kLtEpilogueGeluAuxBias, kLtEpilogueDgelu, kLtEpilogueBgradA,
                                        kLtEpilogueBgradB};
  return values[static_cast<int>(epilogue)];
}

int64_t alignment_of(const void* pointer) {
  if (pointer == nullptr) return 0;
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
  return std::min(address & -address, kMostAlignment);
}

/// The library's objects, destroyed with their owner.
template <typename T, int (*CublasLt::*destroy)(T*)>
struct Destroy {
  void operator()(T* object) const { (void)((*cublaslt())->*destroy)(object); }
};
using MatmulDesc = std::unique_ptr<LtMatmulDesc, Destroy<LtMatmulDesc, &CublasLt::matmul_desc_destroy>>;
using Layout = std::unique_ptr<LtLayout, Destroy<LtLayout, &CublasLt::layout_destroy>>;
using Preference = std::unique_ptr<LtPreference, Destroy<LtPreference, &CublasLt::preference_destroy>>;

template <typename T>
Status set(LtMatmulDesc* desc, int attribute, const T& value) {
  return check_lt((*cublaslt())->matmul_desc_set(desc, attribute, &value, sizeof value),
                  fmt::format("attribute {} of a product (cublasLtMatmulDescSetAttribute)", attribute));
}

template <typename T>
Status set(LtPreference* preference, int attribute, const T& value) {
  return check_lt((*cublaslt())->preference_set(preference, attribute, &value, sizeof value),
                  fmt::format("preference {} (cublasLtMatmulPreferenceSetAttribute)", attribute));
}

Status make_layout(Layout& layout, ElementType type, int64_t rows, int64_t columns, int64_t ld) {
  LtLayout* made = nullptr;
  LOOM_TRY(check_lt((*cublaslt())
                        ->layout_create(&made, lt_type(type), static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), ld),
                    "cublasLtMatrixLayoutCreate"));
  layout.reset(made);
  return {};
}

/// Milliseconds of a few runs of `work`, which queues something on `queue`, after one that is not counted.
template <typename Work>
Result<float> time(Queue& queue, const Work& work) {
  Status made_begin, made_end;
  const TimedEvent begin(made_begin), end(made_end);
  LOOM_TRY(made_begin);
  LOOM_TRY(made_end);
  LOOM_TRY(work());  // loads kernels
  LOOM_TRY(begin.record(queue.stream()));
  for (int i = 0; i < kTimedRuns; ++i) LOOM_TRY(work());
  LOOM_TRY(end.record(queue.stream()));
  LOOM_TRY(check((*driver())->event_synchronize(end.get()), "cuEventSynchronize"));
  return end.ms_since(begin);
}

}  // namespace

struct Products::Plan {
  MatmulDesc desc;
  Layout a, b, d;
  LtAlgorithm algorithm{};

  /// The descriptors of a product. They hold its pointers as well, which each run sets anew.
  Status describe(const Product& product, bool tf32) {
    const ProductShape& s = product.shape;
    const CublasLt& lt = **cublaslt();
    LtMatmulDesc* made = nullptr;
    LOOM_TRY(check_lt(lt.matmul_desc_create(&made, tf32 ? kLtComputeTf32 : kLtComputeFloat32, kLtFloat32),
                      "cublasLtMatmulDescCreate"));
    desc.reset(made);
    LOOM_TRY(set(made, kLtTransposeA, s.a_transposed ? kLtTransposed : kLtNormal));
    LOOM_TRY(set(made, kLtTransposeB, s.b_transposed ? kLtTransposed : kLtNormal));
    LOOM_TRY(set(made, kLtEpilogue, lt_epilogue(s.epilogue)));
    if (product.bias != nullptr) LOOM_TRY(set(made, kLtBiasType, static_cast<int32_t>(lt_type(s.output))));
    if (product.pre_activation != nullptr) LOOM_TRY(set(made, kLtAuxLd, s.ld_pre));
    LOOM_TRY(point(product));
    LOOM_TRY(make_layout(a, s.inputs, s.a_transposed ? s.k : s.m, s.a_transposed ? s.m : s.k, s.lda));
    LOOM_TRY(make_layout(b, s.inputs, s.b_transposed ? s.n : s.k, s.b_transposed ? s.k : s.n, s.ldb));
    return make_layout(d, s.output, s.m, s.n, s.ldd);
  }
  Status point(const Product& product) const {
    if (product.bias != nullptr) LOOM_TRY(set(desc.get(), kLtBiasPointer, product.bias));
    if (product.pre_activation != nullptr) LOOM_TRY(set(desc.get(), kLtAuxPointer, product.pre_activation));
    return {};
  }
};

std::string to_string(const ProductShape& s) {
  return fmt::format("product of m {}, n {}, k {} ({}{}{} to {}, epilogue {})", s.m, s.n, s.k,
                     name_of(s.inputs), s.a_transposed ? ", A transposed" : "",
                     s.b_transposed ? ", B transposed" : "", name_of(s.output), name_of(s.epilogue));
}

std::string Products::Key::text() const {
  const ProductShape& s = shape;
  return fmt::format("{}x{}x{} {}{} {}>{} ld {},{},{},{} {}{} align {},{},{},{},{}", s.m, s.n, s.k,
                     s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', name_of(s.inputs),
                     name_of(s.output), s.lda, s.ldb, s.ldd, s.ld_pre, name_of(s.epilogue),
                     s.adds ? " adds" : "", a, b, d, bias, pre_activation);
}

Products::Products(Device& device, const Options& options) : device_(device), options_(options) {}

Products::~Products() {
  const Scope scope(device_);
  plans_.clear();
  if (handle_ != nullptr) (void)(*cublaslt())->destroy(handle_);
}

Result<std::unique_ptr<Products>> Products::create(Device& device, const Options& options) {
  const auto lt = cublaslt();
  if (!lt.ok()) return lt.status();
  const Scope scope(device);
  std::unique_ptr<Products> products(new Products(device, options));
  LOOM_TRY(check_lt((*lt)->create(&products->handle_),
                    fmt::format("cuBLASLt on {} (cublasLtCreate)", device.describe())));
  products->workspace_bytes_ = device.capability() >= 90 ? kWorkspaceFrom90 : kWorkspaceBefore;
  return products;
}

Products::Key Products::key_of(const Product& product) {
  return {product.shape,           alignment_of(product.a),    alignment_of(product.b),
          alignment_of(product.d), alignment_of(product.bias), alignment_of(product.pre_activation)};
}

Status Products::make(Queue& queue, const Product& product, void* workspace) {
  const Key key = key_of(product);
  if (!queue.status().ok() || plans_.contains(key)) return {};
  const Scope scope(device_);
  Result<std::unique_ptr<Plan>> made = make_plan(queue, key, product, workspace);
  if (!made.ok()) return made.status().in(to_string(product.shape));
  plans_.emplace(key, made.take());
  return {};
}

void Products::prepare(Queue& queue, const Product& product, void* workspace) {
  (void)queue.keep(make(queue, product, workspace));
}

bool Products::prefers(Queue& queue, const Product& product, void* workspace,
                       const std::function<void()>& apart) {
  const Key key = key_of(product);
  const std::string name = key.text();
  if (plans_.contains(key)) return true;
  if (apart_.contains(name)) return false;
  const bool chosen = choices_.contains(name);
  const bool sums =
      product.shape.epilogue == Epilogue::sums_of_a || product.shape.epilogue == Epilogue::sums_of_b;
  Result<bool> preferred = chosen || !options_.prefers_first || !sums || size_of(product.shape.inputs) == 4;
  if (*preferred) {
    const Status made = make(queue, product, workspace);
    // Versions of the library differ in what they answer for an epilogue that a device lacks: "not
    // supported", or "invalid value". Errors of another kind show again without the epilogue.
    if (made.code() == Code::unsupported || (made.code() == Code::system_error && !chosen)) preferred = false;
    else if (!made.ok()) preferred = made;
    else if (!chosen && !options_.prefers_first) preferred = is_faster(queue, product, workspace, apart);
  }
  if (!preferred.ok()) return queue.keep(preferred.status());
  if (!*preferred) {
    plans_.erase(key);
    choices_.erase(name);
    apart_.insert(name);
  }
  return *preferred;
}

void Products::multiply(Queue& queue, const Product& product, void* workspace) {
  if (!queue.status().ok()) return;
  const Scope scope(device_);
  const auto found = plans_.find(key_of(product));
  (void)queue.keep(found != plans_.end()
                       ? run(queue, *found->second, product, workspace)
                       : fail(Code::internal_error, "{} was not prepared", to_string(product.shape)));
}

Status Products::run(Queue& queue, const Plan& plan, const Product& product, void* workspace) const {
  LOOM_TRY(plan.point(product));
  const float alpha = 1, beta = product.shape.adds ? 1 : 0;
  return check_lt(
      (*cublaslt())
          ->matmul(handle_, plan.desc.get(), &alpha, product.a, plan.a.get(), product.b, plan.b.get(), &beta,
                   product.d, plan.d.get(), product.d, plan.d.get(), &plan.algorithm, workspace,
                   static_cast<size_t>(workspace_bytes_), queue.stream()),
      to_string(product.shape) + " (cublasLtMatmul)");
}

Result<std::unique_ptr<Products::Plan>> Products::make_plan(Queue& queue, const Key& key,
                                                            const Product& product, void* workspace) {
  auto plan = std::make_unique<Plan>();
  LOOM_TRY(plan->describe(product, options_.tf32 && product.shape.inputs == ElementType::fp32));
  const std::string name = key.text();
  if (const auto chosen = choices_.find(name); chosen != choices_.end()) {
    LtHeuristic checked{};
    plan->algorithm = chosen->second;
    LOOM_TRY(check_lt(
        (*cublaslt())
            ->algorithm_check(handle_, plan->desc.get(), plan->a.get(), plan->b.get(), plan->d.get(),
                              plan->d.get(), &plan->algorithm, &checked),
        "cuBLASLt refuses the algorithm that was chosen before (cublasLtMatmulAlgoCheck); without the "
        "choices that were taken over it chooses anew"));
    if (const auto wanted = static_cast<int64_t>(checked.workspace_bytes); wanted > workspace_bytes_)
      return fail(Code::invalid_data,
                  "the algorithm that was chosen before wants a workspace of {} bytes, and there are {}",
                  wanted, workspace_bytes_);
    return plan;
  }
  const Result<std::vector<LtHeuristic>> found = candidates(*plan, key);
  if (!found.ok()) return found.status();
  plan->algorithm = found->front().algorithm;
  if (!options_.prefers_first) {
    const Result<LtAlgorithm> fastest = fastest_of(*found, queue, *plan, product, workspace);
    if (!fastest.ok()) return fastest.status();
    plan->algorithm = *fastest;
  }
  choices_[name] = plan->algorithm;
  return plan;
}

Result<std::vector<LtHeuristic>> Products::candidates(const Plan& plan, const Key& key) const {
  const CublasLt& lt = **cublaslt();
  LtPreference* made = nullptr;
  LOOM_TRY(check_lt(lt.preference_create(&made), "cublasLtMatmulPreferenceCreate"));
  const Preference preference(made);
  LOOM_TRY(set(made, kLtMaxWorkspaceBytes, static_cast<uint64_t>(workspace_bytes_)));
  LOOM_TRY(set(made, kLtReductionSchemes, options_.split_k ? kLtReductionInFp32 : kLtNoReduction));
  LOOM_TRY(set(made, kLtAlignmentA, static_cast<uint32_t>(key.a)));
  LOOM_TRY(set(made, kLtAlignmentB, static_cast<uint32_t>(key.b)));
  LOOM_TRY(set(made, kLtAlignmentC, static_cast<uint32_t>(key.d)));
  LOOM_TRY(set(made, kLtAlignmentD, static_cast<uint32_t>(key.d)));
  std::vector<LtHeuristic> results(kCandidates);
  int count = 0;
  const int asked = lt.heuristic(handle_, plan.desc.get(), plan.a.get(), plan.b.get(), plan.d.get(),
                                 plan.d.get(), made, kCandidates, results.data(), &count);
  LOOM_TRY(check_lt(asked, "cuBLASLt has no algorithm (cublasLtMatmulAlgoGetHeuristic)"));
  results.resize(static_cast<size_t>(count));
  std::erase_if(results, [](const LtHeuristic& result) { return result.state != kLtSuccess; });
  if (results.empty()) return fail(Code::unsupported, "cuBLASLt has no algorithm for it");
  return results;
}

Result<LtAlgorithm> Products::fastest_of(const std::vector<LtHeuristic>& found, Queue& queue, Plan& plan,
                                         const Product& product, void* workspace) const {
  float best_ms = std::numeric_limits<float>::infinity();
  LtAlgorithm best{};
  Status first_failure;
  for (const LtHeuristic& candidate : found) {
    plan.algorithm = candidate.algorithm;
    const Result<float> ms = time(queue, [&] { return run(queue, plan, product, workspace); });
    if (!ms.ok()) {  // the library may refuse at run time what it has proposed
      if (first_failure.ok()) first_failure = ms.status();
    } else if (*ms < best_ms) {
      best_ms = *ms;
      best = candidate.algorithm;
    }
  }
  if (best_ms == std::numeric_limits<float>::infinity()) return first_failure;
  return best;
}

Result<bool> Products::is_faster(Queue& queue, const Product& product, void* workspace,
                                 const std::function<void()>& apart) const {
  const Scope scope(device_);
  const Plan& plan = *plans_.at(key_of(product));
  const Result<float> together_ms = time(queue, [&] { return run(queue, plan, product, workspace); });
  LOOM_TRY(together_ms.status());
  const Result<float> apart_ms = time(queue, [&] { return apart(), queue.status(); });
  LOOM_TRY(apart_ms.status());
  return *together_ms <= *apart_ms;
}

// ---- Choices

std::string Products::facts() const {
  const CublasLt& lt = **cublaslt();
  const std::string& device = device_.describe();
  return fmt::format("{}, {} multiprocessors, cuBLASLt {}.{}.{}, workspace {}{}{}",
                     device.substr(device.find('(')), device_.multiprocessors(), lt.version[0], lt.version[1],
                     lt.version[2], workspace_bytes_, options_.tf32 ? ", tf32" : "",
                     options_.split_k ? ", split-k in fp32" : ", no split-k");
}

std::string Products::choices() const {
  Json algorithms = Json::object();
  for (const auto& [name, algorithm] : choices_) algorithms[name] = algorithm.data;
  return Json{{"facts", facts()}, {"algorithms", algorithms}, {"apart", apart_}}.dump(2);
}

Result<int64_t> Products::adopt(const std::string& text) {
  const Json read = Json::parse(text, nullptr, false);
  if (!read.is_object() || !read.contains("facts") || !read.contains("algorithms") ||
      !read["algorithms"].is_object())
    return fail(Code::invalid_data,
                "no choices of matrix products: an object with facts and algorithms was expected");
  if (read["facts"] != facts()) return int64_t{0};
  std::map<std::string, LtAlgorithm> taken;
  for (const auto& [name, value] : read["algorithms"].items()) {
    LtAlgorithm algorithm{};
    const bool whole =
        value.is_array() && value.size() == std::size(algorithm.data) &&
        std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_number_unsigned(); });
    if (!whole) return fail(Code::invalid_data, "the choice of {} is not 8 numbers", name);
    for (size_t i = 0; i < value.size(); ++i) algorithm.data[i] = value[i].get<uint64_t>();
    taken[name] = algorithm;
  }
  const Json apart = read.value("apart", Json::array());
  if (!apart.is_array() ||
      !std::all_of(apart.begin(), apart.end(), [](const Json& v) { return v.is_string(); }))
    return fail(Code::invalid_data, "products without their epilogues: an array of names was expected");
  for (const auto& [name, algorithm] : taken) choices_[name] = algorithm;
  for (const Json& name : apart) apart_.insert(name);
  return static_cast<int64_t>(taken.size());
}

}  // namespace loom::cuda
