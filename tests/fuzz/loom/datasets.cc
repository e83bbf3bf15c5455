// A folder of tokens: dataset.json and token files, with labels or without. Token files have the right
// hashes, since no fuzzer finds them.
#include "base/hash.h"
#include "file_folder.h"
#include "fuzz.h"
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

void read(const text::ExampleDataset& dataset) {
  for (uint64_t i = 0; i < dataset.size(); ++i) {
    for (const text::Token token : dataset.tokens(i))
      fuzz::require(token >= 0 && token < dataset.vocabulary_size(), "a token is in the vocabulary");
    const int32_t label = dataset.label(i);
    fuzz::require(label >= 0 && static_cast<size_t>(label) < dataset.label_names().size(),
                  "a label has a name");
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
  }
}
