// Model: what a model in Hugging Face's form says, on one rank: losses, texts, logits.
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
  int64_t batch = 0;      // sequences of a batch, but for the last, which has those that are left
  int64_t sequences = 0;  // that were read, in all
  int64_t tokens = 0;     // of a sequence
  // Of a model that classifies; then the loss is a text's, and there is none a byte:
  int64_t texts = 0;
  int64_t right = 0;  // of them
  std::vector<std::string> labels;
  /// Of a model of masked language: the loss is a hidden token's, and there is none a byte.
  bool masked = false;
};

/// A class, and how likely it is the text's.
struct ClassProbability {
  std::string label;
  double probability = 0;
};

struct EvaluationOptions {
  int64_t sequence_length = 0;  // 0: the model's context
  int64_t batch = 4;            // sequences at a time; the last time those that are left
  int64_t batches = 0;          // 0: all of the validation split
  /// Called after each batch, with how many are done of how many.
  std::function<void(int64_t done, int64_t all)> tell = {};
};

struct SamplingOptions {
  int64_t tokens = 200;      // to add
  double temperature = 0.8;  // 0 takes the likeliest token
  int64_t top_k = 0;         // draw among so many; 0: all
  uint64_t seed = 1;         // the same seed draws the same text
};

class LOOM_API Model {
 public:
  /// `folder` has config.json, safetensors and tokenizer files; run.out/model of a run is one. `threads` 0:
  /// as many as this process has CPUs for. Weights are read when they are first needed. Errors: not_found,
  /// invalid_data, unsupported.
  static Result<Model> open(const std::string& folder, int threads = 0);

  Model(Model&& other) noexcept;
  Model& operator=(Model&& other) noexcept;
  ~Model();

  int64_t context() const;
  int64_t vocabulary() const;
  /// Sentences on what of the folder changes nothing here, though it may seem to: keys of config.json,
  /// tensors. There once weights were read.
  const std::vector<std::string>& notes() const;

  /// Loss on the validation split of a dataset, by what model and data are for. Errors: invalid_argument
  /// (another vocabulary, other labels, data for another task), not_found, invalid_data, out_of_memory,
  /// not_finite (weights that give a loss which is no number).
  Result<Evaluation> evaluate(const std::string& dataset, const EvaluationOptions& options = {});
  /// The prompt, continued by tokens that the tokenizer has, until the end of text or as far as asked.
  /// Errors: as logits(); invalid_argument (an empty prompt, where the tokenizer has nothing to begin a text
  /// with), not_finite (weights that give logits which are no numbers).
  Result<std::string> sample(const std::string& prompt, const SamplingOptions& options = {});
  /// Names of the classes of a model that classifies, by their numbers, or these where it has no names; of
  /// other models none.
  std::vector<std::string> labels() const;
  /// Every class of a text, the likeliest first. A text that is longer than the context is cut. Errors:
  /// unsupported (a model that does not classify), not_found (no tokenizer), invalid_data, not_finite.
  Result<std::vector<ClassProbability>> classify(const std::string& text);
  /// Scores, [vocabulary()], of every token to come after `tokens`, of which the last context() are seen.
  /// Errors: unsupported (a model that is not causal), invalid_argument (no tokens, or one that is not in the
  /// vocabulary), invalid_data, out_of_memory.
  Result<std::vector<float>> logits(std::span<const int32_t> tokens);
  Result<std::vector<int32_t>> encode(const std::string& text) const;
  Result<std::string> decode(std::span<const int32_t> tokens) const;

 private:
  struct Inside;
  explicit Model(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace loom
