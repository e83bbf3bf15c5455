// Checkpoints that `transformers` made, with what PyTorch computes of them: fixtures/gpt2.py, families.py.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "format/json_file.h"
#include "format/safetensors_reader.h"
#include "model/hugging_face.h"
#include "model/whole_model.h"
#include "ops/arrays.h"
#include "support.h"

namespace loom::testing {

/// A fixture, opened. Failures to open end the test at the first use.
struct Fixture {
  explicit Fixture(const std::string& name)
      : folder(fixture(name)),
        expected(format::SafetensorsReader::open(folder + "/expected.safetensors").take()) {}

  std::vector<float> floats(const std::string& name) const { return values_of<float>(name); }
  std::vector<int32_t> integers(const std::string& name) const { return values_of<int32_t>(name); }
  model::ModelSpec spec() const { return *model::spec_from_config(*format::read_config(folder)); }

  std::string folder;
  format::SafetensorsReader expected;

 private:
  template <typename T>
  std::vector<T> values_of(const std::string& name) const {
    const auto view = expected.tensor(name);
    std::vector<T> values(view->elements());
    std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
    return values;
  }
};

/// A folder's model, as one rank without an engine computes it.
inline WholeModel<float> load_whole(const std::string& folder) {
  WholeModel<float> whole(*model::spec_from_config(*format::read_config(folder)));
  const format::SafetensorsReader file = format::SafetensorsReader::open(folder).take();
  for (size_t u = 0; u < whole.units().size(); ++u)
    EXPECT_TRUE(model::read_parameters(file, whole.units()[u], 0, whole.parameters(u)).ok());
  return whole;
}

/// How far the logits of the model's last step, which was of the fixture's two sequences, are from PyTorch's.
/// Of a padded sequence only the tokens before the padding are compared: nobody reads the others.
inline double logits_error(WholeModel<float>& whole, const Fixture& given) {
  const model::ModelSpec spec = given.spec();
  const std::vector<int32_t> tokens = given.integers("tokens");
  const std::vector<float> logits = given.floats("logits");
  const bool classifies = spec.task == model::Task::classification;
  const size_t rows = classifies ? 2 : tokens.size(), step = tokens.size() / rows;
  const auto outputs = static_cast<size_t>(spec.outputs());
  Doubles got, wanted;
  for (size_t row = 0; row < rows; ++row) {
    if (!classifies && tokens[row] == spec.padding) continue;
    for (const float value : whole.logits(static_cast<int64_t>(row * step))) got.push_back(value);
    for (size_t i = 0; i < outputs; ++i) wanted.push_back(logits[row * outputs + i]);
  }
  return error_of(got, wanted);
}

}  // namespace loom::testing
