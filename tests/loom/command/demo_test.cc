// The demo: what it promises is checked, so that a model that predicts no better than byte pairs fails it;
// and all of it runs, on a text that is learnt in a few steps.
#include <filesystem>
#include <random>

#include "command/processes.h"

namespace loom::testing {
namespace {

class Demo : public ::testing::Test {
 protected:
  /// What is said of a model and of byte pairs with these losses, as `loom eval --baseline` prints them.
  Outcome judged(const std::string& model, const std::string& pairs) {
    put_file(
        folder_ / "eval.log",
        "validation loss 9.9000 nats a token, perplexity 7.00, " + model +
            "; 128 sequences of 128 tokens, 4 at a time\na model of byte pairs, trained on the same text: " +
            pairs + "\n");
    return shell(LOOM_EXAMPLES "/../scripts/below_byte_pairs.sh " + (folder_ / "eval.log"));
  }

  TemporaryFolder folder_;
};

/// A line of as many bytes as a sequence has, again and again: where a letter stands says which it is, and
/// the letter before it says little. The script finds programs and text as in a build folder.
TEST_F(Demo, OfASmallTextTrainsEvaluatesAndSamples) {
  std::mt19937 random(1);
  std::string line, text;
  for (int i = 0; i < 127; ++i) line += static_cast<char>('a' + random() % 4);
  for (int i = 0; i < 800; ++i) text += line + "\n";
  for (const char* name : {"bin", "demo"}) std::filesystem::create_directory(folder_ / name);
  std::filesystem::create_symlink(LOOM_PROGRAM, folder_ / "bin/loom");
  std::filesystem::create_symlink(WEFT_RUN, folder_ / "bin/weft_run");
  put_file(folder_ / "demo/text.txt", text);
  const Outcome demo =
      shell("LOOM_DEMO_STEPS=30 " LOOM_EXAMPLES "/../scripts/demo_loom.sh " + folder_.path());
  ASSERT_EQ(demo.code, 0) << demo.text;
  for (const char* words :
       {"predicted step", " parameters in 6 units, fp32; 4 ranks on 2 nodes, sharded over 2",
        "step 1/30  loss ", "validation loss ", " nats a byte; ",
        "a model of byte pairs, trained on the same text: ", "--prompt 'And the LORD said'",
        "\nAnd the LORD said"})
    EXPECT_NE(demo.text.find(words), std::string::npos) << words << "\n" << demo.text;
  EXPECT_EQ(get_file(folder_ / "demo/text.txt"), text) << "it is the one that was there";
  const std::string report = get_file(folder_ / "demo/run/report.html");
  EXPECT_NE(report.find("[30.0,"), std::string::npos) << "a point of a chart";
  EXPECT_TRUE(std::filesystem::exists(folder_ / "demo/run/model/model.safetensors"));
  EXPECT_NE(get_file(folder_ / "demo/eval.log").find("validation loss "), std::string::npos);
}

TEST_F(Demo, AModelMustBeBelowBytePairs) {
  EXPECT_EQ(judged("1.9400 nats a byte", "2.3200 nats a byte").code, 0);
  const Outcome above = judged("10.5000 nats a byte", "2.3200 nats a byte");
  EXPECT_EQ(above.code, 1);
  EXPECT_EQ(above.text, "the model reaches 10.5000 nats a byte, must be below the 2.3200 of byte pairs\n");
  EXPECT_EQ(judged("2.3200 nats a byte", "2.3200 nats a byte").code, 1) << "equal is not below";
  EXPECT_EQ(judged("nan nats a byte", "2.3200 nats a byte").code, 1);
  const Outcome missing = judged("1.9400 nats a byte", "unknown");
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(missing.text, "expected the losses of a model and of byte pairs, in nats a byte, and found 1\n");
}

}  // namespace
}  // namespace loom::testing
