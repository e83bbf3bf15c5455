// The header of a safetensors file.
#include "format/safetensors_header.h"
#include "fuzz.h"

using namespace loom;

FUZZ_TARGET(safetensors) {
  const std::span<const std::byte> file = input.rest();
  const auto header = format::parse_safetensors_header(file);
  if (!header.ok()) return;
  for (const format::TensorEntry& tensor : header->tensors) {
    fuzz::require(tensor.begin <= tensor.end && tensor.end <= file.size(), "a tensor lies in its file");
    fuzz::require(format::element_count(tensor.shape).has_value(), "a tensor's elements can be counted");
  }
}
