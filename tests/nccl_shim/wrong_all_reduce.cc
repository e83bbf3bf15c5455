// A library in front of the shim, as a profiler is, that makes each AllReduce a maximum: nccl-tests must find
// wrong values, else their checker checks nothing here.
#include <cstddef>

extern "C" {
int pncclAllReduce(const void*, void*, size_t, int, int, void*, void*);
__attribute__((visibility("default"))) int ncclAllReduce(const void* send, void* recv, size_t count, int type,
                                                         int, void* comm, void* stream) {
  constexpr int kMax = 2;
  return pncclAllReduce(send, recv, count, type, kMax, comm, stream);
}
}
