// A test asks the fake cuDNN by these functions, beyond the library's interface; dlsym finds them.
#pragma once

#include <cstdint>

extern "C" {
/// How often cudnnBackendExecute was called, or cudnnBackendFinalize of a plan ("plans"), or of a plan whose
/// sums of dq have one order ("deterministic plans").
uint64_t fake_cudnn_calls(const char* what);
}
