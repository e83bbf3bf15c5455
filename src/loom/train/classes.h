// The classes that a model's config.json tells apart, for those who number the labels of texts.
//
// Thread safety: pure functions but for the files.
#pragma once

#include "format/json_file.h"
#include "text/labels.h"

namespace loom::train {

/// The classes of a model in `folder` by its config.json: by the names of "id2label", else of "label2id",
/// else "LABEL_0" and so on. None where it is no model that classifies. Errors: invalid_data for two classes
/// of one name, and for a name that is two classes.
Result<text::ModelClasses> classes_of(const format::Json& config, const std::string& folder);
/// The classes of the model in the folder that a tokenizer was opened from; none where there is no model.
Result<text::ModelClasses> classes_beside(const std::string& tokenizer);

/// Whether a dataset's labels are a model's classes, number by number. Errors: invalid_argument, naming the
/// first that differs and both folders.
Status check_classes(const std::vector<std::string>& labels, const std::string& dataset,
                     const text::ModelClasses& classes);

}  // namespace loom::train
