// Memory: a piece of a device's memory, or of host memory that a device copies from and to. On a GPU no byte
// of it can be touched by the host: what the host reads or writes, a queue copies.
//
// Thread safety: a value of one thread; the bytes are ordered by queues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace loom::device {

/// Where memory of every device begins: a multiple of this many bytes.
inline constexpr int64_t kMemoryAlignment = 256;

class Memory {
 public:
  using Release = std::function<void(std::byte* data)>;

  Memory() = default;
  Memory(std::byte* data, int64_t bytes, Release release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        release_(std::exchange(other.release_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) release_(data_);
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  /// The address of an array of T that begins `offset` bytes in.
  template <typename T>
  T* as(int64_t offset = 0) const {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Release release_;
};

}  // namespace loom::device
