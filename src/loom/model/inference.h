// Inference: a whole model on one process, for reading only. It classifies texts, and it continues one token
// by token with a cache of keys and values, so that a token costs one token's work whatever stands before it.
//
// Thread safety: one thread; the work is shared out among `threads`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/safetensors_reader.h"
#include "model/batch_layout.h"
#include "model/runner.h"

namespace loom::model {

/// Errors: unsupported for a model that is not causal.
Status check_continues(const ModelSpec& spec);

class Inference {
 public:
  /// A folder in Hugging Face's form. Errors: as spec_from_config() and open_model_file(), and of create().
  static Result<std::unique_ptr<Inference>> open(const std::string& folder, int threads);
  /// Errors: as read_parameters(); out_of_memory for parameters that this machine has no room for.
  static Result<std::unique_ptr<Inference>> create(const ModelSpec& spec,
                                                   const format::SafetensorsReader& file, int threads);

  const ModelSpec& spec() const { return spec_; }

  /// [batch, labels] from token[batch, tokens], with `padding` behind short sequences: what a dataset was
  /// filled up with need not be what the model's files say, which may say nothing. Errors: unsupported for a
  /// model that does not classify; invalid_argument for sequences that are longer than the context, and for
  /// another padding than the spec's where positions are counted from it.
  Result<std::vector<float>> classify(std::span<const int32_t> token, int64_t batch, int32_t padding);

  /// Tokens fed so far.
  int64_t position() const { return position_; }
  /// Begins a new text.
  void restart() { position_ = 0; }
  /// Logits of what follows the next token. Errors: unsupported for a model that is not causal;
  /// invalid_argument for a token outside the vocabulary, or when the context is full; out_of_memory where
  /// this machine has no room for the keys and values of so many tokens.
  Result<std::vector<float>> feed(int32_t token);

 private:
  Inference(const ModelSpec& spec, int threads);
  Status check_tokens(std::span<const int32_t> token) const;
  /// Runs all blocks; the last one's output is in x_.
  void run(std::span<const int32_t> token, int64_t batch, int64_t tokens);
  /// Derives from the pass's tokens what its units read besides them.
  void derive(int64_t only_row);
  /// Room for the next token's keys and values.
  Status make_room();
  /// Takes recipes and memory for such sequences.
  void prepare(int64_t batch, int64_t tokens);
  void run_unit(const Unit& unit, const Recipe& recipe, Bound<float>& bound);
  std::vector<float> head_logits(int64_t row);

  ModelSpec spec_;
  std::vector<Unit> units_;
  std::vector<std::vector<float>> parameters_;
  std::unique_ptr<Workers> workers_;
  Runner<float> runner_;
  std::optional<Recipes> recipes_;     // of the pass's batch and tokens
  std::optional<BatchLayout> layout_;  // the same, and of the spec's padding
  Pass pass_;
  std::vector<float> x_, y_;
  std::vector<std::byte> saved_, workspace_;
  std::vector<std::byte> past_;     // keys and values of each layer: Pass::past
  std::vector<std::byte> arrays_;   // of the batch, derived
  std::span<const int32_t> token_;  // of the pass
  int64_t position_ = 0;
};

}  // namespace loom::model
