// The classes that a model's config.json tells apart, for those who number the labels of texts.
//
// Thread safety: pure functions but for the files.
#pragma once

#include "format/json_file.h"
#include "model/spec.h"
#include "text/labels.h"
#include "train/config.h"

namespace loom::train {

/// The classes of a model in `folder` by its config.json: by the names of "id2label", or else "LABEL_0" and
/// so on, as `transformers` names them, which does not look at "label2id". None where it is no model that
/// classifies. Errors: as count_labels() of model/hugging_face.h; invalid_data for a class without a name
/// among others, and for two classes of one name.
Result<text::ModelClasses> classes_of(const format::Json& config, const std::string& folder);
/// The classes of the model in the folder that a tokenizer was opened from; none where there is no model.
Result<text::ModelClasses> classes_beside(const std::string& tokenizer);

/// Whether a dataset's labels are a model's classes, number by number. Errors: invalid_argument, naming the
/// first that differs and both folders.
Status check_classes(const std::vector<std::string>& labels, const std::string& dataset,
                     const text::ModelClasses& classes);

/// A classifier that goes on with classes of its own must number them as the dataset does, or its head would
/// be trained for others. A dataset of their numbers takes their names. Returns a note on a classifier of
/// other classes; "": it is of these, or of none, or does not say of which.
Result<std::string> take_classes(const Config& config, const model::ModelSpec& spec,
                                 std::vector<std::string>& labels);
/// That class by class a checkpoint's model has the dataset's names, where both have any. A dataset of their
/// numbers takes the checkpoint's.
Status take_classes(const format::Json& stored, std::vector<std::string>& labels);

}  // namespace loom::train
