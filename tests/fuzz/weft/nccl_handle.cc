// Handles of the NCCL plugin, which NCCL carries, and the greeting that a listener reads of a guest who knows
// the secret.
#include "fuzz.h"
#include "handle.h"

using namespace weft::nccl_net;

FUZZ_TARGET(nccl_handle) {
  const auto handle = input.take<Handle>();
  if (const auto read = read_handle(&handle); read.ok()) {
    for (size_t rail = 0; rail < read->rails; ++rail) (void)read->address(rail).to_string();
    (void)greeting_for(*read);
  }
  const auto greeting = input.take<Greeting>();
  for (const Way way : {Way::tcp, Way::ofi})
    if (check_greeting(greeting, way).ok())
      fuzz::require(greeting.sockets > 0 && greeting.socket < greeting.sockets,
                    "a greeting's socket is of its connection");
}
