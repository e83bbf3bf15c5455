// Products: matrix products by cuBLASLt, each planned once. A plan belongs to a shape, its types, epilogue
// and alignment. prepare() makes it: of eight candidates of the library the fastest is kept, and its 64 bytes
// are the choice. Another choice is whether an epilogue is used. Choices can be written down, and taken over
// by another process with the same device and library. So all ranks multiply alike, and so does a run that is
// resumed: the library gives the same bits for the same algorithm, device and version.
//
// Nothing here has run on a GPU so far.
//
// Thread safety: one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "device/cuda/cublaslt.h"
#include "device/cuda/device.h"
#include "device/cuda/product.h"

namespace loom::cuda {

class Products {
 public:
  struct Options {
    bool tf32 = false;           // products of fp32 by TF32 (10 bits of mantissa)
    bool split_k = true;         // false: each sum over k is one thread block's
    bool prefers_first = false;  // takes the first candidate, and times nothing
  };

  /// Errors: cublaslt()'s; system_error where the library refuses the device.
  static Result<std::unique_ptr<Products>> create(Device& device, const Options& options);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// The scratch memory that the library wants for each queue.
  int64_t workspace_bytes() const { return workspace_bytes_; }

  /// Makes the product's plan, unless it has one. That runs the product several times, adds as often where it
  /// adds, and waits for the queue. `workspace` has workspace_bytes(), and is the queue's own. The queue
  /// keeps failures: the library does not support the product, or refuses the choice that was taken over for
  /// it.
  void prepare(Queue& queue, const Product& product, void* workspace);
  /// As prepare() for a product with an epilogue, but true only if that is to be used in place of `apart`,
  /// which queues the same without the epilogue. It is if cuBLASLt has an algorithm for it and `apart` takes
  /// longer. Without timing, sums of 16-bit elements are taken apart, since several versions of cuBLASLt have
  /// only slow algorithms for them. `apart` runs several times.
  bool prefers(Queue& queue, const Product& product, void* workspace, const std::function<void()>& apart);
  /// Whether the product has a plan.
  bool has(const Product& product) const { return plans_.contains(key_of(product)); }
  /// Queues a product; `workspace` as above. The queue keeps failures: the product has no plan.
  void multiply(Queue& queue, const Product& product, void* workspace);

  /// All choices as text (JSON), with the device and the library that they are for.
  std::string choices() const;
  /// Takes over the choices of such a text that are for this device, this library and these options; later
  /// plans keep to them. Others it leaves out. Returns how many it took. Errors: invalid_data, and then it
  /// took none.
  Result<int64_t> adopt(const std::string& text);

 private:
  /// A shape, and the alignment in bytes (a power of two, at most 256) of its arrays.
  struct Key {
    ProductShape shape;
    int64_t a = 0, b = 0, d = 0, bias = 0, pre_activation = 0;
    auto operator<=>(const Key&) const = default;
    std::string text() const;
  };
  struct Plan;

  Products(Device& device, const Options& options);
  static Key key_of(const Product& product);
  Status make(Queue& queue, const Product& product, void* workspace);
  Result<std::unique_ptr<Plan>> make_plan(Queue& queue, const Key& key, const Product& product,
                                          void* workspace);
  Result<std::vector<LtHeuristic>> candidates(const Plan& plan, const Key& key) const;
  Result<LtAlgorithm> fastest_of(const std::vector<LtHeuristic>& found, Queue& queue, Plan& plan,
                                 const Product& product, void* workspace) const;
  Result<bool> is_faster(Queue& queue, const Product& product, void* workspace,
                         const std::function<void()>& apart) const;
  Status run(Queue& queue, const Plan& plan, const Product& product, void* workspace) const;
  std::string facts() const;

  Device& device_;
  const Options options_;
  LtHandle* handle_ = nullptr;
  int64_t workspace_bytes_ = 0;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  std::map<std::string, LtAlgorithm> choices_;  // by Key::text()
  std::set<std::string> apart_;                 // Key::text() of those whose epilogue is not used
};

/// "y = x·W" as sentences have it: m, n, k, types and epilogue.
std::string to_string(const ProductShape& shape);

}  // namespace loom::cuda
