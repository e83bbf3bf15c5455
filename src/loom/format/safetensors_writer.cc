#include "format/safetensors_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <set>

#include "format/float16.h"
#include "format/json_file.h"
#include "format/model_files.h"

namespace loom::format {
namespace {

constexpr float kTooLargeForF16 = 65520;  // rounds to infinity

uint64_t bytes_of(const TensorSpec& tensor) {
  return dtype_bytes(tensor.dtype, element_count(tensor.shape).value_or(0)).value_or(0);
}

/// In the order given, as many in each file as fit; a tensor that is larger than a file has one of its own.
std::vector<std::vector<TensorSpec>> fill_files(std::span<const TensorSpec> tensors, uint64_t most_bytes) {
  std::vector<std::vector<TensorSpec>> files(1);
  uint64_t filled = 0;
  for (const TensorSpec& tensor : tensors) {
    const uint64_t bytes = bytes_of(tensor);
    if (!files.back().empty() && (filled > most_bytes || bytes > most_bytes - filled)) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(tensor);
    filled += bytes;
  }
  return files;
}

/// model-00001-of-00002.safetensors, as ModelWriter and Hugging Face name them.
bool is_model_file(std::string_view name) {
  return name == kOneFile || (name.starts_with("model-") && name.ends_with(".safetensors"));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(AtomicFile file, std::vector<TensorEntry> tensors)
    : file_(std::move(file)) {
  for (TensorEntry& tensor : tensors) {
    std::string name = tensor.name;
    parts_.emplace(std::move(name), Part{std::move(tensor)});
  }
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    std::span<const TensorSpec> tensors,
                                                    const Metadata& metadata) {
  Result<SafetensorsLayout> layout = lay_out_safetensors(tensors, metadata);
  if (!layout.ok()) return layout.status().in(path);
  Result<AtomicFile> file = AtomicFile::create(path, layout->file_bytes);
  if (!file.ok()) return file.status();
  LOOM_TRY(file->append(std::as_bytes(std::span(layout->head))));
  return SafetensorsWriter(file.take(), std::move(layout->tensors));
}

Result<SafetensorsWriter::Part*> SafetensorsWriter::part(std::string_view name) {
  const auto found = parts_.find(name);
  if (found != parts_.end()) return &found->second;
  return fail(Code::not_found, "tensor \"{}\" was not declared for {}", name, file_.path());
}

Status SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const Result<Part*> found = part(name);
  if (!found.ok()) return found.status();
  Part& part = **found;
  const uint64_t left = part.entry.end - part.entry.begin - part.written;
  if (bytes.size() > left) {
    return fail(Code::invalid_argument, "{} more bytes for tensor \"{}\" of {} {}, must be at most {}",
                bytes.size(), name, dtype_name(part.entry.dtype), shape_text(part.entry.shape), left);
  }
  LOOM_TRY(file_.write_at(part.entry.begin + part.written, bytes));
  part.written += bytes.size();
  return {};
}

Status SafetensorsWriter::write_f32(std::string_view name, std::span<const float> values) {
  const Result<Part*> found = part(name);
  if (!found.ok()) return found.status();
  const DType dtype = (*found)->entry.dtype;
  if (dtype == DType::f32) return write(name, std::as_bytes(values));
  constexpr size_t kAtOnce = 64 * 1024;
  std::vector<std::byte> converted;
  while (!values.empty()) {
    const std::span<const float> some = values.first(std::min(values.size(), kAtOnce));
    converted.resize(dtype_bytes(dtype, some.size()).value_or(0));
    LOOM_TRY(from_f32(dtype, some, converted).in(fmt::format("tensor \"{}\"", name)));
    if (dtype == DType::f16)
      for (const float value : some)
        if (std::isfinite(value) && std::abs(value) >= kTooLargeForF16)
          return fail(Code::invalid_argument,
                      "tensor \"{}\" has {:g}, but fp16 ends at 65504: store it as bf16 or fp32 "
                      "(run.model_dtype, --dtype)",
                      name, value);
    LOOM_TRY(write(name, converted));
    values = values.subspan(some.size());
  }
  return {};
}

Status SafetensorsWriter::finish() {
  for (const auto& [name, part] : parts_) {
    const uint64_t bytes = part.entry.end - part.entry.begin;
    if (part.written == bytes) continue;
    return fail(Code::invalid_argument, "tensor \"{}\" of {} has {} of its {} bytes", name, file_.path(),
                part.written, bytes);
  }
  return file_.commit();
}

Result<ModelWriter> ModelWriter::create(const std::string& folder, std::span<const TensorSpec> tensors,
                                        const Metadata& metadata, uint64_t most_bytes_a_file) {
  if (most_bytes_a_file == 0) return fail(Code::invalid_argument, "files of 0 bytes, must be at least 1");
  // The checks of one file are those of all: names must differ across files too.
  const Result<SafetensorsLayout> all = lay_out_safetensors(tensors, metadata);
  if (!all.ok()) return all.status().in(folder);

  ModelWriter model(folder);
  const std::vector<std::vector<TensorSpec>> files = fill_files(tensors, most_bytes_a_file);
  for (size_t i = 0; i < files.size(); ++i) {
    std::string name = files.size() == 1
                           ? std::string(kOneFile)
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(join_path(folder, name), files[i], metadata);
    if (!writer.ok()) return writer.status();
    for (const TensorSpec& tensor : files[i]) {
      model.file_of_[tensor.name] = i;
      model.tensor_bytes_ += bytes_of(tensor);
    }
    model.file_names_.push_back(std::move(name));
    model.writers_.push_back(writer.take());
  }
  return model;
}

Result<SafetensorsWriter*> ModelWriter::writer_of(std::string_view name) {
  const auto found = file_of_.find(name);
  if (found != file_of_.end()) return &writers_[found->second];
  return fail(Code::not_found, "tensor \"{}\" was not declared for {}", name, folder_);
}

Status ModelWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const Result<SafetensorsWriter*> writer = writer_of(name);
  return writer.ok() ? (*writer)->write(name, bytes) : writer.status();
}

Status ModelWriter::write_f32(std::string_view name, std::span<const float> values) {
  const Result<SafetensorsWriter*> writer = writer_of(name);
  return writer.ok() ? (*writer)->write_f32(name, values) : writer.status();
}

Status ModelWriter::finish() {
  for (SafetensorsWriter& writer : writers_) LOOM_TRY(writer.finish());
  if (writers_.size() > 1) {
    Json index;
    index["metadata"]["total_size"] = tensor_bytes_;
    SortedJson weight_map = SortedJson::object();
    for (const auto& [name, file] : file_of_) weight_map[name] = file_names_[file];
    index["weight_map"] = weight_map;
    LOOM_TRY(write_json(join_path(folder_, kIndex), index));
  }
  return remove_other_layouts();
}

Status ModelWriter::remove_other_layouts() const {
  const Result<std::vector<std::string>> names = list_folder(folder_);
  if (!names.ok()) return names.status();
  // The index goes first: without it the other layout's files are nobody's.
  if (writers_.size() == 1 && ::unlink(join_path(folder_, kIndex).c_str()) != 0 && errno != ENOENT) {
    return fail_errno(errno, fmt::format("cannot remove the old {} of {}", kIndex, folder_));
  }
  for (const std::string& name : *names) {
    const bool ours = std::find(file_names_.begin(), file_names_.end(), name) != file_names_.end();
    if (ours || !is_model_file(final_name(name))) continue;  // killed writers leave such, too
    if (::unlink(join_path(folder_, name).c_str()) != 0 && errno != ENOENT) {
      return fail_errno(errno, fmt::format("cannot remove the old {} of {}", name, folder_));
    }
  }
  return sync_folder(folder_);
}

}  // namespace loom::format
