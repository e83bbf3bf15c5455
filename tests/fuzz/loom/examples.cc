// Texts with labels, and prompts with completions, that users bring in each format, and plain texts. The
// first byte chooses the format.
#include "text/examples.h"

#include "fuzz.h"
#include "memory_file.h"
#include "text/completions.h"

using namespace loom;

FUZZ_TARGET(examples) {
  static const char* const kFormats[] = {"jsonl", "csv", "tsv"};
  const uint8_t choice = input.take<uint8_t>();
  const char* const format = kFormats[choice % std::size(kFormats)];
  const std::string content = input.rest_as_text();
  const fuzz::MemoryFile file(content);
  const auto text = text::TextFile::open(file.path());
  if (!text.ok()) return;
  fuzz::require(text::check_text(text->text()).ok() || text->text().empty(), "a text that was opened is one");
  if (choice / std::size(kFormats) % 2 == 1) {
    const auto completions = text::read_completions(*text, format);
    if (!completions.ok()) return;
    for (const text::Segments& segments : *completions)
      fuzz::require(std::ranges::any_of(segments, &text::Segment::learned), "something is learned");
    return;
  }
  const auto examples = text::read_examples(*text, format);
  if (!examples.ok()) return;
  for (const text::Example& example : *examples)
    fuzz::require(example.line > 0, "an example begins in a line");
}
