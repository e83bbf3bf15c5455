// The options of a group, as torch keeps them. Python can copy them, which torch.distributed.split_group
// does.
#ifndef WEFT_TORCH_OPTIONS_H_
#define WEFT_TORCH_OPTIONS_H_

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace weft_torch {

class WeftOptions final : public c10d::Backend::Options {
 public:
  explicit WeftOptions(std::chrono::milliseconds timeout) : Options("weft", timeout) {}
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_OPTIONS_H_
