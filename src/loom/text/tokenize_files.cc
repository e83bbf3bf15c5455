#include "text/tokenize_files.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <optional>
#include <thread>

#include "base/control_group.h"
#include "base/file.h"
#include "base/thread.h"
#include "format/json_file.h"
#include "text/dataset.h"
#include "text/replace_tokenizer.h"
#include "text/token_file.h"
#include "text/words.h"

namespace loom::text {
namespace {

using format::Json;

/// What one thread tokenizes at a time.
struct Part {
  std::string_view text;
  Split split = Split::train;
  bool continues = false;  // another part of its split is before it
  bool ends_document = false;
};

/// Writes the tokens of one split into as many files as they need.
class SplitWriter {
 public:
  SplitWriter(Split split, const std::string& folder, const Tokenizer& tokenizer, uint64_t tokens_a_file)
      : split_(split), folder_(folder), tokenizer_(tokenizer), tokens_a_file_(tokens_a_file) {}

  Status append(std::span<const Token> tokens) {
    while (!tokens.empty()) {
      if (!file_) LOOM_TRY(next_file());
      const size_t some =
          static_cast<size_t>(std::min<uint64_t>(tokens.size(), tokens_a_file_ - file_->count()));
      LOOM_TRY(file_->append(tokens.first(some)));
      tokens_ += some;
      tokens = tokens.subspan(some);
      if (file_->count() == tokens_a_file_) LOOM_TRY(finish());
    }
    return {};
  }

  Status finish() {
    if (!file_) return {};
    const Status finished = file_->finish();
    file_.reset();
    return finished;
  }

  uint64_t tokens() const { return tokens_; }

  Json to_json(uint64_t text_bytes) const {
    Json json;
    json["tokens"] = tokens_;
    json["text_bytes"] = text_bytes;
    json["files"] = names_;
    return json;
  }

 private:
  Status next_file() {
    names_.push_back(fmt::format("{}-{:05}.tokens", split_name(split_), names_.size()));
    Result<TokenFileWriter> file = TokenFileWriter::create(join_path(folder_, names_.back()),
                                                           tokenizer_.vocabulary_size(), tokenizer_.hash());
    if (!file.ok()) return file.status();
    file_ = file.take();
    return {};
  }

  const Split split_;
  const std::string folder_;
  const Tokenizer& tokenizer_;
  const uint64_t tokens_a_file_;
  std::optional<TokenFileWriter> file_;
  std::vector<std::string> names_;
  uint64_t tokens_ = 0;
};

Status check_options(size_t files, const TokenizeOptions& options) {
  if (files == 0) return fail(Code::invalid_argument, "no text files are given, must be at least one");
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    return fail(Code::invalid_argument, "the validation fraction is {}, must be in [0, 1)",
                options.validation_fraction);
  }
  if (options.tokens_a_file < 1 || options.part_bytes < 1 || options.threads < 0) {
    return fail(Code::invalid_argument,
                "{} tokens a file, parts of {} bytes and {} threads, must be at least 1, 1 and 0",
                options.tokens_a_file, options.part_bytes, options.threads);
  }
  return {};
}

/// Where the line ends in which `at` is, or the line before it.
size_t line_end(std::string_view text, size_t at) {
  const size_t line_feed = text.find('\n', at > 0 ? at - 1 : 0);
  return line_feed == std::string_view::npos ? text.size() : line_feed + 1;
}

/// Cuts a document into its two splits and these into parts, so that the tokens are those of each split as a
/// whole.
void add_parts(std::string_view text, const Tokenizer& tokenizer, const TokenizeOptions& options,
               std::vector<Part>& parts) {
  const double train = std::ceil(static_cast<double>(text.size()) * (1 - options.validation_fraction));
  const size_t border =
      options.validation_fraction > 0 ? line_end(text, static_cast<size_t>(train)) : text.size();
  const auto add_split = [&](Split split, std::string_view whole) {
    for (size_t at = 0; at < whole.size();) {
      const size_t wanted = static_cast<size_t>(std::min<uint64_t>(options.part_bytes, whole.size() - at));
      const size_t end = tokenizer.may_be_cut() ? tokenizer.safe_cut(whole, at + wanted) : whole.size();
      parts.push_back({whole.substr(at, end - at), split, at > 0, end == whole.size()});
      at = end;
    }
  };
  add_split(Split::train, text.substr(0, border));
  add_split(Split::validation, text.substr(border));
}

/// Tokenizes several parts at once; the results are in the order of the parts.
std::vector<std::vector<Token>> tokenize(std::span<const Part> parts, const Tokenizer& tokenizer,
                                         size_t threads) {
  std::vector<std::vector<Token>> tokens(parts.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < parts.size(); i = next++) {
      // A validation split begins inside a document.
      if (parts[i].continues) tokenizer.encode_rest(parts[i].text, tokens[i]);
      else if (parts[i].split == Split::validation) tokenizer.encode(parts[i].text, tokens[i]);
      else tokens[i] = tokenizer.encode_document(parts[i].text);
      if (parts[i].ends_document && tokenizer.end_of_text()) tokens[i].push_back(*tokenizer.end_of_text());
    }
  };
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min(threads, parts.size()); ++i) {
    Result<std::thread> helper = start_thread(work);
    if (!helper.ok()) break;  // those that are there share the parts
    helpers.push_back(helper.take());
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  return tokens;
}

Status write_dataset_json(const std::string& folder, const Tokenizer& tokenizer, const SplitWriter& train,
                          const SplitWriter& validation, const TokenizeSummary& summary) {
  Json json;
  json["format"] = "loom tokens";
  json["version"] = kDatasetVersion;
  json["tokenizer"] = {{"description", tokenizer.description()},
                       {"vocabulary_size", tokenizer.vocabulary_size()},
                       {"hash", fmt::format("{:016x}", tokenizer.hash())}};
  json[split_name(Split::train)] = train.to_json(summary.train_bytes);
  json[split_name(Split::validation)] = validation.to_json(summary.validation_bytes);
  return format::write_json(join_path(folder, kDatasetFile), json);
}

Result<TokenizeSummary> write_tokens(std::span<const Part> parts, const std::string& folder,
                                     const Tokenizer& tokenizer, const TokenizeOptions& options) {
  TokenizeSummary summary;
  for (const Part& part : parts) {
    (part.split == Split::train ? summary.train_bytes : summary.validation_bytes) += part.text.size();
  }
  const uint64_t all = summary.train_bytes + summary.validation_bytes;
  SplitWriter train(Split::train, folder, tokenizer, options.tokens_a_file);
  SplitWriter validation(Split::validation, folder, tokenizer, options.tokens_a_file);
  const size_t threads =
      options.threads > 0 ? static_cast<size_t>(options.threads) : static_cast<size_t>(available_cpus());
  const size_t round = 4 * threads;  // how many parts are in memory at a time
  uint64_t done = 0;
  for (size_t first = 0; first < parts.size(); first += round) {
    const std::span<const Part> some = parts.subspan(first, std::min(round, parts.size() - first));
    const std::vector<std::vector<Token>> tokens = tokenize(some, tokenizer, threads);
    for (size_t i = 0; i < some.size(); ++i) {
      LOOM_TRY((some[i].split == Split::train ? train : validation).append(tokens[i]));
      done += some[i].text.size();
    }
    if (options.progress) options.progress(done, all);
  }
  LOOM_TRY(train.finish());
  LOOM_TRY(validation.finish());
  summary.train_tokens = train.tokens();
  summary.validation_tokens = validation.tokens();
  LOOM_TRY(replace_tokenizer(tokenizer, folder));
  LOOM_TRY(write_dataset_json(folder, tokenizer, train, validation, summary));
  return summary;
}

}  // namespace

Status remove_dataset(const std::string& folder) {
  const Result<std::vector<std::string>> names = list_folder(folder);
  if (!names.ok()) return names.status();
  std::vector<std::string> ours = {kDatasetFile};
  for (const std::string& name : *names) {
    const bool split = name.starts_with("train") || name.starts_with("validation");
    const std::string_view final = final_name(name);  // killed writers leave others
    if (split && (final.ends_with(".tokens") || final.ends_with(".examples"))) ours.push_back(name);
  }
  for (const std::string& name : ours) {
    if (::unlink(join_path(folder, name).c_str()) != 0 && errno != ENOENT) {
      return fail_errno(errno, fmt::format("cannot remove the old {} of {}", name, folder));
    }
  }
  return {};
}

Result<TokenizeSummary> tokenize_files(const std::vector<std::string>& files, const std::string& folder,
                                       const Tokenizer& tokenizer, const TokenizeOptions& options) {
  LOOM_TRY(check_options(files.size(), options));
  std::vector<TextFile> texts;
  for (const std::string& path : files) {
    Result<TextFile> file = TextFile::open(path);
    if (!file.ok()) return file.status();
    texts.push_back(file.take());
  }
  return tokenize_texts(texts, folder, tokenizer, options);
}

Result<TokenizeSummary> tokenize_texts(const std::vector<TextFile>& texts, const std::string& folder,
                                       const Tokenizer& tokenizer, const TokenizeOptions& options) {
  LOOM_TRY(check_options(texts.size(), options));
  std::vector<Part> parts;
  for (const TextFile& file : texts) add_parts(file.text(), tokenizer, options, parts);
  const bool held_out = std::any_of(parts.begin(), parts.end(),
                                    [](const Part& part) { return part.split == Split::validation; });
  if (options.validation_fraction > 0 && !held_out)
    return fail(Code::invalid_argument,
                "no line begins in the last {:g} % of any file, so nothing is left for validation; choose "
                "another fraction (--validation 0.3), or none (--validation 0)",
                options.validation_fraction * 100);
  LOOM_TRY(make_folders(folder));
  LOOM_TRY(remove_dataset(folder));
  Result<TokenizeSummary> summary = write_tokens(parts, folder, tokenizer, options);
  // What is there is of no use; the first error is the one to tell.
  if (!summary.ok()) (void)remove_dataset(folder).ok();
  return summary;
}

}  // namespace loom::text
