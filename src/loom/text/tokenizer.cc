#include "text/tokenizer.h"

#include <algorithm>

#include "base/file.h"
#include "format/json_file.h"
#include "text/bpe.h"
#include "text/byte_tokenizer.h"
#include "text/sentencepiece_bpe.h"
#include "text/tokenizer_json.h"
#include "text/wordpiece.h"

namespace loom::text {
namespace {

using Opened = Result<std::shared_ptr<const Tokenizer>>;

template <typename T>
Opened widen(Result<std::shared_ptr<const T>> opened) {
  if (!opened.ok()) return opened.status();
  return std::shared_ptr<const Tokenizer>(opened.take());
}

/// Whether these are the tokens of ByteTokenizer, as its tokenizer.json has them. Other programs that save a
/// model anew leave that file, and none of Loom's own.
bool is_bytes(const BpeModel& model) {
  constexpr auto kBytes = static_cast<size_t>(ByteTokenizer::kEndOfText);
  const std::vector<std::string>& tokens = model.vocabulary;
  if (tokens.size() != kBytes + 1 || !model.merges.empty()) return false;
  if (model.normalize_nfc || model.add_prefix_space || model.words != WordRule::gpt2) return false;
  for (size_t byte = 0; byte < kBytes; ++byte)
    if (tokens[byte] != std::string(1, static_cast<char>(byte))) return false;
  return tokens.back() == kEndOfTextSpelling;
}

/// A tokenizer.json, by the kind of its model; what is neither is refused by the more common one.
Opened open_json(const std::string& path) {
  const Result<format::SortedJson> json = format::read_sorted_json(path);
  if (!json.ok()) return json.status();
  const format::SortedJson& model = part_of(*json, "model");
  if (is_type(model, "WordPiece")) return widen(WordPieceTokenizer::from_tokenizer_json(path));
  if (part_of(model, "byte_fallback") == true) return widen(SentencePieceBpe::from_tokenizer_json(path));
  Result<std::shared_ptr<const BpeTokenizer>> pairs = BpeTokenizer::from_tokenizer_json(path);
  if (pairs.ok() && is_bytes((*pairs)->model())) return open_tokenizer("bytes");
  return widen(std::move(pairs));
}

Opened open_own(const std::string& path) {
  const Result<format::Json> json = format::read_json(path);
  if (!json.ok()) return json.status();
  const Result<std::string> type = format::required<std::string>(*json, "type");
  if (!type.ok()) return type.status().in(path);
  if (*type == "bytes") return std::shared_ptr<const Tokenizer>(std::make_shared<ByteTokenizer>());
  return fail(Code::invalid_data, "{} has the type \"{}\", must be \"bytes\"", path, *type);
}

}  // namespace

size_t Tokenizer::begun(std::span<const Token> tokens) const {
  const std::vector<Token> before = before_document();
  const bool is = tokens.size() >= before.size() && std::equal(before.begin(), before.end(), tokens.begin());
  return is ? before.size() : 0;
}

std::vector<Token> Tokenizer::encode_document(std::string_view text) const {
  std::vector<Token> tokens = encode(text);
  const std::vector<Token> before = before_document();
  if (begun(tokens) == 0) tokens.insert(tokens.begin(), before.begin(), before.end());
  return tokens;
}

Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& path) {
  if (path == "bytes") return std::shared_ptr<const Tokenizer>(std::make_shared<ByteTokenizer>());
  if (path.ends_with(".model") && is_file(path))
    return fail(Code::unsupported,
                "{} is SentencePiece's, which Loom does not read; `AutoTokenizer` of transformers writes "
                "tokenizer.json from it: give that, or its folder",
                path);
  if (!is_folder(path))
    return path.ends_with(".txt") ? widen(WordPieceTokenizer::from_vocabulary(path)) : open_json(path);
  const std::string own = join_path(path, "loom-tokenizer.json");
  if (is_file(own)) return open_own(own);
  const std::string json = join_path(path, "tokenizer.json");
  if (is_file(json)) return open_json(json);
  const std::string vocabulary = join_path(path, "vocab.json"), merges = join_path(path, "merges.txt");
  if (is_file(vocabulary) && is_file(merges)) return widen(BpeTokenizer::from_vocabulary(vocabulary, merges));
  const std::string pieces = join_path(path, "vocab.txt");
  if (is_file(pieces)) return widen(WordPieceTokenizer::from_vocabulary(pieces));
  if (is_file(join_path(path, "tokenizer.model")))
    return fail(Code::not_found,
                "{} has tokenizer.model, which Loom does not read, and must have tokenizer.json "
                "(`AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)` writes it)",
                path);
  return fail(
      Code::not_found,
      "{} has neither tokenizer.json, nor vocab.json and merges.txt, nor vocab.txt, nor loom-tokenizer.json",
      path);
}

}  // namespace loom::text
