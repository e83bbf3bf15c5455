#include "format/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

namespace loom::format {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the formats are little-endian, and so must be the machine");

constexpr char kMetadata[] = "__metadata__";
constexpr size_t kLengthBytes = 8;

/// Takes the header's JSON in as it is parsed: only this one shape of it is taken, so nothing else costs
/// memory.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;
  Status error;

  bool start_object(size_t) override {
    if (state_ == State::start) return go(State::names);
    if (state_ == State::name_read) return go(name_ == kMetadata ? State::metadata : State::fields);
    return unexpected("an object");
  }

  bool key(string_t& text) override {
    if (state_ == State::names) {
      if (!names_.insert(text).second) return bad("\"{}\" is there twice", text);
      name_ = text;
      entry_ = {};
      entry_.name = text;
      dtype_.reset(), shape_.reset(), offsets_.reset();
      return go(State::name_read);
    }
    if (state_ == State::metadata) {
      if (header.metadata.contains(text)) return bad("the key \"{}\" of {} is there twice", text, kMetadata);
      key_ = text;
      return go(State::metadata_key);
    }
    key_ = text;
    if (text == "dtype" && !dtype_) return go(State::dtype);
    if (text == "shape" && !shape_) return go(State::shape_start);
    if (text == "data_offsets" && !offsets_) return go(State::offsets_start);
    const bool known = text == "dtype" || text == "shape" || text == "data_offsets";
    return bad("tensor \"{}\" has the key \"{}\" {}", name_, text,
               known ? "twice" : "besides dtype, shape and data_offsets");
  }

  bool string(string_t& text) override {
    if (state_ == State::metadata_key) {
      header.metadata[key_] = text;
      return go(State::metadata);
    }
    if (state_ != State::dtype) return unexpected("a text");
    dtype_ = dtype_named(text);
    if (!dtype_) return bad("tensor \"{}\" has the unknown dtype \"{}\"", name_, text);
    return go(State::fields);
  }

  bool start_array(size_t) override {
    if (state_ == State::shape_start) {
      shape_.emplace();
      return go(State::shape);
    }
    if (state_ != State::offsets_start) return unexpected("a list");
    offsets_.emplace();
    return go(State::offsets);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::shape) shape_->push_back(value);
    else if (state_ == State::offsets && offsets_->size() < 2) offsets_->push_back(value);
    else return unexpected("a number");
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets && offsets_->size() != 2) {
      return bad("tensor \"{}\" has {} data_offsets, must be 2", name_, offsets_->size());
    }
    return go(State::fields);
  }

  bool end_object() override {
    if (state_ == State::names) return go(State::end);
    if (state_ == State::metadata) return go(State::names);
    for (const auto& [there, key] :
         {std::pair(dtype_.has_value(), "dtype"), std::pair(shape_.has_value(), "shape"),
          std::pair(offsets_.has_value(), "data_offsets")}) {
      if (!there) return bad("tensor \"{}\" has no {}", name_, key);
    }
    entry_.dtype = *dtype_;
    entry_.shape = std::move(*shape_);
    entry_.begin = (*offsets_)[0];
    entry_.end = (*offsets_)[1];
    header.tensors.push_back(std::move(entry_));
    return go(State::names);
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not whole or has more than 64 bits");
  }
  bool binary(binary_t&) override { return unexpected("binary"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return bad("its JSON is broken at byte {}", kLengthBytes + position);
  }

 private:
  enum class State {
    start,
    names,         // inside the file's object
    name_read,     // a tensor's name, or __metadata__
    metadata,      // inside __metadata__
    metadata_key,  //
    fields,        // inside a tensor's object
    dtype,
    shape_start,
    shape,
    offsets_start,
    offsets,
    end,
  };

  bool go(State state) {
    state_ = state;
    return true;
  }

  template <typename... Args>
  bool bad(fmt::format_string<Args...> format, Args&&... args) {
    error =
        fail(Code::invalid_data, "the header is wrong: {}", fmt::format(format, std::forward<Args>(args)...));
    return false;
  }

  /// A value of the wrong kind, told by where it is.
  bool unexpected(const char* found) {
    switch (state_) {
      case State::start: return bad("it is {}, must be an object", found);
      case State::name_read: return bad("\"{}\" is {}, must be an object", name_, found);
      case State::metadata_key: return bad("\"{}\" of {} is {}, must be a text", key_, kMetadata, found);
      case State::dtype: return bad("dtype of tensor \"{}\" is {}, must be a text", name_, found);
      case State::shape_start: return bad("shape of tensor \"{}\" is {}, must be a list", name_, found);
      case State::shape: return bad("shape of tensor \"{}\" has {}, must be whole numbers", name_, found);
      case State::offsets_start:
        return bad("data_offsets of tensor \"{}\" is {}, must be a list", name_, found);
      default: return bad("data_offsets of tensor \"{}\" has {}, must be two whole numbers", name_, found);
    }
  }

  State state_ = State::start;
  std::unordered_set<std::string> names_;
  std::string name_, key_;
  TensorEntry entry_;
  std::optional<DType> dtype_;
  std::optional<std::vector<uint64_t>> shape_, offsets_;
};

/// What dtype and shape need, for a tensor whose offsets are still relative to the data.
Status check_size(const TensorEntry& tensor) {
  if (tensor.end < tensor.begin) {
    return fail(Code::invalid_data, "tensor \"{}\" ends at {}, before its begin at {}", tensor.name,
                tensor.end, tensor.begin);
  }
  const std::optional<uint64_t> elements = element_count(tensor.shape);
  const std::optional<uint64_t> bytes = elements ? dtype_bytes(tensor.dtype, *elements) : std::nullopt;
  if (!bytes) {
    return fail(Code::invalid_data, "tensor \"{}\" of {} {} has no size in whole bytes below 2^61",
                tensor.name, dtype_name(tensor.dtype), shape_text(tensor.shape));
  }
  if (*bytes == tensor.end - tensor.begin) return {};
  return fail(Code::invalid_data, "tensor \"{}\" of {} {} needs {} bytes, but its data_offsets span {}",
              tensor.name, dtype_name(tensor.dtype), shape_text(tensor.shape), *bytes,
              tensor.end - tensor.begin);
}

/// Sorted by position, each tensor must begin where the one before ends, and the last must end with the file.
Status check_cover(const std::vector<TensorEntry>& tensors, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.end > data_bytes) {
      return fail(Code::invalid_data,
                  "tensor \"{}\" ends at byte {} of the data, but the file has only {} of them", tensor.name,
                  tensor.end, data_bytes);
    }
    if (tensor.begin != end) {
      return fail(Code::invalid_data, "tensor \"{}\" begins at byte {} of the data, must be {}: there is {}",
                  tensor.name, tensor.begin, end, tensor.begin < end ? "an overlap" : "a hole");
    }
    end = tensor.end;
  }
  if (end == data_bytes) return {};
  return fail(Code::invalid_data, "the tensors end at byte {} of the data, but the file has {} of them", end,
              data_bytes);
}

}  // namespace

std::optional<uint64_t> element_count(std::span<const uint64_t> shape) {
  uint64_t count = 1;
  // With a 0 among them nothing else matters, not even an overflow before it.
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  for (const uint64_t size : shape) {
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

std::string shape_text(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return fail(Code::invalid_data, "{} bytes are no safetensors file, which has at least {}", file.size(),
                kLengthBytes);
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMostHeaderBytes) {
    return fail(Code::invalid_data, "the header's length is {}, must be at most {}: no safetensors file",
                length, kMostHeaderBytes);
  }
  if (length > file.size() - kLengthBytes) {
    return fail(Code::invalid_data, "the header's length is {}, but only {} bytes follow: cut short", length,
                file.size() - kLengthBytes);
  }
  const std::string_view json(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (json.empty() || json.front() != '{') {
    return fail(Code::invalid_data, "the header does not begin with {{: no safetensors file");
  }
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) return reader.error;

  SafetensorsHeader& header = reader.header;
  for (const TensorEntry& tensor : header.tensors) LOOM_TRY(check_size(tensor));
  // Tensors without elements lie between others; they come first at their position.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  LOOM_TRY(check_cover(header.tensors, file.size() - kLengthBytes - length));
  for (TensorEntry& tensor : header.tensors) {
    tensor.begin += kLengthBytes + length;
    tensor.end += kLengthBytes + length;
  }
  return std::move(header);
}

Result<SafetensorsLayout> lay_out_safetensors(std::span<const TensorSpec> tensors, const Metadata& metadata) {
  SafetensorsLayout layout;
  nlohmann::ordered_json::object_t header;
  if (!metadata.empty()) header.push_back({kMetadata, metadata});
  std::unordered_set<std::string_view> names;
  uint64_t end = 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == kMetadata || !names.insert(tensor.name).second) {
      return fail(Code::invalid_argument, "a tensor cannot be called \"{}\": {}", tensor.name,
                  tensor.name == kMetadata ? "the format uses that name" : "another one has that name");
    }
    const std::optional<uint64_t> elements = element_count(tensor.shape);
    const std::optional<uint64_t> bytes = elements ? dtype_bytes(tensor.dtype, *elements) : std::nullopt;
    const uint64_t begin = end;
    if (!bytes || __builtin_add_overflow(begin, *bytes, &end) || end > uint64_t{1} << 62) {
      return fail(Code::invalid_argument,
                  "tensor \"{}\" of {} {} is too large, or of no whole number of bytes", tensor.name,
                  dtype_name(tensor.dtype), shape_text(tensor.shape));
    }
    header.push_back(
        {tensor.name,
         {{"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}}});
    layout.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, begin, end});
  }
  std::string json;
  try {
    json = nlohmann::ordered_json(std::move(header)).dump();
  } catch (const nlohmann::ordered_json::exception&) {
    return fail(Code::invalid_argument, "a tensor's name or the metadata is not UTF-8");
  }
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMostHeaderBytes) {
    return fail(Code::invalid_argument, "the header has {} bytes, must be at most {}: write several files",
                json.size(), kMostHeaderBytes);
  }
  const uint64_t length = json.size();
  layout.head.assign(reinterpret_cast<const char*>(&length), kLengthBytes);
  layout.head += json;
  for (TensorEntry& tensor : layout.tensors)
    tensor.begin += layout.head.size(), tensor.end += layout.head.size();
  layout.file_bytes = layout.head.size() + end;
  return layout;
}

}  // namespace loom::format
