// SafetensorsWriter: writes one safetensors file, and ModelWriter one or several with an index. Tensors are
// declared first, so that the file's layout is known; then their bytes are written in any order, each in one
// piece or several. Nothing is held in memory. The file appears at its path, complete, with finish(); without
// it nothing is left.
//
// Thread safety: a writer belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "format/safetensors_header.h"

namespace loom::format {

class SafetensorsWriter {
 public:
  /// Reserves the whole file. Errors: as lay_out_safetensors(); disk_full, not_found (no such folder),
  /// system_error.
  static Result<SafetensorsWriter> create(const std::string& path, std::span<const TensorSpec> tensors,
                                          const Metadata& metadata = {});

  /// The next bytes of a tensor. Errors: not_found (never declared), invalid_argument (more than it has),
  /// disk_full.
  Status write(std::string_view name, std::span<const std::byte> bytes);
  /// The next values of a tensor of any float type, rounded to it. Errors: also invalid_argument for a number
  /// that fp16 cannot hold.
  Status write_f32(std::string_view name, std::span<const float> values);
  /// Errors: invalid_argument when a tensor is not complete, by name; disk_full, system_error.
  Status finish();

 private:
  struct Part {
    TensorEntry entry;
    uint64_t written = 0;  // bytes
  };
  SafetensorsWriter(AtomicFile file, std::vector<TensorEntry> tensors);
  Result<Part*> part(std::string_view name);

  AtomicFile file_;
  std::map<std::string, Part, std::less<>> parts_;
};

/// The weights of a model as Hugging Face stores them: model.safetensors, or
/// model-00001-of-0000N.safetensors and model.safetensors.index.json when they exceed `most_bytes_a_file`.
/// The index is written last. What the folder held of another layout is removed then, so that a reader does
/// not find two models. Each file is replaced as a whole; but a crash while one model replaces another of as
/// many files can leave files of both, so write into an empty folder where that matters.
class ModelWriter {
 public:
  static constexpr uint64_t kMostBytesAFile = 5'000'000'000;

  /// The folder must be there. Errors: as SafetensorsWriter::create(); invalid_argument for a limit of 0.
  static Result<ModelWriter> create(const std::string& folder, std::span<const TensorSpec> tensors,
                                    const Metadata& metadata = {{"format", "pt"}},
                                    uint64_t most_bytes_a_file = kMostBytesAFile);

  Status write(std::string_view name, std::span<const std::byte> bytes);
  Status write_f32(std::string_view name, std::span<const float> values);
  Status finish();

 private:
  explicit ModelWriter(std::string folder) : folder_(std::move(folder)) {}
  Result<SafetensorsWriter*> writer_of(std::string_view name);
  Status remove_other_layouts() const;

  std::string folder_;
  std::vector<std::string> file_names_;
  std::vector<SafetensorsWriter> writers_;
  std::map<std::string, size_t, std::less<>> file_of_;  // tensor to writer
  uint64_t tensor_bytes_ = 0;
};

}  // namespace loom::format
