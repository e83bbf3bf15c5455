// The file of a model is checked as a whole before it is read. Tensors that it has twice must be the same.
// Tensors and keys of config.json that change nothing become notes, since the user may expect otherwise.
//
// Thread safety: pure functions but for the files.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/json_file.h"
#include "format/safetensors_reader.h"
#include "model/units.h"

namespace loom::model {

struct ModelFile {
  format::SafetensorsReader tensors;
  std::vector<std::string> notes;  // sentences; none as a rule
};

/// `folder` is a model's in Hugging Face's form, whose config.json gave the spec. Errors: as
/// SafetensorsReader::open() and read_config(); invalid_data (a tied head that differs from the embedding);
/// unsupported (an adapter lies beside the model).
Result<ModelFile> open_model_file(const std::string& folder, const ModelSpec& spec);

/// The name under which a file has a source's tensor, or nothing.
std::optional<std::string> stored_name(const format::SafetensorsReader& file, const Source& source);

/// Tensors that no parameter is read from, by their names, but for buffers of `transformers` that are made
/// again when a model is opened: masks, positions, frequencies.
std::vector<std::string> unused_tensors(const format::SafetensorsReader& file, std::span<const Unit> units,
                                        const ModelSpec& spec);

}  // namespace loom::model
