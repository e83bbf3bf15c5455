// SafetensorsReader: the tensors of one safetensors file, or of several with an index, mapped into memory.
//
// Thread safety: a reader may be used from any thread at once. Views are valid as long as it lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "format/safetensors_header.h"

namespace loom::format {

/// One tensor: row-major, little-endian. Its bytes may have any alignment: read them with to_f32() or memcpy.
struct TensorView {
  DType dtype = DType::f32;
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;

  uint64_t elements() const { return element_count(shape).value_or(0); }
};

class SafetensorsReader {
 public:
  /// `path` is a safetensors file, an index (`….safetensors.index.json`), or a folder as Hugging Face lays it
  /// out: with model.safetensors.index.json, else model.safetensors, else a single file that ends in
  /// .safetensors. Errors: not_found, system_error, and invalid_data as parse_safetensors_header(), or for an
  /// index that is no index, names files outside its folder, or a tensor that its file does not have; two
  /// files of an index with the same tensor. Of the index's files all tensors count, also those that it
  /// leaves out, as for `transformers`. The sentence names the file.
  static Result<SafetensorsReader> open(const std::string& path);

  SafetensorsReader(SafetensorsReader&&) = default;
  SafetensorsReader& operator=(SafetensorsReader&&) = default;

  /// By position in the file; those of several files in the order of the files' names.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  /// Errors: not_found, with the name that is most like it.
  Result<TensorView> tensor(std::string_view name) const;
  /// A tensor of any float type as fp32, whose shape must be `shape`. Errors: not_found, unsupported (another
  /// type), invalid_data (another shape), with the tensor's name.
  Status read_f32(std::string_view name, std::span<const uint64_t> shape, std::span<float> into) const;
  /// Of all files; when two disagree, the last one's.
  const Metadata& metadata() const { return metadata_; }
  /// The files that were opened.
  const std::vector<std::string>& files() const { return paths_; }

 private:
  SafetensorsReader() = default;
  Status add_file(const std::string& path, const std::vector<std::string>* wanted);
  Status open_index(const std::string& path);

  std::vector<MappedFile> files_;
  std::vector<std::string> paths_;
  std::vector<std::string> names_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  Metadata metadata_;
};

}  // namespace loom::format
