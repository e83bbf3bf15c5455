// The options of a group, as torch keeps them. Python can copy them, which torch.distributed.split_group
// does.
#ifndef WEFT_TORCH_OPTIONS_H_
#define WEFT_TORCH_OPTIONS_H_

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace weft_torch {

class WeftOptions final : public c10d::Backend::Options {
 public:
  explicit WeftOptions(std::chrono::milliseconds timeout) : Options("weft", timeout) {}
#ifdef C10D_BACKEND_HAS_RECONFIGURE  // torch 2.14
  c10::intrusive_ptr<Options> clone() const override { return c10::make_intrusive<WeftOptions>(*this); }
#endif
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_OPTIONS_H_
