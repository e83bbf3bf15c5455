// Models as Hugging Face stores them: config.json to a spec and back, and parameters from and to safetensors.
//
// Thread safety: pure functions but for the files.
#pragma once

#include <optional>
#include <span>

#include "format/json_file.h"
#include "format/safetensors_reader.h"
#include "format/safetensors_writer.h"
#include "model/split.h"

namespace loom::model {

/// The task is `task` if it is given, else that of the model class in `architectures`, else the family's
/// usual one. Only a caller that trains gives a task. A classification then has `labels` classes, unless
/// that is 0, and a head that this config's model lacks begins anew. Errors: invalid_data (a key is missing
/// or of another type); unsupported (another family, a task that it has no head for, or a choice that is not
/// computed here, by its key); invalid_argument as ModelSpec::check().
Result<ModelSpec> spec_from_config(const format::Json& config, std::optional<Task> task = {},
                                   int64_t labels = 0);
/// What `transformers` reads as the family's model for the task.
format::Json config_of(const ModelSpec& spec);

/// Whether the config's model is one that classifies texts, by its classes in `architectures`.
bool classifies(const format::Json& config);
/// How many classes it tells apart, by "id2label", or else "num_labels", or else as many as `transformers`
/// takes. Errors: invalid_data; invalid_argument for none, and for more than are supported.
Result<int64_t> count_labels(const format::Json& config);
/// The names of a classification's classes, by their numbers; none where there are only those that
/// `transformers` makes up, "LABEL_0" and so on. Computing does not ask for them, so no spec has them.
/// Errors: invalid_data (a class without a name).
Result<std::vector<std::string>> label_names(const format::Json& config);
/// A config of as many classes gets these names.
void set_label_names(const std::vector<std::string>& names, format::Json& config);

/// Elements [begin, begin + into.size()) of a unit's buffer, with zeros between and behind its parameters.
/// Names with and without the leading name of the body ("transformer.", "bert." …) are found. What begins
/// anew and is not in the file gets initial values. Errors: not_found, unsupported, invalid_data, each with
/// the tensor's name.
Status read_parameters(const format::SafetensorsReader& file, const Unit& unit, int64_t begin,
                       std::span<float> into);

/// The tensors of a whole model.
std::vector<format::TensorSpec> tensor_specs(std::span<const Unit> units,
                                             format::DType dtype = format::DType::f32);
/// Writes a unit's parameters to a file. `read` gives elements of the unit's buffer, one piece after the
/// other. It gets the same requests in the same order for every unit like this, even if `file` is null:
/// ranks that hold parts of a unit call this function together. Holds a piece at a time, and a whole tensor
/// if it is stored transposed. Errors: those of `read`, at once; the file's, when all was read.
Status write_parameters(format::ModelWriter* file, const Unit& unit, const ReadRange& read);

}  // namespace loom::model
