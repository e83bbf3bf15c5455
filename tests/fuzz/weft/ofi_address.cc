// Addresses of the libfabric transport. They travel through the bootstrap, and in greetings of the NCCL
// plugin.
#include "fuzz.h"
#include "opened_ofi.h"

FUZZ_TARGET(ofi_address) {
  if (auto* const transport = fuzz::opened_ofi()) (void)transport->introduce(1, input.rest(), 0);
}
