// Files of the tuning cache, and the same numbers as rank 0 sends them to all.
#include "fuzz.h"
#include "job/tuning.h"
#include "memory_file.h"
#include "model/machine_cache.h"

using namespace weft;

FUZZ_TARGET(tuning_cache) {
  std::vector<std::byte> packed = job::MachineDecision().packed();
  const auto sent = fuzz::Input(input).take_bytes(packed.size());
  std::copy(sent.begin(), sent.end(), packed.begin());
  (void)job::MachineDecision::unpack(packed).packed();

  const std::string text = input.rest_as_text();
  (void)model::is_cached(text);
  const fuzz::MemoryFile file(text);
  (void)model::read_cache(file.path());
}
