#include "model/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/file.h"
#include "format/float16.h"
#include "model/config_keys.h"
#include "model/names.h"

namespace loom::model {
namespace {

/// A name as it is, without the body's, and with the ending that the first BERTs have.
std::optional<std::string> find_name(const format::SafetensorsReader& file, const std::string& wanted) {
  const std::string older = older_name(wanted);
  for (const std::string& name :
       {wanted, std::string(bare_name(wanted)), older, std::string(bare_name(older))})
    if (!name.empty() && file.contains(name)) return name;
  return std::nullopt;
}

/// Classes of `transformers` keep these beside their parameters, or did in earlier versions.
bool is_buffer(std::string_view name) {
  constexpr std::array<std::string_view, 10> kEndings = {".attn.bias",
                                                         ".attn.masked_bias",
                                                         ".attn.attention.bias",
                                                         ".attn.attention.masked_bias",
                                                         ".attention.bias",
                                                         ".attention.masked_bias",
                                                         ".rotary_emb.inv_freq",
                                                         ".scale_mask_softmax.causal_mask",
                                                         "embeddings.position_ids",
                                                         "embeddings.token_type_ids"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

/// Whether two tensors have the same values, whatever types they are stored in.
Result<bool> are_equal(const format::TensorView& a, const format::TensorView& b) {
  if (a.shape != b.shape) return false;
  if (a.dtype == b.dtype)
    return a.bytes.empty() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
  constexpr size_t kSome = 1 << 16;
  const size_t elements = a.elements();
  std::vector<float> of_a(std::min(kSome, elements)), of_b(of_a.size());
  for (size_t begin = 0; begin < elements; begin += kSome) {
    const size_t count = std::min(kSome, elements - begin);
    const auto read = [&](const format::TensorView& from, std::vector<float>& into) {
      const size_t size = from.bytes.size() / elements;
      return format::to_f32(from.dtype, from.bytes.subspan(begin * size, count * size), {into.data(), count});
    };
    LOOM_TRY(read(a, of_a));
    LOOM_TRY(read(b, of_b));
    if (!std::equal(of_a.begin(), of_a.begin() + static_cast<std::ptrdiff_t>(count), of_b.begin()))
      return false;
  }
  return true;
}

/// A head that is trained apart, under a config that says it is the embedding, would be lost without a word.
Status check_tied(const format::SafetensorsReader& file, const ModelSpec& spec) {
  for (const TiedName& tied : tied_names(spec)) {
    const std::optional<std::string> name = find_name(file, tied.name), copy = find_name(file, tied.copy);
    if (!name || !copy) continue;
    const Result<bool> equal = are_equal(*file.tensor(*name), *file.tensor(*copy));
    LOOM_TRY(equal.status().in(*copy));
    if (*equal) continue;
    return fail(
        Code::invalid_data,
        "{0} differs from {1}, though config.json ties the two: set \"tie_word_embeddings\": false in "
        "it if the model was trained with both, or remove {0} from the file",
        *copy, *name);
  }
  return {};
}

/// `transformers` adds to a model what an adapter beside it has.
Status check_adapter(const std::string& folder) {
  const std::string config = join_path(folder, "adapter_config.json");
  if (!is_file(config)) return {};
  return fail(
      Code::unsupported,
      "{} makes an adapter (PEFT) of this folder: merge it into its model (merge_and_unload) and save "
      "that, or remove the adapter's files to have the model alone",
      config);
}

/// Parameters that the file has nothing for, where they may begin at random.
std::vector<std::string> begun_anew(const format::SafetensorsReader& file, std::span<const Unit> units) {
  std::vector<std::string> names;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters)
      for (const Source& source : parameter.sources) {
        if (!parameter.begins_anew) continue;
        const std::optional<std::string> name = stored_name(file, source);
        if (!name || file.tensor(*name)->shape != source.shape) names.push_back(source.name);
      }
  return names;
}

/// A few of the names, and how many there are more.
std::string listed(std::span<const std::string> names) {
  constexpr size_t kMost = 8;
  const std::string some = fmt::format("{}", fmt::join(names.first(std::min(kMost, names.size())), ", "));
  return names.size() <= kMost ? some : fmt::format("{} and {} more", some, names.size() - kMost);
}

}  // namespace

std::optional<std::string> stored_name(const format::SafetensorsReader& file, const Source& source) {
  std::optional<std::string> name = find_name(file, source.name);
  for (size_t other = 0; !name && other < source.other_names.size(); ++other)
    name = find_name(file, source.other_names[other]);
  return name;
}

std::vector<std::string> unused_tensors(const format::SafetensorsReader& file, std::span<const Unit> units,
                                        const ModelSpec& spec) {
  std::set<std::string> used;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters)
      for (const Source& source : parameter.sources)
        if (const std::optional<std::string> name = stored_name(file, source)) used.insert(*name);
  for (const TiedName& tied : tied_names(spec))
    if (const std::optional<std::string> copy = find_name(file, tied.copy)) used.insert(*copy);
  std::vector<std::string> unused;
  for (const std::string& name : file.names())
    if (!used.contains(name) && !is_buffer(name)) unused.push_back(name);
  return unused;
}

Result<ModelFile> open_model_file(const std::string& folder, const ModelSpec& spec) {
  LOOM_TRY(check_adapter(folder));
  const Result<format::Json> config = format::read_config(folder);
  LOOM_TRY(config.status());
  Result<format::SafetensorsReader> opened = format::SafetensorsReader::open(folder);
  LOOM_TRY(opened.status());
  ModelFile file{opened.take(), {}};
  LOOM_TRY(check_tied(file.tensors, spec).in(folder));
  const std::vector<Unit> units = units_of(spec);
  const auto note = [&](const std::vector<std::string>& names, const char* one, const char* several) {
    if (names.empty()) return;
    file.notes.push_back(
        fmt::format("{}: {} {}: {}", folder, names.size(), names.size() == 1 ? one : several, listed(names)));
  };
  note(unknown_keys(*config, spec.family),
       "key of its config.json is unknown to its family and changes nothing",
       "keys of its config.json are unknown to its family and change nothing");
  note(unused_tensors(file.tensors, units, spec), "tensor is not used", "tensors are not used");
  // A caller that knows both lists of names reports a last layer for other classes.
  if (!spec.new_classes)
    note(begun_anew(file.tensors, units), "tensor begins at random, since the file has none that fits",
         "tensors begin at random, since the file has none that fit");
  return file;
}

}  // namespace loom::model
