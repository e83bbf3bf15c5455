// Collectives and transfers: every call goes to the library that has the communicator. Collectives that NCCL
// has since 2.28.3 are made of transfers for an older NCCL.
#include "export.h"
#include "route.h"

using weft::nccl_shim::operate;
using weft::nccl_shim::OrMade;

namespace weft::nccl {

Result_t pncclReduce(const void* send, void* recv, size_t count, int type, int op, int root, Comm_t comm,
                     Stream_t stream) {
  return operate("ncclReduce", &Functions::Reduce, weftReduce, comm, stream, send, recv, count, type, op,
                 root);
}
WEFT_NCCL_ALIAS(Reduce)

Result_t pncclBcast(void* buffer, size_t count, int type, int root, Comm_t comm, Stream_t stream) {
  return operate("ncclBcast", &Functions::Bcast, weftBcast, comm, stream, buffer, count, type, root);
}
WEFT_NCCL_ALIAS(Bcast)

Result_t pncclBroadcast(const void* send, void* recv, size_t count, int type, int root, Comm_t comm,
                        Stream_t stream) {
  return operate("ncclBroadcast", &Functions::Broadcast, weftBroadcast, comm, stream, send, recv, count, type,
                 root);
}
WEFT_NCCL_ALIAS(Broadcast)

Result_t pncclAllReduce(const void* send, void* recv, size_t count, int type, int op, Comm_t comm,
                        Stream_t stream) {
  return operate("ncclAllReduce", &Functions::AllReduce, weftAllReduce, comm, stream, send, recv, count, type,
                 op);
}
WEFT_NCCL_ALIAS(AllReduce)

Result_t pncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, Comm_t comm,
                            Stream_t stream) {
  return operate("ncclReduceScatter", &Functions::ReduceScatter, weftReduceScatter, comm, stream, send, recv,
                 count, type, op);
}
WEFT_NCCL_ALIAS(ReduceScatter)

Result_t pncclAllGather(const void* send, void* recv, size_t count, int type, Comm_t comm, Stream_t stream) {
  return operate("ncclAllGather", &Functions::AllGather, weftAllGather, comm, stream, send, recv, count,
                 type);
}
WEFT_NCCL_ALIAS(AllGather)

Result_t pncclAlltoAll(const void* send, void* recv, size_t count, int type, Comm_t comm, Stream_t stream) {
  return operate("ncclAlltoAll", OrMade{&Functions::AlltoAll, all_to_all}, weftAlltoAll, comm, stream, send,
                 recv, count, type);
}
WEFT_NCCL_ALIAS(AlltoAll)

Result_t pncclGather(const void* send, void* recv, size_t count, int type, int root, Comm_t comm,
                     Stream_t stream) {
  return operate("ncclGather", OrMade{&Functions::Gather, gather}, weftGather, comm, stream, send, recv,
                 count, type, root);
}
WEFT_NCCL_ALIAS(Gather)

Result_t pncclScatter(const void* send, void* recv, size_t count, int type, int root, Comm_t comm,
                      Stream_t stream) {
  return operate("ncclScatter", OrMade{&Functions::Scatter, scatter}, weftScatter, comm, stream, send, recv,
                 count, type, root);
}
WEFT_NCCL_ALIAS(Scatter)

Result_t pncclSend(const void* send, size_t count, int type, int peer, Comm_t comm, Stream_t stream) {
  return operate("ncclSend", &Functions::Send, weftSend, comm, stream, send, count, type, peer);
}
WEFT_NCCL_ALIAS(Send)

Result_t pncclRecv(void* recv, size_t count, int type, int peer, Comm_t comm, Stream_t stream) {
  return operate("ncclRecv", &Functions::Recv, weftRecv, comm, stream, recv, count, type, peer);
}
WEFT_NCCL_ALIAS(Recv)

}  // namespace weft::nccl
