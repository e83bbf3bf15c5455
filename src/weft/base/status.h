// Status and Result<T>: how every function of Weft that can fail says so. Nothing else is used inside the
// library; exceptions never cross the C ABI, and "try again" is not an error (see transport::Progress).
//
// Thread safety: values; a Status may be copied between threads.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace weft {

/// Numerically equal to weftResult_t of weft/weft.h. 0–7 mean what NCCL's results mean; the rest say more
/// exactly what is wrong.
enum class Code : int {
  ok = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,  // a peer died or its connection broke
  in_progress = 7,
  invalid_pointer = 8,     // null or not aligned to the element
  invalid_type = 9,        // unknown data type
  invalid_op = 10,         // unknown operator, or one that the type does not have
  invalid_count = 11,      // count × element size overflows
  invalid_root = 12,       // root or peer out of range
  invalid_comm = 13,       // null, destroyed or aborted communicator
  invalid_unique_id = 14,  // truncated, damaged or of another version
  invalid_setting = 15,    // unknown environment setting, or a value out of range
  mismatch = 16,           // ranks called different things
  timeout = 17,            // a deadline passed
  aborted = 18,            // weftCommAbort was called
  protocol_error = 19,     // somebody answered, but not a Weft rank of this job
  out_of_memory = 20,
  unsupported = 21,
};

const char* code_name(Code code);

/// Success, or a code and a sentence that names what is wrong and what would be right.
class [[nodiscard]] Status {
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

/// Makes an error: fail(Code::invalid_root, "root is {}, must be in [0, {})", root, n).
template <typename... Args>
Status fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}
/// As fail(system_error), with errno's text appended.
Status fail_errno(int error, std::string_view what);

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

/// The one macro that returns: `WEFT_TRY(call());` leaves the function with the Status of a failed call.
#define WEFT_TRY(expr)                                                                             \
  do {                                                                                             \
    if (::weft::Status weft_try_status_ = (expr); !weft_try_status_.ok()) return weft_try_status_; \
  } while (0)

}  // namespace weft
