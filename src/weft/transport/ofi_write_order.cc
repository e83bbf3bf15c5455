#include "transport/ofi_write_order.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include "transport/ofi_library.h"

namespace weft::transport::ofi {

// libfabric has this for EFA alone, as an option of that provider. The option's number differs among
// versions, so it is taken from the headers: WEFT_OFI_ORDERS_WRITES says that they have it.
Status ask_for_ordered_writes([[maybe_unused]] fid_ep* endpoint) {
#ifdef WEFT_OFI_ORDERS_WRITES
  const bool wanted = true;
  const int error = fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_EFA_WRITE_IN_ORDER_ALIGNED_128_BYTES,
                              &wanted, sizeof wanted);
  if (error == 0) return {};
  return fail(Code::unsupported, "the network does not promise that 128 bytes are written in order: {}",
              library().strerror(-error));
#else
  return fail(Code::unsupported,
              "Weft was built with a libfabric that cannot be asked to write 128 bytes in order");
#endif
}

}  // namespace weft::transport::ofi
