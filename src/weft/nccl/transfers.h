// AlltoAll, Gather and Scatter for an NCCL before 2.28.3, which has none: a group of its sends and receives,
// as NCCL has made them since. Their arguments are those of the functions that are missing.
//
// Thread safety: as calls on NCCL's communicators.
#pragma once

#include "base/status.h"
#include "nccl/library.h"

namespace weft::nccl {

/// NCCL's documentation says that its AlltoAll cannot be in place; ok for one that is not, or moves nothing.
/// Errors: unsupported.
Status check_all_to_all(const void* send, const void* recv, size_t count, int ranks);

/// Errors: NCCL's, check_all_to_all()'s, unsupported for an NCCL before 2.7, which has no transfers.
Status all_to_all(const Library& nccl, const void* send, void* recv, size_t count, int type, Comm_t comm,
                  Stream_t stream);
/// In place when, at the root, send == recv + root × count: the root's own part stays where it is.
Status gather(const Library& nccl, const void* send, void* recv, size_t count, int type, int root,
              Comm_t comm, Stream_t stream);
/// In place when, at the root, recv == send + root × count.
Status scatter(const Library& nccl, const void* send, void* recv, size_t count, int type, int root,
               Comm_t comm, Stream_t stream);

}  // namespace weft::nccl
