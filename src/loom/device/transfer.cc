// Two buffers in turns.
#include "device/transfer.h"

#include <algorithm>

#include "base/check.h"
#include "base/round.h"

namespace loom::device {

Result<Transfer> Transfer::create(Device& device, Queue& queue, int64_t buffer_bytes) {
  LOOM_TRY(at_least_one("the bytes of a buffer", buffer_bytes));
  Transfer transfer(queue);
  if (device.is_host()) return transfer;
  for (Buffer& buffer : transfer.buffers_) {
    Result<Memory> memory = device.allocate_pinned(buffer_bytes);
    if (!memory.ok()) return memory.status();
    buffer.memory = memory.take();
    Result<std::unique_ptr<Event>> event = device.make_event();
    if (!event.ok()) return event.status();
    buffer.copied = event.take();
  }
  return transfer;
}

Transfer::~Transfer() {
  for (const Buffer& buffer : buffers_)
    if (buffer.copied != nullptr) (void)buffer.copied->wait();
}

Status Transfer::upload(void* to, int64_t bytes, const Source& source) {
  const int64_t most = buffers_[0].memory.bytes();
  if (most == 0) {
    LOOM_TRY(queue_->drain());
    return bytes == 0 ? Status() : source(0, {static_cast<std::byte*>(to), static_cast<size_t>(bytes)});
  }
  for (int64_t offset = 0, turn = 0; offset < bytes; offset += most, ++turn) {
    const int64_t piece = std::min(most, bytes - offset);
    const Buffer& buffer = buffers_[turn % 2];
    LOOM_TRY(buffer.copied->wait());
    LOOM_TRY(source(offset, {buffer.memory.data(), static_cast<size_t>(piece)}));
    queue_->copy(static_cast<std::byte*>(to) + offset, buffer.memory.data(), piece);
    queue_->record(*buffer.copied);
  }
  return queue_->status();
}

Status Transfer::download(const void* from, int64_t bytes, const Sink& sink) {
  const int64_t most = buffers_[0].memory.bytes();
  if (most == 0) {
    LOOM_TRY(queue_->drain());
    const std::span all(static_cast<const std::byte*>(from), static_cast<size_t>(bytes));
    return bytes == 0 ? Status() : sink(0, all);
  }
  const int64_t pieces = ceil_div(bytes, most);
  const auto length = [&](int64_t piece) { return std::min(most, bytes - piece * most); };
  for (int64_t piece = 0; piece <= pieces; ++piece) {
    if (piece < pieces) {  // while the sink has the one before
      const Buffer& buffer = buffers_[piece % 2];
      LOOM_TRY(buffer.copied->wait());
      queue_->copy(buffer.memory.data(), static_cast<const std::byte*>(from) + piece * most, length(piece));
      queue_->record(*buffer.copied);
      LOOM_TRY(queue_->status());
    }
    if (piece == 0) continue;
    const Buffer& before = buffers_[(piece - 1) % 2];
    LOOM_TRY(before.copied->wait());
    LOOM_TRY(sink((piece - 1) * most, {before.memory.data(), static_cast<size_t>(length(piece - 1))}));
  }
  return {};
}

}  // namespace loom::device
