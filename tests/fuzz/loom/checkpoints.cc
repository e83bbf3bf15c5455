// A folder of checkpoints: manifests, flat shards and their layouts.
#include "format/checkpoints.h"

#include "file_folder.h"
#include "format/flat_shards.h"
#include "fuzz.h"
#include "train/position.h"

using namespace loom;

FUZZ_TARGET(checkpoints) {
  static const char* const kNames[] = {"step-00000005/manifest.json", "step-00000007/manifest.json",
                                       "step-00000005/state-00000-of-00002.safetensors",
                                       "step-00000005/state-00001-of-00002.safetensors", "step-00000007/x"};
  const fuzz::FileFolder folder(input, kNames);
  const auto checkpoints = format::Checkpoints::open(folder.path(), 2);
  if (!checkpoints.ok()) return;
  (void)checkpoints->find();
  (void)checkpoints->latest();
  const auto steps = checkpoints->complete_steps();
  if (!steps.ok()) return;
  for (const uint64_t step : *steps) {
    const std::string step_folder = checkpoints->step_folder(step);
    const auto manifest = format::read_manifest(step_folder);
    fuzz::require(manifest.ok(), "a complete checkpoint has a manifest");
    (void)format::check_hashes(*manifest, step_folder);
    (void)train::position_of(*manifest, manifest->at("step").get<int64_t>());
    const auto layout =
        format::FlatLayout::from_json("state", manifest->value("state", format::Json::object()));
    if (!layout.ok()) continue;
    const format::FlatReader reader(step_folder, *layout);
    for (const format::FlatBuffer& buffer : layout->buffers()) {
      std::vector<float> values(std::min<uint64_t>(buffer.elements, 256));
      (void)reader.read(buffer.name, 0, values);
    }
  }
}
