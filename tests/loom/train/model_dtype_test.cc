// Saved models are stored in the type of the model that a run began with, or in the one that is asked for.
#include "train/model_dtype.h"

#include "format/float16.h"
#include "format/safetensors_reader.h"
#include "train/runs.h"
#include "train/stored_state.h"

namespace loom::testing {
namespace {

using format::DType;
using format::Json;

TEST(ModelDtype, IsTheSettingsOrTheOrigins) {
  EXPECT_EQ(*train::model_dtype("bf16", {{"dtype", "float16"}}), DType::bf16);
  EXPECT_EQ(*train::model_dtype("auto", {{"dtype", "float16"}}), DType::f16);
  EXPECT_EQ(*train::model_dtype("auto", {{"torch_dtype", "bfloat16"}}), DType::bf16);
  for (const Json& origin : {Json(), Json::object(), Json{{"dtype", "float64"}}, Json{{"dtype", 16}}})
    EXPECT_EQ(*train::model_dtype("auto", origin), DType::f32) << origin;
  EXPECT_TRUE(fails_with(train::model_dtype("float16", {}), Code::invalid_argument,
                         "is \"float16\", must be auto, fp32, bf16, fp16"));
}

class SavedDtype : public SteadyRuns {
 protected:
  SavedDtype() { config_.run.steps = config_.run.evaluation_steps = 1; }

  static void run(const train::Config& config) {
    run_on(2, config, [](train::Trainer& trainer) { LOOM_ASSERT_OK(trainer.save_model()); });
  }
  static std::string checkpoint(const train::Config& config) {
    return config.run.out + "/checkpoints/step-00000001";
  }
  /// Every tensor of `folder` has the type, and the values of `exact` rounded to it.
  static void expect_rounded(const std::string& folder, DType dtype, const std::string& exact) {
    const auto file = format::SafetensorsReader::open(folder), whole = format::SafetensorsReader::open(exact);
    LOOM_ASSERT_OK(file);
    LOOM_ASSERT_OK(whole);
    EXPECT_EQ(file->names(), whole->names());
    for (const std::string& name : file->names()) {
      const format::TensorView tensor = *file->tensor(name), values = *whole->tensor(name);
      ASSERT_EQ(tensor.dtype, dtype) << name;
      ASSERT_EQ(values.dtype, DType::f32) << name;
      std::vector<float> floats(values.elements());
      LOOM_ASSERT_OK(format::to_f32(values.dtype, values.bytes, floats));
      std::vector<std::byte> rounded(tensor.bytes.size());
      LOOM_ASSERT_OK(format::from_f32(dtype, floats, rounded));
      EXPECT_TRUE(std::ranges::equal(tensor.bytes, rounded)) << name;
    }
    const Json config = *format::read_config(folder);
    EXPECT_EQ(config["dtype"], dtype == DType::bf16 ? "bfloat16" : "float16");
    EXPECT_EQ(config["torch_dtype"], config["dtype"]);
  }
};

/// They used to be fp32, of twice the size of the model that a run began with.
TEST_F(SavedDtype, IsThatOfTheModelThatARunBeginsWith) {
  config_.run.model_dtype = "bf16";
  run(config_);
  LOOM_ASSERT_OK(train::export_model(checkpoint(config_), folder_ / "exact", "fp32"));
  expect_rounded(config_.run.out + "/model", DType::bf16, folder_ / "exact");

  train::Config tuned = config_;
  tuned.model = {};
  tuned.model.from = config_.run.out + "/model";
  tuned.run.out = folder_ / "tuned";
  tuned.run.model_dtype = "auto";
  run(tuned);
  LOOM_ASSERT_OK(train::export_model(checkpoint(tuned), folder_ / "tuned-exact", "fp32"));
  expect_rounded(tuned.run.out + "/model", DType::bf16, folder_ / "tuned-exact");
  LOOM_ASSERT_OK(train::export_model(checkpoint(tuned), folder_ / "as-saved"));
  expect_rounded(folder_ / "as-saved", DType::bf16, folder_ / "tuned-exact");
  LOOM_ASSERT_OK(train::export_model(checkpoint(tuned), folder_ / "halves", "fp16"));
  expect_rounded(folder_ / "halves", DType::f16, folder_ / "tuned-exact");
  EXPECT_TRUE(fails_with(train::export_model(checkpoint(tuned), folder_ / "other", "fp8"),
                         Code::invalid_argument, "\"fp8\""));
}

/// The type of a setting that is gone does not stay.
TEST_F(SavedDtype, OfAResumedRunIsThatOfItsConfig) {
  config_.run.model_dtype = "bf16";
  run(config_);
  config_.run.model_dtype = "auto";
  config_.run.steps = 2;
  run(config_);
  EXPECT_EQ((*format::read_config(config_.run.out + "/model"))["dtype"], "float32");
}

}  // namespace
}  // namespace loom::testing
