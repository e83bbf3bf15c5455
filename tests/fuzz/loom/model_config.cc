// config.json of a model.
#include "format/json_file.h"
#include "fuzz.h"
#include "model/hugging_face.h"

using namespace loom;

FUZZ_TARGET(model_config) {
  const auto json = format::parse_json(input.rest_as_text());
  if (!json.ok()) return;
  (void)model::classifies(*json);
  (void)model::count_labels(*json);
  (void)model::label_names(*json);
  const auto spec = model::spec_from_config(*json);
  if (!spec.ok()) return;
  const auto again = model::spec_from_config(model::config_of(*spec));
  fuzz::require(again.ok(), "the config of a model that was read is read again");
}
