// Both spellings of a function: pnccl… is defined, nccl… is a weak alias of it, so that a profiler can put
// its own nccl… in front and call pnccl….
#pragma once

#include "nccl/abi.h"

#define WEFT_NCCL_VISIBLE __attribute__((visibility("default")))

// Declares every function of the list; a definition that differs from its declaration does not compile.
namespace weft::nccl {
extern "C" {
#define WEFT_NCCL_DECLARE(name, returns, parameters) WEFT_NCCL_VISIBLE returns pnccl##name parameters;
WEFT_NCCL_FUNCTIONS(WEFT_NCCL_DECLARE)
#undef WEFT_NCCL_DECLARE
}
}  // namespace weft::nccl

/// Beside the definition of pncclName, in the same file.
#define WEFT_NCCL_ALIAS(name) \
  extern "C" WEFT_NCCL_VISIBLE decltype(pnccl##name) nccl##name __attribute__((weak, alias("pnccl" #name)));
