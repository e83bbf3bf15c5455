// What a launcher's key-value space (PMIx's) answers when a rank asks for the unique id of rank 0.
#include "bootstrap/id_exchange.h"
#include "fuzz.h"

using namespace weft;

FUZZ_TARGET(key_value_space) {
  const std::string answer = input.rest_as_text();
  const bootstrap::KeyValueSpace space = {
      .put = [](const std::string&, const std::string&) { return Status(); },
      .fence = [] { return Status(); },
      .get = [&](const std::string&) { return Result<std::string>(answer); },
  };
  (void)bootstrap::exchange_id(space, 1, "weft-id-0");
}
