// The files of a SentencePiece BPE: Hugging Face's tokenizer.json.
//
// Thread safety: pure functions but for the files.
#pragma once

#include "format/json_file.h"
#include "text/sentencepiece_bpe.h"

namespace loom::text {

/// What a tokenizer.json holds, and what lies beside it. Errors: not_found; invalid_data; invalid_argument
/// (files that contradict each other); unsupported for one of another kind, naming the setting.
Result<SentencePieceModel> read_sentencepiece(const std::string& path);

/// The tokenizer.json of which that is read: `vocabulary` is {spelling: number}, `merges` a list of "left
/// right".
format::Json sentencepiece_json(const SentencePieceModel& model, const format::Json& vocabulary,
                                const format::Json& merges);

}  // namespace loom::text
