// Descriptions of clusters and machines, as JSON.
#include "fuzz.h"
#include "model/cluster.h"
#include "model/sourced_json.h"

using namespace weft;

FUZZ_TARGET(cluster_file) {
  const std::string text = input.rest_as_text();
  (void)model::describes_cluster(text);
  (void)model::numbers_without_source(text);
  if (const auto cluster = model::cluster_from_json(text); cluster.ok())
    fuzz::require(model::check_cluster(*cluster).ok(), "a cluster that was read is right");
  if (const auto machine = model::machine_from_json(text); machine.ok())
    fuzz::require(model::machine_from_json(model::to_json(*machine)).ok(),
                  "a machine that was read is read again");
}
