// Preloaded into a perf tool, it flips a bit in one element of every AllReduce of at least 100 elements, on
// rank 1.
#include <dlfcn.h>

#include "weft/weft.h"

extern "C" weftResult_t weftAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                      weftDataType_t datatype, weftRedOp_t op, weftComm_t comm,
                                      weftStream_t stream) {
  static const auto real = reinterpret_cast<decltype(&weftAllReduce)>(dlsym(RTLD_NEXT, "weftAllReduce"));
  const weftResult_t result = real(sendbuff, recvbuff, count, datatype, op, comm, stream);
  int rank = 0;
  weftCommUserRank(comm, &rank);
  if (rank == 1 && count >= 100) static_cast<unsigned char*>(recvbuff)[4 * 50] ^= 1;
  return result;
}
