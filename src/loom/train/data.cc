#include "train/data.h"

#include "model/families.h"
#include "model/objectives/objective.h"
#include "text/completions.h"
#include "text/examples.h"
#include "text/same_tokenizer.h"
#include "train/folders.h"

namespace loom::train {
namespace {

using Source = std::unique_ptr<text::BatchSource>;

}  // namespace

std::string Data::key() const {
  return fmt::format("{:016x} {:016x}", train->dataset_key(), validation ? validation->dataset_key() : 0);
}

Result<Data> open_data(const Config& config) {
  const std::string& folder = config.data.folder;
  LOOM_TRY(expect(folder, Wanted::dataset).in("data.folder"));
  const Result<model::Task> task = task_of(config);
  LOOM_TRY(task.status());
  Data data;
  auto tokenizer = text::open_tokenizer(folder);
  LOOM_TRY(tokenizer.status());
  data.tokenizer = tokenizer.take();
  if (!config.model.from.empty())
    LOOM_TRY(text::check_tokenizer_of_model(config.model.from, folder, *data.tokenizer));
  data.vocabulary = data.tokenizer->vocabulary_size();
  data.padding = data.tokenizer->specials().padding.value_or(-1);

  if (config.data.packing && !text::holds_completions(folder))
    return fail(Code::invalid_argument,
                "data.packing is true, which is for texts with completions, and {} holds other data: `loom "
                "tokenize --completions` makes such a dataset; data.packing=false trains on this one",
                folder);
  text::BatchOptions options;
  options.sequence_length = config.data.sequence_length;
  options.global_batch = config.data.global_batch;
  options.pack = config.data.packing;
  options.seed = static_cast<uint64_t>(config.run.seed);
  const model::Objective& objective = model::objective_of(*task);
  Result<Source> train = objective.open({folder, text::Split::train, *data.tokenizer, options});
  LOOM_TRY(train.status());
  data.train = train.take();
  options.shuffle = false;
  Result<Source> validation = objective.open({folder, text::Split::validation, *data.tokenizer, options});
  if (validation.ok()) data.validation = validation.take();
  else if (validation.status().code() != Code::not_found) {  // a dataset without a validation split
    const char* longer = text::holds_completions(folder) ? "longer" : "shorter";
    return fail(validation.status().code(),
                "the validation split: {}; a {} data.sequence_length may do, or tokenize with a larger "
                "--validation, or with none (--validation 0)",
                validation.status().message(), longer);
  }
  if (!objective.predicts_classes) return data;
  const auto examples = text::ExampleDataset::open(folder, text::Split::train);
  LOOM_TRY(examples.status());
  data.labels = (*examples)->label_names();
  data.padding = (*examples)->texts().padding();
  return data;
}

Result<model::ModelSpec> spec_of(const Config& config, const Data& data) {
  Result<model::ModelSpec> spec =
      spec_of(config, data.vocabulary, static_cast<int64_t>(data.labels.size()), data.padding);
  LOOM_TRY(spec.status());
  const text::SpecialTokens specials = data.tokenizer->specials();
  if (specials.padding || spec->objective().predicts_classes) return spec;
  for (const auto& [does, token] : {std::pair("begins a sequence", specials.begin),
                                    {"ends a sequence", specials.end},
                                    {"hides a token", specials.mask}})
    if (token == spec->padding)
      return fail(Code::invalid_argument,
                  "the tokenizer has no padding token, and a {} model takes token {} for it, which {} here: "
                  "nobody would see that token; must have \"<pad>\" of a BPE, or \"[PAD]\"",
                  model::family_name(spec->family), spec->padding, does);
  if (spec->first_position > 0)
    return fail(Code::invalid_argument,
                "the tokenizer has no padding token, from which a {} model counts its positions: texts with "
                "labels could never be filled up for it; must have \"<pad>\" of a BPE, or \"[PAD]\"",
                model::family_name(spec->family));
  return spec;
}

}  // namespace loom::train
