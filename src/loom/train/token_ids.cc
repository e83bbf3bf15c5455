#include "train/token_ids.h"

namespace loom::train {
namespace {

constexpr char kBegin[] = "bos_token_id", kEnd[] = "eos_token_id", kPadding[] = "pad_token_id";

}  // namespace

void set_token_ids(const format::Json& origin, const text::Tokenizer& tokenizer, format::Json& config) {
  for (const auto& [key, token] :
       {std::pair<const char*, std::optional<text::Token>>(kBegin, tokenizer.begin_of_text()),
        {kEnd, tokenizer.end_of_text()}})
    if (token) config[key] = *token;
  const format::Json padding = config.value(kPadding, format::Json());  // what sequences were filled up with
  take_token_ids(origin, config);
  if (!padding.is_null()) config[kPadding] = padding;
}

void take_token_ids(const format::Json& config, format::Json& origin) {
  if (!config.is_object()) return;
  for (const char* key : {kBegin, kEnd, kPadding})
    if (const auto found = config.find(key); found != config.end() && !found->is_null()) origin[key] = *found;
}

}  // namespace loom::train
