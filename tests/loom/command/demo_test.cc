// What the demo promises is checked: a model that predicts no better than byte pairs fails it.
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

 private:
  TemporaryFolder folder_;
};

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
