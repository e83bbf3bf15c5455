// Classification of texts: one token of a sequence, which is a text of its own, predicts its class.
#include "model/families/family.h"
#include "model/objectives/token_data.h"

namespace loom::model {
namespace {

OpenedData open(const SplitOfData& from) {
  auto data = text::ExampleDataset::open(from.folder, from.split);
  LOOM_TRY(data.status());
  LOOM_TRY(text::check_tokens_of(from.folder, (*data)->texts().tokenizer_hash(), from.tokenizer));
  return hold(text::ExampleBatches::create(data.take(), from.options));
}

Status check_family(const FamilyDescription& family) {
  if (family.classifies) return {};
  return fail(Code::unsupported, "{} has no classification head here; {} have", family.name,
              families_that("and", [](const FamilyDescription& one) { return one.classifies; }));
}

}  // namespace

const Objective kClassification = {
    .task = Task::classification,
    .name = "classification",
    .rows = HeadRows::one_of_sequence,
    .predicts_classes = true,
    .continues_texts = false,
    .metric = Metric::accuracy,
    .targets = [](int64_t) { return int64_t{1}; },
    .open = open,
    .usual_of = {},
    .check_family = check_family,
    .model_class = "ForSequenceClassification",
    .problem_type = "single_label_classification",
};

}  // namespace loom::model
