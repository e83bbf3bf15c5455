// Where a rank computes, and by what.
#pragma once

#include <string>

namespace loom::engine {

/// What computes attention on a GPU: Loom's kernels, cuDNN, or cuDNN where it can and the kernels otherwise.
enum class Attention { own, cudnn, automatic };

/// What an engine has chosen.
struct ChosenAttention {
  std::string library;  // "cuDNN 9.19.0"; "": Loom's own
  std::string why_not;  // the reason against cuDNN where it was to be taken if it can; a sentence
};

struct Where {
  int threads = 1;  // of the CPUs, which do on a GPU what is the host's
  int gpu = -1;     // the GPU's number; -1: on CPUs
  Attention attention = Attention::own;
};

}  // namespace loom::engine
