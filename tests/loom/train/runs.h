// What tests of whole runs share: a small dataset, a config for a small model on it, and runs on ranks that
// are threads.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "engine/ranks.h"
#include "text/examples.h"
#include "text/tokenize_files.h"
#include "train/trainer.h"

namespace loom::testing {

/// Of the steps of a run, by their numbers from 0.
using Records = std::map<int64_t, train::StepRecord>;

/// A config that trains 2 layers of width 32 in folder "data", which has to be made, and leaves what it makes
/// in "out".
class Runs : public ::testing::Test {
 protected:
  Runs() {
    config_.data.folder = folder_ / "data";
    config_.data.sequence_length = 16;
    config_.data.global_batch = 8;
    config_.model.width = 32;
    config_.model.layers = 2;
    config_.parallel.threads = 1;
    config_.parallel.strict = true;
    config_.run.evaluation_steps = 2;
    config_.run.out = folder_ / "out";
  }

  /// A dataset in `folder`: products of small numbers, a line each. `tokenizer` is "bytes" or that of a file.
  void make_tokens(const std::string& folder, const std::string& tokenizer = "bytes", int lines = 600) {
    std::string text;
    for (int i = 0; i < lines; ++i)
      text += fmt::format("{} times {} is {}.\n", i % 13, i % 7, i % 13 * (i % 7));
    put_file(folder_ / "text.txt", text);
    const auto opened = text::open_tokenizer(tokenizer);
    LOOM_ASSERT_OK(opened);
    LOOM_ASSERT_OK(text::tokenize_files({folder_ / "text.txt"}, folder, **opened));
  }

  /// Texts of two classes that differ in their first word.
  void make_examples(const std::string& folder, const std::string& tokenizer, const char* one = "even",
                     const char* other = "odd") {
    std::string lines;
    for (int i = 0; i < 100; ++i)
      lines += fmt::format("{}\tthe number {} is it\n{}\tit is {} of them\n", one, i, other, i * 3);
    put_file(folder_ / "texts.tsv", lines);
    const auto opened = text::open_tokenizer(tokenizer);
    LOOM_ASSERT_OK(opened);
    LOOM_ASSERT_OK(text::tokenize_examples({folder_ / "texts.tsv"}, folder, **opened, 0.1));
  }

  /// What rank 0 is told of the steps of a whole run on `ranks` ranks of one node. `after` is called on every
  /// rank when its run is over.
  static Records run_on(int ranks, const train::Config& config,
                        const std::function<void(train::Trainer&)>& after = {}) {
    Records records;
    on_ranks(ranks, 1, [&](weftComm_t world) {
      Result<std::unique_ptr<train::Trainer>> trainer = train::Trainer::create(config, world);
      LOOM_ASSERT_OK(trainer);
      const bool first = (*trainer)->groups().rank() == 0;
      LOOM_ASSERT_OK((*trainer)->run([&](const train::StepRecord& record) {
        if (first) records[record.step] = record;
      }));
      if (after) after(**trainer);
    });
    return records;
  }

  TemporaryFolder folder_;
  train::Config config_;
};

/// Runs on tokens that are there, with the same learning rate in every step, however many a config has.
class SteadyRuns : public Runs {
 protected:
  void SetUp() override {
    make_tokens(config_.data.folder);
    config_.optimizer.schedule = "constant";
    config_.optimizer.warmup_steps = 0;
  }
};

}  // namespace loom::testing
