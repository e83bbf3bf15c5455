#include "format/flat_shards.h"

#include <algorithm>
#include <set>

#include "base/file.h"
#include "format/float16.h"

namespace loom::format {
namespace {

/// So that k·part_elements and its bytes never overflow.
constexpr uint64_t kMostElements = uint64_t{1} << 48;
constexpr int kMostOwners = 1 << 20;

Status check_buffer(const FlatBuffer& buffer, int owners) {
  if (buffer.elements < 1 || buffer.elements > kMostElements) {
    return fail(Code::invalid_argument, "buffer \"{}\" has {} elements, must be in [1, {}]", buffer.name,
                buffer.elements, kMostElements);
  }
  const uint64_t least = FlatLayout::even_part(buffer.elements, owners);
  if (buffer.part_elements >= least && buffer.part_elements <= kMostElements) return {};
  return fail(Code::invalid_argument,
              "buffer \"{}\" has parts of {} elements, must be in [{}, {}]: {} of them for {} owners",
              buffer.name, buffer.part_elements, least, kMostElements, buffer.elements, owners);
}

}  // namespace

FlatLayout::FlatLayout(std::string name, int owners, std::vector<FlatBuffer> buffers)
    : name_(std::move(name)), owners_(owners), buffers_(std::move(buffers)) {}

Result<FlatLayout> FlatLayout::make(std::string name, int owners, std::vector<FlatBuffer> buffers) {
  if (owners < 1 || owners > kMostOwners) {
    return fail(Code::invalid_argument, "{} owners of flat shards, must be in [1, {}]", owners, kMostOwners);
  }
  if (name.empty() || name.find('/') != std::string::npos) {
    return fail(Code::invalid_argument, "flat shards called \"{}\", must be a part of a file's name", name);
  }
  std::set<std::string_view> names;
  for (const FlatBuffer& buffer : buffers) {
    if (!names.insert(buffer.name).second) {
      return fail(Code::invalid_argument, "two buffers are called \"{}\"", buffer.name);
    }
    LOOM_TRY(check_buffer(buffer, owners));
  }
  return FlatLayout(std::move(name), owners, std::move(buffers));
}

Result<FlatLayout> FlatLayout::from_json(std::string name, const Json& json) {
  const std::string where = fmt::format("flat shards \"{}\"", name);
  const Result<int> owners = required<int>(json, "owners");
  if (!owners.ok()) return owners.status().in(where);
  const auto list = json.find("buffers");
  if (list == json.end() || !list->is_array()) {
    return fail(Code::invalid_data, "{}: \"buffers\" is missing, must be a list", where);
  }
  std::vector<FlatBuffer> buffers;
  for (const Json& item : *list) {
    Result<std::string> buffer = required<std::string>(item, "name");
    if (!buffer.ok()) return buffer.status().in(where);
    const Result<uint64_t> elements = required<uint64_t>(item, "elements");
    if (!elements.ok()) return elements.status().in(where);
    const Result<uint64_t> part = required<uint64_t>(item, "part_elements");
    if (!part.ok()) return part.status().in(where);
    buffers.push_back({buffer.take(), *elements, *part});
  }
  Result<FlatLayout> layout = make(std::move(name), *owners, std::move(buffers));
  if (!layout.ok()) return Status(Code::invalid_data, layout.status().message()).in(where);
  return layout;
}

Json FlatLayout::to_json() const {
  Json json;
  json["owners"] = owners_;
  json["buffers"] = Json::array();
  for (const FlatBuffer& buffer : buffers_) {
    json["buffers"].push_back(
        {{"name", buffer.name}, {"elements", buffer.elements}, {"part_elements", buffer.part_elements}});
  }
  return json;
}

Result<FlatBuffer> FlatLayout::buffer(std::string_view name) const {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                  [&](const FlatBuffer& buffer) { return buffer.name == name; });
  if (found != buffers_.end()) return *found;
  std::vector<std::string> names;
  for (const FlatBuffer& buffer : buffers_) names.push_back(buffer.name);
  const std::string nearest = nearest_name(name, names);
  return fail(Code::not_found, "flat shards \"{}\" have no buffer \"{}\"{}", name_, name,
              nearest.empty() ? "" : fmt::format("; there is \"{}\"", nearest));
}

FlatRange FlatLayout::range(const FlatBuffer& buffer, int owner) {
  const uint64_t begin = std::min(buffer.elements, static_cast<uint64_t>(owner) * buffer.part_elements);
  return {begin, std::min(buffer.elements, begin + buffer.part_elements)};
}

std::string FlatLayout::file_name(int owner) const {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", name_, owner, owners_);
}

FlatWriter::FlatWriter(FlatLayout layout, int owner, SafetensorsWriter file)
    : layout_(std::move(layout)), owner_(owner), file_(std::move(file)) {}

Result<FlatWriter> FlatWriter::create(const std::string& folder, const FlatLayout& layout, int owner,
                                      const Metadata& metadata) {
  if (owner < 0 || owner >= layout.owners()) {
    return fail(Code::invalid_argument, "owner is {}, must be in [0, {})", owner, layout.owners());
  }
  std::vector<TensorSpec> tensors;
  for (const FlatBuffer& buffer : layout.buffers()) {
    const FlatRange range = FlatLayout::range(buffer, owner);
    if (range.size() > 0) tensors.push_back({buffer.name, DType::f32, {range.size()}});
  }
  Result<SafetensorsWriter> file =
      SafetensorsWriter::create(join_path(folder, layout.file_name(owner)), tensors, metadata);
  if (!file.ok()) return file.status();
  return FlatWriter(layout, owner, file.take());
}

Status FlatWriter::write(std::string_view buffer, std::span<const float> part) {
  const Result<FlatBuffer> found = layout_.buffer(buffer);
  if (!found.ok()) return found.status();
  const uint64_t size = FlatLayout::range(*found, owner_).size();
  if (part.size() < size) {
    return fail(Code::invalid_argument, "{} elements of buffer \"{}\" for owner {}, must be at least {}",
                part.size(), buffer, owner_, size);
  }
  return write_piece(buffer, 0, part);
}

Status FlatWriter::write_piece(std::string_view buffer, uint64_t begin, std::span<const float> piece) {
  const Result<FlatBuffer> found = layout_.buffer(buffer);
  if (!found.ok()) return found.status();
  const uint64_t size = FlatLayout::range(*found, owner_).size();
  if (begin >= size) return {};
  return file_.write(buffer, std::as_bytes(piece.first(std::min<uint64_t>(piece.size(), size - begin))));
}

FlatReader::FlatReader(std::string folder, FlatLayout layout)
    : folder_(std::move(folder)), layout_(std::move(layout)) {}

Result<const SafetensorsReader*> FlatReader::file(int owner) const {
  const MutexLock lock(mutex_);
  std::unique_ptr<SafetensorsReader>& file = files_[owner];
  if (file) return file.get();
  Result<SafetensorsReader> opened = SafetensorsReader::open(join_path(folder_, layout_.file_name(owner)));
  if (!opened.ok()) return opened.status();
  file = std::make_unique<SafetensorsReader>(opened.take());
  return file.get();
}

Status FlatReader::read(std::string_view buffer, uint64_t begin, std::span<float> into) const {
  const Result<FlatBuffer> found = layout_.buffer(buffer);
  if (!found.ok()) return found.status();
  if (begin > found->elements) {
    return fail(Code::invalid_argument, "elements of buffer \"{}\" from {}, must be at most {}", buffer,
                begin, found->elements);
  }
  while (!into.empty() && begin < found->elements) {
    const int owner = static_cast<int>(begin / found->part_elements);
    const FlatRange range = FlatLayout::range(*found, owner);
    const Result<const SafetensorsReader*> shard = file(owner);
    if (!shard.ok()) return shard.status();
    const Result<TensorView> tensor = (*shard)->tensor(buffer);
    if (!tensor.ok()) return Status(Code::invalid_data, tensor.status().message());
    if (tensor->dtype != DType::f32 || tensor->elements() != range.size()) {
      return fail(Code::invalid_data, "{}: buffer \"{}\" has {} elements of {}, must be {} of F32",
                  layout_.file_name(owner), buffer, tensor->elements(), dtype_name(tensor->dtype),
                  range.size());
    }
    const uint64_t some = std::min<uint64_t>(into.size(), range.end - begin);
    LOOM_TRY(to_f32(DType::f32,
                    tensor->bytes.subspan((begin - range.begin) * sizeof(float), some * sizeof(float)),
                    into.first(some)));
    into = into.subspan(some);
    begin += some;
  }
  std::fill(into.begin(), into.end(), 0.0f);
  return {};
}

}  // namespace loom::format
