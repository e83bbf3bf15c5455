// Unique ids: 128 bytes that came through a file, an environment variable or a key-value store, and their
// text. The first byte says whether the checksum is made right.
#include "bootstrap/unique_id.h"

#include <algorithm>

#include "bootstrap/id_exchange.h"
#include "bootstrap/sha256.h"
#include "fuzz.h"

using namespace weft::bootstrap;

FUZZ_TARGET(unique_id) {
  constexpr size_t kChecksumBytes = 8;
  const bool mend = input.take<uint8_t>() % 2 != 0;
  auto id = fuzz::Input(input).take<UniqueId>();
  if (mend) {
    const auto checksum_at = id.bytes.end() - kChecksumBytes;
    const Digest digest = sha256("weft unique id", {id.bytes.begin(), checksum_at});
    std::copy_n(digest.begin(), kChecksumBytes, checksum_at);
  }
  if (const auto job = read_unique_id(id); job.ok()) {
    fuzz::require(job->root.valid() && job->root.port() != 0, "a valid id has an address");
    fuzz::require(id_from_text(id_to_text(id)).ok(), "a valid id is read from its text");
  }
  (void)id_from_text(input.rest_as_text());
}
