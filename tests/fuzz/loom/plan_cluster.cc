// Descriptions of clusters, as `loom plan` reads them.
#include <loom/plan.h>

#include "fuzz.h"
#include "memory_file.h"

FUZZ_TARGET(plan_cluster) {
  const fuzz::MemoryFile file(input.rest_as_text());
  (void)loom::read_cluster(file.path());
}
