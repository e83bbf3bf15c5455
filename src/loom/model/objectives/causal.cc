// Causal language modelling: each token predicts the next one. Of prompts with completions, those before a
// completion's tokens do.
#include "model/families/family.h"
#include "model/objectives/token_data.h"
#include "text/completions.h"

namespace loom::model {
namespace {

OpenedData open(const SplitOfData& from) {
  if (text::holds_completions(from.folder)) {
    auto completions = text::open_completions(from.folder, from.split);
    LOOM_TRY(completions.status());
    LOOM_TRY(text::check_tokens_of(from.folder, (*completions)->tokenizer_hash(), from.tokenizer));
    return hold(text::CompletionBatches::create(completions.take(), from.options));
  }
  auto data = open_tokens(from);
  LOOM_TRY(data.status());
  return hold(text::Batches::create(data.take(), from.options));
}

Status check_family(const FamilyDescription& family) {
  if (family.reads == Reads::one_way) return {};
  return fail(Code::unsupported, "{} reads both ways and cannot be causal; masked or classification can",
              family.name);
}

}  // namespace

const Objective kCausal = {
    .task = Task::causal,
    .name = "causal",
    .rows = HeadRows::all,
    .predicts_classes = false,
    .continues_texts = true,
    .metric = Metric::loss_per_byte,
    .targets = [](int64_t) { return int64_t{0}; },
    .open = open,
    .usual_of = Reads::one_way,
    .check_family = check_family,
    .model_class = "ForCausalLM",
};

}  // namespace loom::model
