// Texts as users bring them: files and pipes, with and without a byte order mark.
#include "text/text_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "base/fd.h"
#include "base/file.h"
#include "format/json_file.h"
#include "support.h"
#include "text/byte_tokenizer.h"
#include "text/dataset.h"
#include "text/tokenize_files.h"

namespace loom::text {
namespace {

using testing::fails_with;
using testing::put_file;
using testing::TemporaryFolder;

TEST(TextFile, AByteOrderMarkIsNoText) {
  const TemporaryFolder folder;
  put_file(folder / "a", "\xef\xbb\xbfone\ntwo\n");
  EXPECT_EQ(TextFile::open(folder / "a")->text(), "one\ntwo\n");
  TokenizeOptions options;
  options.validation_fraction = 0;
  LOOM_ASSERT_OK(tokenize_files({folder / "a"}, folder / "d", ByteTokenizer(), options));
  const auto data = TokenDataset::open(folder / "d", Split::train);
  LOOM_ASSERT_OK(data);
  EXPECT_EQ((*data)->tokens(), 9u);  // with the end of the text
  EXPECT_EQ((*data)->text_bytes(), 8u);
  put_file(folder / "a", "\xef\xbb\xbf");
  EXPECT_TRUE(fails_with(TextFile::open(folder / "a"), Code::invalid_data, "it is empty"));
  put_file(folder / "a", std::string_view("\xfe\xff\0o", 4));
  EXPECT_TRUE(fails_with(TextFile::open(folder / "a"), Code::invalid_data,
                         "byte order mark of UTF-16, must be UTF-8: `iconv"));
}

/// A text a file is common, and a process may map 65530 files only.
TEST(TextFile, SmallFilesTakeNoMappings) {
  const TemporaryFolder folder;
  const std::string small = folder / "small", large = folder / "large", text(100000, 'x');
  put_file(small, text.substr(0, 50000));
  put_file(large, text);
  const auto read = TextFile::open(small), mapped = TextFile::open(large);
  LOOM_ASSERT_OK(read);
  LOOM_ASSERT_OK(mapped);
  const std::string maps = read_file("/proc/self/maps").take();
  EXPECT_EQ(maps.find(small), std::string::npos);
  EXPECT_NE(maps.find(large), std::string::npos);
  EXPECT_EQ(read->text(), text.substr(0, 50000));
  EXPECT_EQ(mapped->text(), text);
}

TEST(TextFile, JsonMayHaveAByteOrderMarkOfItsOwnEncodingAlone) {
  EXPECT_EQ((*format::parse_json("\xef\xbb\xbf{\"a\": 1}"))["a"], 1);
  EXPECT_TRUE(fails_with(format::parse_json(std::string_view("\xff\xfe{\0}\0", 6)), Code::invalid_data,
                         "byte order mark of UTF-16, must be UTF-8"));
}

TEST(TextFile, APipeIsReadToItsEnd) {
  const TemporaryFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string text(3 << 20, 'x');
  std::thread writer([&] { put_file(path, text + "\n"); });
  const auto file = TextFile::open(path);
  writer.join();
  LOOM_ASSERT_OK(file);
  EXPECT_EQ(file->text(), text + "\n");
}

TEST(TextFile, AMinusIsStandardInput) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd own(::dup(STDIN_FILENO));
  ::dup2(ends[0], STDIN_FILENO);
  ::close(ends[0]);
  ASSERT_EQ(::write(ends[1], "a\tb\n", 4), 4);
  ::close(ends[1]);
  const auto file = TextFile::open("-");
  const auto again = TextFile::open("-");
  if (own.valid()) ::dup2(own.get(), STDIN_FILENO);
  LOOM_ASSERT_OK(file);
  EXPECT_EQ(file->text(), "a\tb\n");
  EXPECT_EQ(file->name(), "standard input");
  EXPECT_TRUE(fails_with(again, Code::invalid_data, "standard input: it is empty"));
}

TEST(TextFile, ADatasetOfAnotherVersionIsRefused) {
  const TemporaryFolder folder;
  put_file(folder / "a", "one\ntwo\n");
  TokenizeOptions options;
  options.validation_fraction = 0;
  LOOM_ASSERT_OK(tokenize_files({folder / "a"}, folder / "d", ByteTokenizer(), options));
  format::Json json = *format::read_json(folder / "d/dataset.json");
  const auto opened = [&](const char* pointer, const format::Json& value) {
    format::Json changed = json;
    changed[format::Json::json_pointer(pointer)] = value;
    EXPECT_TRUE(format::write_json(folder / "d/dataset.json", changed).ok());
    return TokenDataset::open(folder / "d", Split::train);
  };
  EXPECT_TRUE(fails_with(opened("/version", 9), Code::unsupported, "dataset.json has version 9, must be 1"));
  EXPECT_TRUE(fails_with(opened("/train/files/0", "../a"), Code::invalid_data, "must be one beside it"));
  EXPECT_TRUE(opened("/version", 1).ok());
}

}  // namespace
}  // namespace loom::text
