#include "text/dataset.h"

#include <algorithm>

#include "base/file.h"
#include "format/json_file.h"

namespace loom::text {

using format::Json;

Status check_version(const Json& dataset_json, int64_t version, const std::string& path) {
  const Result<int64_t> found = format::value_or<int64_t>(dataset_json, "version", 1);
  LOOM_TRY(found.status().in(path));
  if (*found == version) return {};
  return fail(
      Code::unsupported,
      "{} has version {}, must be {}: another version of Loom wrote it; `loom tokenize` makes it anew", path,
      *found, version);
}

const char* split_name(Split split) { return split == Split::train ? "train" : "validation"; }

Result<std::shared_ptr<const TokenDataset>> TokenDataset::open(const std::string& folder, Split split) {
  const std::string path = join_path(folder, kDatasetFile);
  const Result<Json> json = format::read_json(path);
  if (!json.ok()) return json.status();
  LOOM_TRY(check_version(*json, kDatasetVersion, path));
  const Json section = json->is_object() ? json->value(split_name(split), Json()) : Json();
  const Result<std::vector<std::string>> names = format::required<std::vector<std::string>>(section, "files");
  if (!names.ok()) return names.status().in(fmt::format("\"{}\" of {}", split_name(split), path));
  const Result<uint64_t> tokens = format::required<uint64_t>(section, "tokens");
  if (!tokens.ok()) return tokens.status().in(path);
  const Result<uint64_t> text_bytes = format::required<uint64_t>(section, "text_bytes");
  if (!text_bytes.ok()) return text_bytes.status().in(path);
  if (names->empty()) return fail(Code::not_found, "{} has no tokens for {}", path, split_name(split));

  const std::shared_ptr<TokenDataset> dataset(new TokenDataset());
  dataset->folder_ = folder;
  dataset->text_bytes_ = *text_bytes;
  for (const std::string& name : *names) {
    if (name.empty() || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      return fail(Code::invalid_data, "{} names a file \"{}\", must be one beside it", path, name);
    LOOM_TRY(dataset->add_file(join_path(folder, name)));
  }
  if (dataset->tokens() != *tokens) {
    return fail(Code::invalid_data, "the files of {} have {} tokens for {}, must have {}", folder,
                dataset->tokens(), split_name(split), *tokens);
  }
  return std::shared_ptr<const TokenDataset>(dataset);
}

Status TokenDataset::add_file(const std::string& path) {
  Result<TokenFile> file = TokenFile::open_listed(path);
  if (!file.ok()) return file.status();
  if (!files_.empty() &&
      (file->tokenizer_hash() != tokenizer_hash() || file->vocabulary_size() != vocabulary_size())) {
    return fail(Code::invalid_data, "{} and {} were made by different tokenizers", files_.front().path(),
                path);
  }
  starts_.push_back(starts_.back() + file->count());
  files_.push_back(file.take());
  return {};
}

Status TokenDataset::read(uint64_t begin, std::span<Token> into) const {
  if (begin > tokens() || into.size() > tokens() - begin) {
    return fail(Code::invalid_argument, "tokens [{}, {}) of {}, which has {}", begin, begin + into.size(),
                folder_, tokens());
  }
  size_t file =
      static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin()) - 1;
  for (; !into.empty(); ++file) {
    const size_t some = static_cast<size_t>(std::min<uint64_t>(into.size(), starts_[file + 1] - begin));
    LOOM_TRY(files_[file].read(begin - starts_[file], into.first(some)));
    begin += some;
    into = into.subspan(some);
  }
  return {};
}

uint64_t TokenDataset::key() const {
  Hash64 hash;
  for (const TokenFile& file : files_) hash.add(file.key());
  return hash.value();
}

Status TokenDataset::verify() const {
  for (const TokenFile& file : files_) LOOM_TRY(file.verify());
  return {};
}

}  // namespace loom::text
