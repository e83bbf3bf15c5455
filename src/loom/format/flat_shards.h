// Flat shards: long vectors of fp32 (parameters, moments) that several owners hold in equal parts, stored so
// that any number of readers can read any range.
//
// A buffer of `elements` values is cut into parts of `part_elements`: owner k has [k·part_elements,
// (k+1)·part_elements), cut off at `elements`. So part_elements · owners ≥ elements; the padding that a shard
// may need is never stored, and another number of owners, with other padding, reads the same elements. Owner
// k's parts are one safetensors file, NAME-0000k-of-0000p.safetensors, a one-dimensional F32 tensor for each
// buffer of which it has something. What the buffers are is in the manifest of the checkpoint, under the key
// NAME (FlatLayout::to_json).
//
// Thread safety: values; FlatReader may be used from any thread at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "format/json_file.h"
#include "format/safetensors_reader.h"
#include "format/safetensors_writer.h"

namespace loom::format {

struct FlatBuffer {
  std::string name;
  uint64_t elements = 0;
  uint64_t part_elements = 0;  // of every owner but the last ones
};

/// The elements [begin, end) of a buffer.
struct FlatRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};

class FlatLayout {
 public:
  /// Errors (invalid_argument): no owner, two buffers of one name, an empty buffer or part, parts that do not
  /// cover.
  static Result<FlatLayout> make(std::string name, int owners, std::vector<FlatBuffer> buffers);
  /// As make(), from what to_json() gave; errors are invalid_data.
  static Result<FlatLayout> from_json(std::string name, const Json& json);
  Json to_json() const;

  /// The least part that covers: ceil(elements / owners).
  static uint64_t even_part(uint64_t elements, int owners) {
    return (elements + static_cast<uint64_t>(owners) - 1) / static_cast<uint64_t>(owners);
  }

  int owners() const { return owners_; }
  const std::vector<FlatBuffer>& buffers() const { return buffers_; }
  /// Errors: not_found.
  Result<FlatBuffer> buffer(std::string_view name) const;
  /// What `owner` has of a buffer; empty, at its end, for owners past it.
  static FlatRange range(const FlatBuffer& buffer, int owner);
  std::string file_name(int owner) const;

 private:
  FlatLayout(std::string name, int owners, std::vector<FlatBuffer> buffers);
  std::string name_;
  int owners_;
  std::vector<FlatBuffer> buffers_;
};

/// Writes one owner's file.
class FlatWriter {
 public:
  static Result<FlatWriter> create(const std::string& folder, const FlatLayout& layout, int owner,
                                   const Metadata& metadata = {});
  /// The owner's part of a buffer: at least range().size() values; what follows is padding and not stored.
  /// Errors: not_found, invalid_argument (too few, or written already), disk_full.
  Status write(std::string_view buffer, std::span<const float> part);
  /// The same in pieces, which follow each other: `piece` begins `begin` elements into the owner's part.
  Status write_piece(std::string_view buffer, uint64_t begin, std::span<const float> piece);
  /// Errors: invalid_argument when a buffer is missing.
  Status finish() { return file_.finish(); }

 private:
  FlatWriter(FlatLayout layout, int owner, SafetensorsWriter file);
  FlatLayout layout_;
  int owner_;
  SafetensorsWriter file_;
};

/// Reads ranges of buffers, with any number of owners. Files are opened when they are first needed.
class FlatReader {
 public:
  FlatReader(std::string folder, FlatLayout layout);

  const FlatLayout& layout() const { return layout_; }
  /// The elements [begin, begin + into.size()); those past the buffer's end, which are another layout's
  /// padding, become 0. Errors: not_found, invalid_argument (begins past the end), invalid_data (a file is
  /// damaged or of another layout).
  Status read(std::string_view buffer, uint64_t begin, std::span<float> into) const;

 private:
  Result<const SafetensorsReader*> file(int owner) const;

  std::string folder_;
  FlatLayout layout_;
  mutable Mutex mutex_;
  mutable std::map<int, std::unique_ptr<SafetensorsReader>> files_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom::format
