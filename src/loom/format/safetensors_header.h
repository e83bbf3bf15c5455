// The header of a safetensors file: its JSON, checked as if an enemy had written it.
//
//   8 bytes   N, little-endian
//   N bytes   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …, "__metadata__":
//   {"k": "v"}}
//             and spaces up to a multiple of 8
//   the rest  the tensors, without holes or overlaps
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/dtype.h"

namespace loom::format {

using Metadata = std::map<std::string, std::string>;

/// What the format itself allows.
inline constexpr uint64_t kMostHeaderBytes = 100'000'000;

/// A tensor to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<uint64_t> shape;  // row-major; empty for a scalar
};

/// A tensor of a file.
struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by position in the file
  Metadata metadata;
};

/// Elements of a shape, or nothing when that overflows.
std::optional<uint64_t> element_count(std::span<const uint64_t> shape);
/// "[2, 3]".
std::string shape_text(std::span<const uint64_t> shape);

/// Reads and checks the header of a whole file. Errors, all invalid_data; each says what is wrong and where:
/// * a file that is too short, a header length over kMostHeaderBytes or beyond the file, bad JSON
/// * keys that are missing, unknown, duplicate or of another type; an unknown dtype
/// * numbers that overflow
/// * offsets that are reversed, overlap, leave a hole, do not end where the file ends, or do not fit dtype
///   and shape
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file);

/// Lays tensors out one after the other, and makes the first bytes of the file: the length and the JSON,
/// padded to 8. Errors (invalid_argument): two of one name, the name "__metadata__", text that is not UTF-8,
/// sizes that overflow.
struct SafetensorsLayout {
  std::string head;
  std::vector<TensorEntry> tensors;  // in the order given
  uint64_t file_bytes = 0;
};
Result<SafetensorsLayout> lay_out_safetensors(std::span<const TensorSpec> tensors, const Metadata& metadata);

}  // namespace loom::format
