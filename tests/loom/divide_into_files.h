// A model of Hugging Face's form in several files with an index, as large ones are, made of one file.
#pragma once

#include <string>
#include <vector>

#include "format/safetensors_reader.h"
#include "format/safetensors_writer.h"
#include "support.h"

namespace loom::testing {

/// `whole` is a file or a folder; `into` a folder that is there.
inline void divide_into_files(const std::string& whole, const std::string& into, uint64_t bytes_a_file) {
  const Result<format::SafetensorsReader> file = format::SafetensorsReader::open(whole);
  LOOM_ASSERT_OK(file);
  std::vector<format::TensorSpec> specs;
  for (const std::string& name : file->names()) {
    const auto view = file->tensor(name);
    LOOM_ASSERT_OK(view);
    specs.push_back({name, view->dtype, view->shape});
  }
  Result<format::ModelWriter> writer =
      format::ModelWriter::create(into, specs, {{"format", "pt"}}, bytes_a_file);
  LOOM_ASSERT_OK(writer);
  for (const format::TensorSpec& spec : specs)
    LOOM_ASSERT_OK(writer->write(spec.name, file->tensor(spec.name)->bytes));
  LOOM_ASSERT_OK(writer->finish());
  ASSERT_TRUE(std::filesystem::exists(into + "/model.safetensors.index.json")) << "one file was enough";
}

}  // namespace loom::testing
