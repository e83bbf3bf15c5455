// What the readers and writers of tokenizer.json have in common for the kinds that merge pairs (text/bpe.h,
// text/sentencepiece_bpe.h). Only what changes the tokens is looked at; a setting that Loom does not have is
// refused, since its tokens would silently be others.
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <optional>

#include "format/json_file.h"
#include "text/files_beside.h"
#include "text/pair_tokenizer.h"

namespace loom::text {

/// Not there, null, false or an empty text.
bool is_unset(const format::SortedJson& object, const char* key);
/// Refuses settings that are set. Errors: unsupported.
Status check_unset(const format::SortedJson& object, std::initializer_list<const char*> keys,
                   const char* where);

/// The "model" of a tokenizer.json, a part of it. Errors: invalid_data; unsupported for another kind, or
/// settings that no BPE of Loom's has.
Result<const format::SortedJson*> bpe_of(const format::SortedJson& json);

/// What a spelling of the vocabulary stands for in PairModel::vocabulary; nothing where it is none.
using Unspell = std::function<std::optional<std::string>(const std::string&)>;

/// Adds the tokens of {spelling: number}, whose numbers must be below `most`: numbers may have gaps, but not
/// so many that a file could ask for any amount of memory. Errors: invalid_data.
Status read_vocabulary(const format::SortedJson& vocabulary, size_t most, const Unspell& unspell,
                       PairModel& model);
/// Adds a merge of "left right". Errors: invalid_data.
Status add_merge_line(std::string_view line, const format::SortedJson& vocabulary, PairModel& model);
/// `added` and what lies beside them become the model's added tokens. Errors: invalid_data, invalid_argument.
Status add_added(std::vector<AddedToken> added, const FilesBeside& beside,
                 const format::SortedJson& vocabulary, size_t most, PairModel& model);
/// A special token that is spelled out in a text is itself. Bytes alone, which have no merges, spell it.
/// Errors: unsupported.
Status check_whole_special_tokens(const FilesBeside& beside, const PairModel& model);

/// Reads vocabulary, merges, added tokens and template of a tokenizer.json, and what lies beside it. Errors:
/// invalid_data, invalid_argument, unsupported.
Status read_pairs(const format::SortedJson& json, const format::SortedJson& bpe, const FilesBeside& beside,
                  const Unspell& unspell, PairModel& model);

/// A tokenizer.json with no normalizer, pre-tokenizer or decoder: `vocabulary` is {spelling: number},
/// `merges` a list of "left right"; of `model` what stands around them counts.
format::Json pairs_json(const PairModel& model, const format::Json& vocabulary, const format::Json& merges,
                        bool byte_level);

}  // namespace loom::text
