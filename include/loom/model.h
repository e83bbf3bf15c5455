// Model: losses, texts and logits of a model in Hugging Face's form, on one rank.
//
// Thread safety: one thread an object; objects are independent.
#pragma once

#include <loom/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace loom {

struct Evaluation {
  double loss = 0;           // nats a token
  double loss_per_byte = 0;  // nats a byte of the text that was read
  int64_t batches = 0;
  int64_t batch = 0;      // sequences of a batch; the last batch has the rest
  int64_t sequences = 0;  // read in all
  int64_t tokens = 0;     // of a sequence
  // For a classifier. The loss is then nats a text, and loss_per_byte is not set:
  int64_t texts = 0;
  int64_t right = 0;  // texts that got the right class
  std::vector<std::string> labels;
  /// Whether the dataset has completions. The loss is then nats a token of a completion, and loss_per_byte is
  /// not set. Texts share sequences, as with data.packing.
  bool completions = false;
  /// A sentence about texts that share sequences, are left out, or cut; or "".
  std::string note;
  /// Whether it is a masked language model. The loss is then nats a hidden token, and loss_per_byte is not
  /// set.
  bool masked = false;
};

/// A class, and the probability that the text belongs to it.
struct ClassProbability {
  std::string label;
  double probability = 0;
};

struct EvaluationOptions {
  int64_t sequence_length = 0;  // 0: the model's context; of completions at most 512 or the longest text
  int64_t batch = 4;            // sequences of a batch; the last batch has the rest
  int64_t batches = 0;          // 0: all of the validation split
  /// Called after each batch, with the number of batches done and of all batches.
  std::function<void(int64_t done, int64_t all)> tell = {};
};

struct SamplingOptions {
  int64_t tokens = 200;      // to add to the prompt
  double temperature = 0.8;  // 0 takes the likeliest token
  int64_t top_k = 0;         // draw among the top_k likeliest tokens; 0: all
  uint64_t seed = 1;         // the same seed draws the same text
};

class LOOM_API Model {
 public:
  /// `folder` has config.json, safetensors and tokenizer files, as run.out/model does. `threads` 0: one for
  /// each CPU of this process. Weights are read when they are first needed. Errors: not_found, invalid_data,
  /// unsupported.
  static Result<Model> open(const std::string& folder, int threads = 0);

  Model(Model&& other) noexcept;
  Model& operator=(Model&& other) noexcept;
  ~Model();

  int64_t context() const;
  int64_t vocabulary() const;
  /// Sentences that list what Loom ignores in the folder: keys of config.json, tensors. Empty until weights
  /// have been read.
  const std::vector<std::string>& notes() const;

  /// Loss on the validation split of a dataset, for the task of model and data. Errors: invalid_argument
  /// (another vocabulary, other labels, data for another task), not_found, invalid_data, out_of_memory,
  /// not_finite (the weights give a loss that is not finite).
  Result<Evaluation> evaluate(const std::string& dataset, const EvaluationOptions& options = {});
  /// The prompt, continued until the end of text or by `tokens` tokens. Errors: as logits(); not_found (no
  /// tokenizer), invalid_argument (an option; a prompt without tokens, if the tokenizer has none for a
  /// line's end and none that ends a text), not_finite (the weights give logits that are not finite).
  Result<std::string> sample(const std::string& prompt, const SamplingOptions& options = {});
  /// Names of a classifier's classes, in the order of their numbers; the numbers if it has no names. Empty
  /// for other models.
  std::vector<std::string> labels() const;
  /// Every class of a text, the likeliest first. A text that is longer than the context is cut. Errors:
  /// unsupported (the model is no classifier), not_found (no tokenizer), invalid_argument (a text without a
  /// token), invalid_data, out_of_memory, not_finite.
  Result<std::vector<ClassProbability>> classify(const std::string& text);
  /// Scores, [vocabulary()], of every token as the next after `tokens`. Only the last context() of them
  /// count. Errors: unsupported (the model is not causal), invalid_argument (no tokens, or one outside of the
  /// vocabulary), invalid_data, out_of_memory.
  Result<std::vector<float>> logits(std::span<const int32_t> tokens);
  /// The tokens of a text, without those that begin or end a text for the model. Errors: not_found (no
  /// tokenizer).
  Result<std::vector<int32_t>> encode(const std::string& text) const;
  /// The bytes that tokens stand for, which may be no valid UTF-8. Errors: not_found (no tokenizer),
  /// invalid_argument (a token outside of the vocabulary).
  Result<std::string> decode(std::span<const int32_t> tokens) const;

 private:
  struct Inside;
  explicit Model(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace loom
