// Where a rank computes.
#pragma once

namespace loom::engine {

struct Where {
  int threads = 1;  // of the CPUs, which do on a GPU what is the host's
  int gpu = -1;     // the GPU's number; -1: on CPUs
};

}  // namespace loom::engine
