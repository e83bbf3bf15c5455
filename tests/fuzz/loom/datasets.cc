// A folder of tokens: dataset.json and token files, with labels, with completions, or without. Token files
// have the right hashes, since no fuzzer finds them.
#include <algorithm>

#include "base/hash.h"
#include "file_folder.h"
#include "fuzz.h"
#include "text/completions.h"
#include "text/dataset.h"
#include "text/examples.h"

using namespace loom;

namespace {

constexpr size_t kHeaderBytes = 64, kDataHashAt = 40, kHeaderHashAt = 56;

/// Token files have lines of digits here, since a record separator may not be among their bytes: two digits a
/// byte.
std::string from_digits(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::strtoul(digits.substr(i, 2).c_str(), nullptr, 16));
  return bytes;
}

uint64_t hash_of_text(std::string_view text) {
  Hash64 hash;
  if (!text.empty()) hash.add(text);
  return hash.value();
}

void mend(const std::string& name, std::string& content) {
  if (name.ends_with(".json")) return;
  content = from_digits(content);
  if (content.size() < kHeaderBytes) return;
  const uint64_t data_hash = hash_of_text(std::string_view(content).substr(kHeaderBytes));
  std::memcpy(content.data() + kDataHashAt, &data_hash, sizeof data_hash);
  const uint64_t header_hash = hash_of_text(std::string_view(content).substr(0, kHeaderHashAt));
  std::memcpy(content.data() + kHeaderHashAt, &header_hash, sizeof header_hash);
}

void read(const text::TokenDataset& dataset) {
  (void)dataset.verify();
  std::vector<text::Token> tokens(std::min<uint64_t>(dataset.tokens(), 4096));
  (void)dataset.read(dataset.tokens() - tokens.size(), tokens);
}

void read(const text::StoredSequences& stored) {
  for (uint64_t i = 0; i < stored.size(); ++i)
    for (const text::Token token : stored.tokens(i))
      fuzz::require(token >= 0 && token < stored.vocabulary_size(), "a token is in the vocabulary");
}

void read(const text::ExampleDataset& dataset) {
  read(dataset.texts());
  for (uint64_t i = 0; i < dataset.texts().size(); ++i) {
    const int32_t label = dataset.label(i);
    fuzz::require(label >= 0 && static_cast<size_t>(label) < dataset.label_names().size(),
                  "a label has a name");
  }
}

void read(const std::shared_ptr<const text::StoredSequences>& completions) {
  read(*completions);
  for (const auto& [length, pack] : {std::pair<int64_t, bool>{1, false}, {7, true}, {7, false}, {64, true}}) {
    text::BatchOptions options{length, 2};
    options.pack = pack;
    const auto batches = text::CompletionBatches::create(completions, options);
    if (!batches.ok()) continue;
    std::vector<text::Token> inputs(static_cast<size_t>(2 * length)), targets(inputs.size());
    fuzz::require(batches->read(0, {0, 2}, inputs, targets).ok(), "a completion can be read");
    const auto count = std::ranges::count_if(targets, [](text::Token target) { return target >= 0; });
    fuzz::require(count == batches->targets(0, 2), "targets are counted");
  }
}

}  // namespace

FUZZ_TARGET(datasets) {
  static const char* const kNames[] = {"dataset.json",       "train-00000.tokens", "validation-00000.tokens",
                                       "train-00001.tokens", "train.tokens",       "train.examples",
                                       "validation.tokens",  "validation.examples"};
  const fuzz::FileFolder folder(input, kNames, mend);
  (void)text::holds_examples(folder.path());
  for (const text::Split split : {text::Split::train, text::Split::validation}) {
    if (const auto dataset = text::TokenDataset::open(folder.path(), split); dataset.ok()) read(**dataset);
    if (const auto dataset = text::ExampleDataset::open(folder.path(), split); dataset.ok()) read(**dataset);
    if (const auto completions = text::open_completions(folder.path(), split); completions.ok())
      read(*completions);
  }
}
