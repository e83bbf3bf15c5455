// torch's store of a group, asked with a time limit: torch's own calls wait without end for a server that
// hangs.
#ifndef WEFT_TORCH_STORE_CLIENT_H_
#define WEFT_TORCH_STORE_CLIENT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <type_traits>
#include <vector>

namespace weft_torch {

using Bytes = std::vector<uint8_t>;

// How long a thread that waits goes without a look at what may end the wait.
inline constexpr std::chrono::milliseconds kLook(100);

// A wait may end before its time. `doing` is what the exception says of the wait.
struct Interruption {
  const std::atomic<bool>* cancelled;  // null: no other thread ends it
  std::string doing;

  void check_cancelled() const;
  // The same, and throws what a handler of signals raises in Python's main thread, as Ctrl-C does.
  void check() const;
};

// Thread safety: one thread at a time. Each question runs in a thread of its own, which stays behind if the
// store does not answer. Every function throws DistBackendError, with a sentence that names the group, if the
// store fails or does not answer in `patience`; and what Interruption throws.
class StoreClient {
 public:
  StoreClient(c10::intrusive_ptr<c10d::Store> store, std::string group_name,
              std::chrono::milliseconds patience, Interruption interruption);

  int64_t add(const std::string& key, int64_t amount);
  void set(const std::string& key, const Bytes& value);
  Bytes get(const std::string& key);
  void delete_key(const std::string& key);
  // Waits for a key; false when the time is over.
  bool await_key(const std::string& key, std::chrono::milliseconds timeout);

 private:
  template <typename Ask>
  std::invoke_result_t<Ask, c10d::Store&> answer_to(Ask ask) const;
  [[noreturn]] void fail(const std::string& how, const std::string& cause) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string group_name_;
  const std::chrono::milliseconds patience_;
  const Interruption interruption_;
};

}  // namespace weft_torch

#endif  // WEFT_TORCH_STORE_CLIENT_H_
