// What Loom saves, the libraries of Hugging Face load. Needs a Python with them, such as `make interop`
// makes; its name may be given in LOOM_PYTHON. Skipped without.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "format/json_file.h"
#include "format/safetensors_writer.h"
#include "support.h"
#include "text/bpe.h"
#include "text/bpe_trainer.h"
#include "text/byte_tokenizer.h"
#include "text/examples.h"
#include "text/wordpiece.h"

namespace loom {
namespace {

using testing::fixture;
using testing::get_file;
using testing::TemporaryFolder;

constexpr int kSkipped = 77;

/// Runs interop/NAME with a folder; its exit code.
int python(const std::string& name, const std::string& folder) {
  const char* const chosen = std::getenv("LOOM_PYTHON");
  const std::string command =
      fmt::format("{} '{}' '{}'", chosen ? chosen : "python3", fixture("../interop/" + name), folder);
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Interop, TokenizersLoadsWhatIsSaved) {
  text::BpeTraining training;
  training.vocabulary_size = 600;
  Result<text::BpeTrainer> trainer = text::BpeTrainer::create(training);
  LOOM_ASSERT_OK(trainer);
  const std::string corpus = get_file(fixture("corpus.txt"));
  trainer->add(corpus);
  const auto trained = trainer->train();
  LOOM_ASSERT_OK(trained);
  const auto options = text::BpeTokenizer::from_tokenizer_json(fixture("options.json"));
  LOOM_ASSERT_OK(options);
  const std::shared_ptr<const text::Tokenizer> bytes = std::make_shared<text::ByteTokenizer>();
  training.special_tokens = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  Result<text::BpeTrainer> masked = text::BpeTrainer::create(training);
  LOOM_ASSERT_OK(masked);
  masked->add(corpus);
  const auto roberta = masked->train();
  LOOM_ASSERT_OK(roberta);
  EXPECT_EQ((*roberta)->sequence_template().after.size(), 1u);
  const auto bloom = text::BpeTokenizer::from_tokenizer_json(fixture("bloom.json"));
  LOOM_ASSERT_OK(bloom);
  for (const std::shared_ptr<const text::Tokenizer>& tokenizer :
       std::vector<std::shared_ptr<const text::Tokenizer>>{*trained, *options, bytes, *roberta, *bloom}) {
    const TemporaryFolder folder;
    LOOM_ASSERT_OK(tokenizer->save(folder.path()));
    format::Json expected = format::Json::array();
    const format::Json cases = format::read_json(fixture("cases.json")).take();
    for (const format::Json& item : cases.at("cases")) {
      const std::string text = item[0].get<std::string>();
      expected.push_back({text, tokenizer->encode(text), text::example_tokens(text, *tokenizer)});
    }
    expected.push_back({corpus, tokenizer->encode(corpus), text::example_tokens(corpus, *tokenizer)});
    LOOM_ASSERT_OK(format::write_json(folder / "expected.json", expected));
    const int exit = python("load_tokenizer.py", folder.path());
    if (exit == kSkipped) GTEST_SKIP() << "no Python with tokenizers and transformers";
    EXPECT_EQ(exit, 0);
  }
}

TEST(Interop, TokenizersLoadsAWordPieceThatIsSaved) {
  const auto uncased = text::WordPieceTokenizer::from_tokenizer_json(fixture("wordpiece.json"));
  LOOM_ASSERT_OK(uncased);
  text::WordPieceModel model = (*uncased)->model();
  model.lower_case = model.strip_accents = false;
  const auto cased = text::WordPieceTokenizer::make(model);
  LOOM_ASSERT_OK(cased);
  const format::Json cases = format::read_json(fixture("cases.json")).take(),
                     own = format::read_json(fixture("wordpiece_cases.json")).take();
  std::vector<std::string> texts = {own.at("last").get<std::string>()};
  for (size_t i = 0; i + 1 < own.at("tokens").size(); ++i)
    texts.push_back(cases.at("cases")[i][0].get<std::string>());
  for (const auto& tokenizer : {*uncased, *cased}) {
    const TemporaryFolder folder;
    LOOM_ASSERT_OK(tokenizer->save(folder.path()));
    format::Json expected = format::Json::array();
    for (const std::string& text : texts)
      expected.push_back({text, tokenizer->encode(text), text::example_tokens(text, *tokenizer)});
    LOOM_ASSERT_OK(format::write_json(folder / "expected.json", expected));
    const int exit = python("load_wordpiece.py", folder.path());
    if (exit == kSkipped) GTEST_SKIP() << "no Python with tokenizers and transformers";
    EXPECT_EQ(exit, 0);
  }
}

TEST(Interop, SafetensorsLoadsWhatIsSaved) {
  const TemporaryFolder folder;
  const std::vector<format::TensorSpec> specs = {{"f32", format::DType::f32, {2, 3}},
                                                 {"f16", format::DType::f16, {6}},
                                                 {"f64", format::DType::f64, {3, 2}},
                                                 {"scalar", format::DType::f32, {}},
                                                 {"empty", format::DType::i64, {0, 4}}};
  const std::vector<float> values = {-2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f};
  for (const uint64_t most_bytes : {format::ModelWriter::kMostBytesAFile, uint64_t{30}}) {
    Result<format::ModelWriter> writer =
        format::ModelWriter::create(folder.path(), specs, {{"k", "v"}}, most_bytes);
    LOOM_ASSERT_OK(writer);
    for (const char* name : {"f32", "f16", "f64"}) LOOM_ASSERT_OK(writer->write_f32(name, values));
    LOOM_ASSERT_OK(writer->write_f32("scalar", std::span(values).first(1)));
    LOOM_ASSERT_OK(writer->finish());
    const int exit = python("load_safetensors.py", folder.path());
    if (exit == kSkipped) GTEST_SKIP() << "no Python with safetensors";
    EXPECT_EQ(exit, 0);
  }
}

}  // namespace
}  // namespace loom
