// The configuration of a training run, and the one that a checkpoint has stored.
#include "format/json_file.h"
#include "fuzz.h"
#include "train/config.h"

using namespace loom;

FUZZ_TARGET(train_config) {
  std::vector<std::string> overrides;
  const std::string text = input.take_until('\x1e');
  while (!input.empty() && overrides.size() < 16) overrides.push_back(input.take_until('\n'));
  const auto json = format::parse_json(text);
  if (!json.ok()) return;
  (void)train::stored_config(*json);
  const auto config = train::parse_config(*json, overrides);
  if (!config.ok()) return;
  (void)train::task_of(*config);
  (void)train::by_hand(config->parallel.partition);
  fuzz::require(train::parse_config(train::to_json(*config), {}).ok(),
                "a config that was read is read again");
}
