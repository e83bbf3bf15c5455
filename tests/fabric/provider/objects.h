// What all objects of the provider have in common.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

namespace weft::fake_efa {

using Close = int (*)(fid*);
using Bind = int (*)(fid*, fid*, uint64_t);
using Control = int (*)(fid*, int, void*);

/// The table of an object that can be closed, and perhaps more.
inline fi_ops object_ops(Close close, Bind bind = nullptr, Control control = nullptr) {
  fi_ops ops{};
  ops.size = sizeof ops;
  ops.close = close;
  ops.bind = bind ? bind : [](fid*, fid*, uint64_t) { return -FI_ENOSYS; };
  ops.control = control ? control : [](fid*, int, void*) { return -FI_ENOSYS; };
  ops.ops_open = [](fid*, const char*, uint64_t, void**, void*) { return -FI_ENOSYS; };
  return ops;
}

}  // namespace weft::fake_efa
