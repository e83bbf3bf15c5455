// Masked language modelling (Devlin et al., 2019): hidden tokens are predicted from what stands on both
// sides.
#include "model/families/family.h"
#include "model/objectives/token_data.h"
#include "text/completions.h"
#include "text/masked_batches.h"

namespace loom::model {
namespace {

OpenedData open(const SplitOfData& from) {
  if (text::holds_completions(from.folder))
    return fail(
        Code::invalid_argument,
        "{} holds prompts with completions, which only a causal model trains on; `loom tokenize` without "
        "--completions makes data for others",
        from.folder);
  auto data = open_tokens(from);
  LOOM_TRY(data.status());
  return hold(text::MaskedBatches::create(data.take(), from.tokenizer.specials(), from.options));
}

Status check_family(const FamilyDescription& family) {
  if (family.reads == Reads::both_ways) return {};
  return fail(
      Code::unsupported, "{} reads one way and has no masked task; {} have", family.name,
      families_that("and", [](const FamilyDescription& one) { return one.reads == Reads::both_ways; }));
}

}  // namespace

const Objective kMasked = {
    .task = Task::masked,
    .name = "masked",
    .rows = HeadRows::with_targets,
    .predicts_classes = false,
    .continues_texts = false,
    .metric = Metric::loss,
    .targets = text::masked_targets,
    .open = open,
    .usual_of = Reads::both_ways,
    .check_family = check_family,
    .model_class = "ForMaskedLM",
};

}  // namespace loom::model
