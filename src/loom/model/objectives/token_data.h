// What objectives over plain tokens have in common: how they open a dataset.
#pragma once

#include "base/check.h"
#include "model/objectives/objective.h"
#include "text/examples.h"
#include "text/same_tokenizer.h"

namespace loom::model {

template <typename T>
OpenedData hold(Result<T> made) {
  LOOM_TRY(made.status());
  return std::unique_ptr<text::BatchSource>(std::make_unique<T>(made.take()));
}

/// Errors: as Objective::open.
inline Result<std::shared_ptr<const text::TokenDataset>> open_tokens(const SplitOfData& from) {
  if (text::holds_examples(from.folder))
    return fail(Code::invalid_argument,
                "{} holds texts with labels, which only a classification trains on; model.task would be "
                "classification, or `loom tokenize` without --labels makes data for others",
                from.folder);
  auto data = text::TokenDataset::open(from.folder, from.split);
  LOOM_TRY(data.status());
  LOOM_TRY(text::check_tokens_of(from.folder, (*data)->tokenizer_hash(), from.tokenizer));
  return data;
}

}  // namespace loom::model
