// A graph of cuDNN's operations, and the plan that runs it. Tensors have four dimensions. An array is memory
// that each run is given, a number is a float that each run is given, and what is between two operations
// stays inside of the kernel that the library makes of the graph. A dimension of 1 is repeated where the
// other operand has more.
//
// Thread safety: one thread at a time.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/cudnn.h"

namespace loom::cuda {

/// A descriptor of the library, destroyed with its owner.
struct DestroyDnn {
  void operator()(void* descriptor) const { (void)(*cudnn())->descriptor_destroy(descriptor); }
};
using DnnObject = std::unique_ptr<void, DestroyDnn>;

/// Makes a descriptor, sets its attributes one by one, and finalizes it. The first failure is kept.
class DnnBuilder {
 public:
  explicit DnnBuilder(DnnDescriptorType type);

  DnnBuilder& set(DnnAttribute attribute, DnnValue type, int64_t count, const void* values);
  DnnBuilder& set(DnnAttribute attribute, DnnType type) { return of_int(attribute, kDnnOfDataType, type); }
  DnnBuilder& set(DnnAttribute attribute, bool value) { return set(attribute, kDnnOfBool, 1, &value); }
  DnnBuilder& set(DnnAttribute attribute, std::span<const int64_t> values) {
    return set(attribute, kDnnOfInt64, static_cast<int64_t>(values.size()), values.data());
  }
  DnnBuilder& set(DnnAttribute attribute, DnnDescriptor descriptor) {
    return set(attribute, kDnnOfDescriptor, 1, &descriptor);
  }
  /// Of an enumeration of the library.
  DnnBuilder& of_int(DnnAttribute attribute, DnnValue type, int value) {
    return set(attribute, type, 1, &value);
  }
  Result<DnnObject> finish();

 private:
  DnnObject object_;
  Status status_;
};

/// For what a graph is planned: the device of a handle, or a description of a device that may be elsewhere.
/// Only a plan for a handle can run.
struct DnnTarget {
  DnnHandle* handle = nullptr;
  DnnDescriptor device = nullptr;
};
/// A device from its description, a JSON text of the library's. Errors: invalid_argument.
Result<DnnObject> describe_dnn_device(const std::string& json);

using Four = std::array<int64_t, 4>;

struct DnnTensorShape {
  Four sizes, strides;  // in elements
  DnnType type = kDnnFloat32;
};

/// A tensor of a graph. 0 is none.
struct DnnTensorRef {
  int64_t id = 0;
  DnnDescriptor descriptor = nullptr;
};

/// What an array or a number is in a run. A number is read before run() returns.
struct DnnBinding {
  DnnTensorRef tensor;
  const void* address;
};

class DnnPlan {
 public:
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Queues a run on the handle's stream. `bindings` are all arrays and numbers of the graph; the workspace
  /// has workspace_bytes(). Errors: system_error.
  Status run(DnnHandle* handle, std::span<const DnnBinding> bindings, void* workspace) const;

 private:
  friend class DnnGraph;
  std::vector<DnnObject> graph_;  // which the plan refers to
  DnnObject plan_;
  int64_t workspace_bytes_ = 0;
};

/// Each operation returns its result, `y`. Failures are kept until plan().
class DnnGraph {
 public:
  /// Of each run; arrays are aligned to 16 bytes, those of int32 to 4.
  DnnTensorRef array(const DnnTensorShape& shape);
  DnnTensorRef number();
  DnnTensorRef between(const DnnTensorShape& shape);

  /// y = f(x) or f(x, b), or of three x where t, else b. Computed as `precision`.
  DnnTensorRef pointwise(DnnPointwiseMode mode, std::span<const DnnTensorRef> operands, DnnTensorRef y,
                         DnnType precision = kDnnFloat32);
  /// y = the index along an axis.
  DnnTensorRef index(DnnTensorRef x, int64_t axis, DnnTensorRef y, DnnType precision);
  /// y = the sum or the most of x along the axes that y has not.
  DnnTensorRef reduce(DnnReductionMode mode, DnnTensorRef x, DnnTensorRef y);
  /// The same elements with sizes and strides of y.
  DnnTensorRef reshape(DnnTensorRef x, DnnTensorRef y);
  /// int32 arrays [B, 1, 1, 1]: how many rows and columns of y, and terms of its sums, a batch has.
  struct Extents {
    DnnTensorRef rows = {}, columns = {}, terms = {};
    bool padded = false;  // what is beyond them in y is 0
  };
  /// y[M, N] = a[M, K] · b[K, N], of the last two dimensions.
  DnnTensorRef multiply(DnnTensorRef a, DnnTensorRef b, DnnTensorRef y, const Extents& extents);

  /// The library's first choice that it can make. Errors: unsupported (it has none), system_error.
  Result<std::unique_ptr<DnnPlan>> plan(const DnnTarget& target);

 private:
  enum class Kind { array, number, between };
  DnnTensorRef tensor(const DnnTensorShape& shape, Kind kind);
  /// Keeps the descriptor, or the failure.
  DnnDescriptor keep(Result<DnnObject> made);

  Status status_;
  int64_t tensors_ = 0;
  std::vector<DnnObject> objects_;
  std::vector<DnnDescriptor> operations_;
};

}  // namespace loom::cuda
