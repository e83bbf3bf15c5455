// Status and Result<T>: what every function of Loom that can fail returns.
//
// Thread safety: values; a Status may be copied between threads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#define LOOM_API [[gnu::visibility("default")]]

namespace loom {

/// The kind of an error: for callers that act on it, and for the exit code of the command.
enum class Code : int {
  ok = 0,
  invalid_argument,     // a wrong config, option or call
  invalid_data,         // a file is damaged, hostile or of another kind
  not_found,            // a file, folder, tensor or token is missing
  system_error,         // the operating system refused
  disk_full,            // no space, or a quota or size limit, while writing
  out_of_memory,        // too little memory, or a stated limit is too low
  communication_error,  // Weft failed: a peer died, a deadline passed, ranks disagree
  not_finite,           // a loss or a gradient is NaN or infinite
  unsupported,          // valid, but not in this version
  internal_error,       // a bug in Loom
};

LOOM_API const char* code_name(Code code);

/// Success, or a code and a sentence that names what is wrong and what would be right.
class [[nodiscard]] LOOM_API Status {
 public:
  Status() = default;
  Status(Code code, std::string message)
      : state_(std::make_shared<const State>(State{code, std::move(message)})) {}

  bool ok() const { return state_ == nullptr; }
  explicit operator bool() const { return ok(); }
  Code code() const { return state_ ? state_->code : Code::ok; }
  const std::string& message() const;
  /// The same code, with `where` and a colon in front of the sentence.
  Status in(std::string_view where) const;

 private:
  struct State {
    Code code;
    std::string message;
  };
  std::shared_ptr<const State> state_;
};

/// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T take() { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace loom
