// Parameters from and to the tensors that they are stored in.
#include "model/hugging_face.h"

#include <algorithm>
#include <cstring>

#include "format/float16.h"
#include "model/model_file.h"

namespace loom::model {
namespace {

/// Whether the file has another tensor with the columns of this source.
bool stands_elsewhere(const format::SafetensorsReader& file, const Parameter& parameter,
                      const Source& source) {
  return std::any_of(parameter.sources.begin(), parameter.sources.end(), [&](const Source& other) {
    return &other != &source && other.first_column == source.first_column && stored_name(file, other);
  });
}

Result<format::TensorView> find(const format::SafetensorsReader& file, const Source& source) {
  const std::string name = stored_name(file, source).value_or(source.name);
  Result<format::TensorView> view = file.tensor(name);
  if (view.ok() && view->shape != source.shape)
    return fail(Code::invalid_data, "tensor {} is {}, but the model needs {}", name,
                format::shape_text(view->shape), format::shape_text(source.shape));
  return view;
}

/// Whether the file has this, of a classifier's last layer that begins anew, for other classes than these.
bool of_other_classes(const format::SafetensorsReader& file, const Parameter& parameter,
                      const Source& source) {
  if (!parameter.begins_anew || !parameter.undivided || parameter.part < Part::head_weight) return false;
  const std::optional<std::string> name = stored_name(file, source);
  return name && file.tensor(*name)->shape != source.shape;
}

/// Where in a source's tensor element (row, column) of the parameter is; `rows` are the parameter's.
int64_t place_in(const Source& source, int64_t rows, int64_t row, int64_t column) {
  int64_t at = column - source.first_column;
  if (source.fused_head_size > 0) {  // (which, head, d) to (head, which, d)
    const int64_t size = source.fused_head_size, third = source.columns / 3;
    const int64_t which = at / third, head = at % third / size;
    at = (head * 3 + which) * size + at % size;
  }
  return source.transposed ? at * rows + row : row * source.columns + at;
}

/// Elements [first, last) of a parameter that lie in columns of this source.
Status read_source(const format::TensorView& view, const Source& source, const Parameter& parameter,
                   int64_t first, int64_t last, float* into) {
  const int64_t columns = parameter.columns(), rows = parameter.elements() / columns;
  const size_t size = view.bytes.size() / static_cast<size_t>(source.columns * rows);
  if (!source.transposed && source.fused_head_size == 0 && source.columns == columns)
    return format::to_f32(view.dtype, view.bytes.subspan(first * size, (last - first) * size),
                          {into, static_cast<size_t>(last - first)});
  std::vector<std::byte> gathered;
  for (int64_t row = first / columns; row * columns < last; ++row) {
    const int64_t begin = std::max(first - row * columns, source.first_column);
    const int64_t end = std::min(last - row * columns, source.first_column + source.columns);
    if (begin >= end) continue;
    gathered.resize(static_cast<size_t>(end - begin) * size);
    for (int64_t column = begin; column < end; ++column)
      std::memcpy(gathered.data() + static_cast<size_t>(column - begin) * size,
                  view.bytes.data() + static_cast<size_t>(place_in(source, rows, row, column)) * size, size);
    LOOM_TRY(format::to_f32(view.dtype, gathered,
                            {into + (row * columns + begin - first), static_cast<size_t>(end - begin)}));
  }
  return {};
}

}  // namespace

Status read_parameters(const format::SafetensorsReader& file, const Unit& unit, int64_t begin,
                       std::span<float> into) {
  constexpr uint64_t kSeedOfNewHeads = 1;
  const bool may_lack = std::any_of(unit.parameters.begin(), unit.parameters.end(),
                                    [](const Parameter& parameter) { return parameter.begins_anew; });
  if (may_lack) {
    Workers alone(1);
    initialize(alone, unit, kSeedOfNewHeads, begin, into);
  } else {
    std::fill(into.begin(), into.end(), 0.0f);
  }
  const int64_t end = begin + static_cast<int64_t>(into.size());
  for (const Parameter& parameter : unit.parameters) {
    const int64_t first = std::max(begin, parameter.offset);
    const int64_t last = std::min(end, parameter.offset + parameter.elements());
    if (first >= last) continue;
    for (const Source& source : parameter.sources) {
      if (!stored_name(file, source) && (parameter.begins_anew || stands_elsewhere(file, parameter, source)))
        continue;
      if (of_other_classes(file, parameter, source)) continue;
      const Result<format::TensorView> view = find(file, source);
      LOOM_TRY(view.status());
      LOOM_TRY(read_source(*view, source, parameter, first - parameter.offset, last - parameter.offset,
                           into.data() + (first - begin))
                   .in(source.name));
    }
  }
  return {};
}

std::vector<format::TensorSpec> tensor_specs(std::span<const Unit> units, format::DType dtype) {
  std::vector<format::TensorSpec> specs;
  for (const Unit& unit : units)
    for (const Parameter& parameter : unit.parameters)
      for (const Source& source : parameter.sources) specs.push_back({source.name, dtype, source.shape});
  return specs;
}

Status write_parameters(format::ModelWriter* file, const Unit& unit, const ReadRange& read) {
  constexpr int64_t kSome = 1 << 18;  // elements of a piece
  std::vector<float> piece;
  Status written;
  for (const Parameter& parameter : unit.parameters) {
    const int64_t columns = parameter.columns(), rows = parameter.elements() / columns;
    const int64_t most = std::max<int64_t>(1, kSome / columns);
    std::vector<std::vector<float>> tensors(parameter.sources.size());
    for (int64_t begin = 0; begin < rows; begin += most) {
      const int64_t end = std::min(rows, begin + most);
      piece.resize(static_cast<size_t>((end - begin) * columns));
      LOOM_TRY(read(parameter.offset + begin * columns, piece));
      for (size_t s = 0; file != nullptr && written.ok() && s < tensors.size(); ++s) {
        const Source& source = parameter.sources[s];
        std::vector<float>& tensor = tensors[s];
        const int64_t before = source.transposed ? 0 : begin * source.columns;
        tensor.resize(static_cast<size_t>((source.transposed ? rows : end - begin) * source.columns));
        for (int64_t row = begin; row < end; ++row)
          for (int64_t column = source.first_column; column < source.first_column + source.columns; ++column)
            tensor[static_cast<size_t>(place_in(source, rows, row, column) - before)] =
                piece[static_cast<size_t>((row - begin) * columns + column)];
        if (!source.transposed || end == rows) written = file->write_f32(source.name, tensor);
      }
    }
  }
  return written;
}

}  // namespace loom::model
