// Transfer: bytes between a device's memory and whatever the host has, ordinary memory or a file, through two
// pinned buffers in turns. The host fills or empties one while the queue copies the other. Where the device
// is the host, it gives the memory itself, and copies nothing.
//
// Thread safety: one thread at a time, the queue's.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "device/device.h"

namespace loom::device {

class Transfer {
 public:
  /// Fills `piece`, which begins `offset` bytes in, or takes it. On the host there is one piece.
  using Source = std::function<Status(int64_t offset, std::span<std::byte> piece)>;
  using Sink = std::function<Status(int64_t offset, std::span<const std::byte> piece)>;

  /// Keeps two buffers of so many bytes; none on the host. Device and queue outlive it. Errors:
  /// out_of_memory.
  static Result<Transfer> create(Device& device, Queue& queue, int64_t buffer_bytes);
  /// Returns when the copies that are queued have left the buffers.
  ~Transfer();
  Transfer(Transfer&&) = default;
  Transfer& operator=(Transfer&&) = delete;

  /// Copies to [to, to + bytes) of the device what the source gives. Returns when the source has given all;
  /// the last copies are queued. Nothing else may write there meanwhile. Errors: the source's, the queue's.
  Status upload(void* to, int64_t bytes, const Source& source);
  /// Copies [from, from + bytes) of the device to the sink. Returns when the sink has all. Errors: the
  /// sink's, the queue's.
  Status download(const void* from, int64_t bytes, const Sink& sink);

 private:
  struct Buffer {
    Memory memory;
    std::unique_ptr<Event> copied;  // null once the transfer is moved from
  };
  explicit Transfer(Queue& queue) : queue_(&queue) {}

  Queue* queue_;
  Buffer buffers_[2];  // without memory on the host
};

}  // namespace loom::device
