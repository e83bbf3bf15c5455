// The files of a model's weights: one, or several with an index.
#include "file_folder.h"
#include "format/safetensors_reader.h"
#include "fuzz.h"

using namespace loom;

FUZZ_TARGET(model_files) {
  static const char* const kNames[] = {"model.safetensors", "model.safetensors.index.json", "a.safetensors",
                                       "b.safetensors"};
  const fuzz::FileFolder folder(input, kNames);
  const auto reader = format::SafetensorsReader::open(folder.path());
  if (!reader.ok()) return;
  for (const std::string& name : reader->names()) {
    const auto tensor = reader->tensor(name);
    fuzz::require(tensor.ok(), "a tensor that is listed is there");
    if (tensor->elements() > 4096) continue;
    std::vector<float> values(tensor->elements());
    (void)reader->read_f32(name, tensor->shape, values);
  }
}
