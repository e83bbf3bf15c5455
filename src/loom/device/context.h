// Context: with what an operator runs. A CPU's operator runs on workers, and is done when it returns. A GPU's
// is queued: cuda/compute.h has the queue, the kernels, the plans of products and the scratch memory.
//
// Thread safety: a value; what it refers to is used by one thread at a time.
#pragma once

namespace loom {

class Workers;
namespace cuda {
class Compute;
}

namespace device {

struct Context {
  Context() = default;
  Context(Workers& of_cpu) : workers(&of_cpu) {}
  Context(cuda::Compute& of_gpu) : compute(&of_gpu) {}

  // One of the two.
  Workers* workers = nullptr;
  cuda::Compute* compute = nullptr;
};

}  // namespace device
}  // namespace loom
