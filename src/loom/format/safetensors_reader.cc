#include "format/safetensors_reader.h"

#include <algorithm>
#include <set>

#include "base/file.h"
#include "format/float16.h"
#include "format/json_file.h"
#include "format/model_files.h"

namespace loom::format {
namespace {

/// The file of a folder that holds its tensors, or lists the files that do. Where there are both, the one
/// file counts, as it does for `transformers`.
Result<std::string> entry_of(const std::string& folder) {
  for (const char* name : {kOneFile, kIndex}) {
    const std::string path = join_path(folder, name);
    if (is_file(path)) return path;
  }
  const Result<std::vector<std::string>> names = list_folder(folder);
  if (!names.ok()) return names.status();
  std::vector<std::string> found;
  for (const std::string& name : *names) {
    if (name.ends_with(".safetensors") && name != kAdapter) found.push_back(name);
  }
  if (found.size() == 1) return join_path(folder, found[0]);
  for (const char* name : {kPickled, kPickledIndex})
    if (found.empty() && is_file(join_path(folder, name)))
      return fail(Code::not_found,
                  "{0} has {1} and no safetensors file; `python3 -c 'import sys, transformers as t; f = "
                  "sys.argv[1]; getattr(t, t.AutoConfig.from_pretrained(f).architectures[0])"
                  ".from_pretrained(f).save_pretrained(f, safe_serialization=True)' {0}` makes one of it",
                  folder, name);
  if (found.empty() && is_file(join_path(folder, kAdapter)))
    return fail(Code::not_found,
                "{} has {} alone, which an adapter (PEFT) adds to another model: merge the two "
                "(merge_and_unload) and save that",
                folder, kAdapter);
  return fail(Code::not_found, "{} has neither {} nor {}, and {} files that end in .safetensors, must be one",
              folder, kOneFile, kIndex, found.size());
}

/// Only plain names: an index must not reach files elsewhere.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

Result<SafetensorsReader> SafetensorsReader::open(const std::string& path) {
  std::string entry = path;
  if (is_folder(path)) {
    Result<std::string> found = entry_of(path);
    if (!found.ok()) return found.status();
    entry = found.take();
  }
  SafetensorsReader reader;
  if (entry.ends_with(".index.json")) LOOM_TRY(reader.open_index(entry));
  else LOOM_TRY(reader.add_file(entry, nullptr));
  return reader;
}

Status SafetensorsReader::add_file(const std::string& path, const std::vector<std::string>* wanted) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  Result<SafetensorsHeader> header = parse_safetensors_header(file->bytes());
  if (!header.ok()) return header.status().in(path);

  std::set<std::string_view> missing;
  if (wanted) missing.insert(wanted->begin(), wanted->end());
  for (TensorEntry& entry : header->tensors) {
    missing.erase(entry.name);
    // Where two files have it, versions of `transformers` differ in which of them wins.
    if (contains(entry.name))
      return fail(Code::invalid_data, "{} has tensor \"{}\", and so has another file of the index", path,
                  entry.name);
    names_.push_back(entry.name);
    tensors_[entry.name] = {entry.dtype, std::move(entry.shape),
                            file->bytes().subspan(entry.begin, entry.end - entry.begin)};
  }
  if (!missing.empty())
    return fail(Code::invalid_data, "{} has no tensor \"{}\", which the index says it has", path,
                *missing.begin());
  for (auto& [key, value] : header->metadata) metadata_[key] = std::move(value);
  files_.push_back(file.take());
  paths_.push_back(path);
  return {};
}

Status SafetensorsReader::open_index(const std::string& path) {
  const Result<SortedJson> index = read_sorted_json(path);
  if (!index.ok()) return index.status();
  if (!index->is_object() || !index->contains("weight_map") || !index->at("weight_map").is_object()) {
    return fail(Code::invalid_data, "{} has no object \"weight_map\": no index of safetensors files", path);
  }
  std::map<std::string, std::vector<std::string>> wanted;
  for (const auto& [tensor, file] : index->at("weight_map").items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      return fail(Code::invalid_data, "{} puts tensor \"{}\" into {}, must be the name of a file beside it",
                  path, tensor, file.dump());
    }
    wanted[file.get<std::string>()].push_back(tensor);
  }
  for (const auto& [name, tensors] : wanted) LOOM_TRY(add_file(join_path(folder_of(path), name), &tensors));
  return {};
}

Result<TensorView> SafetensorsReader::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  const std::string nearest = nearest_name(name, names_);
  return fail(Code::not_found, "{} has no tensor \"{}\"{}",
              paths_.empty() ? "an empty index" : paths_.front(), name,
              nearest.empty() ? "" : fmt::format("; there is \"{}\"", nearest));
}

Status SafetensorsReader::read_f32(std::string_view name, std::span<const uint64_t> shape,
                                   std::span<float> into) const {
  const Result<TensorView> view = tensor(name);
  if (!view.ok()) return view.status();
  if (!std::ranges::equal(view->shape, shape)) {
    return fail(Code::invalid_data, "tensor \"{}\" has the shape {}, must be {}", name,
                shape_text(view->shape), shape_text(shape));
  }
  return to_f32(view->dtype, view->bytes, into).in(fmt::format("tensor \"{}\"", name));
}

}  // namespace loom::format
