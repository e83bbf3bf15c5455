#include "transport/tcp_sender.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "base/memory_watch.h"
#include "transport/lost_memory.h"

namespace weft::transport::tcp {

namespace {

constexpr size_t kCopiedBytes = 1 << 10;  // of a message's payload, to be written with its header
constexpr size_t kPutsInWrite = 8;

/// Sent in place of the rest of a segment whose source may no longer be read.
const std::array<std::byte, 64 << 10> kZeros{};

iovec part(const void* data, size_t bytes) { return {const_cast<void*>(data), bytes}; }

/// The header of the put's next segment.
FrameHeader header_of(const OutgoingPut& put, size_t bytes) {
  FrameHeader header = put.header;
  header.bytes = static_cast<uint32_t>(bytes);
  header.put_offset = put.handed_out;
  return header;
}

FrameHeader end_of(const OutgoingPut& put) {
  FrameHeader end = put.header;
  end.set_kind(put.forgotten ? FrameKind::cancel : FrameKind::end);
  end.put_bytes = put.length;
  return end;
}

/// Copies a short payload behind its header: one piece costs the kernel less than two. Writes nothing if the
/// payload's memory turns out to be gone.
Io write_message(Socket& socket, const Envelope& header, const void* payload) {
  if (header.bytes > kCopiedBytes) {
    const iovec parts[] = {part(&header, sizeof(header)), part(payload, header.bytes)};
    return socket.write(parts, 2);
  }
  std::array<std::byte, kMessageHeader + kCopiedBytes> frame;
  std::memcpy(frame.data(), &header, sizeof(header));
  if (header.bytes > 0) std::memcpy(frame.data() + sizeof(header), payload, header.bytes);
  if (MemoryWatch::lost(payload, header.bytes)) [[unlikely]]
    return {};
  const iovec whole = part(frame.data(), sizeof(header) + header.bytes);
  return socket.write(&whole, 1);
}

}  // namespace

void ByteQueue::append(const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), from, from + bytes);
}

void ByteQueue::prepend(const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.begin() + static_cast<ptrdiff_t>(head_), from, from + bytes);
}

void ByteQueue::consume(size_t bytes) {
  head_ += bytes;
  if (empty()) {
    head_ = 0;
    bytes_.clear();
  } else if (head_ > bytes_.size() / 2) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(head_));
    head_ = 0;
  }
}

void Sender::use(Socket& socket, Use use) {
  const auto known =
      std::find_if(connections_.begin(), connections_.end(),
                   [&socket](const auto& connection) { return &connection->socket == &socket; });
  if (known != connections_.end()) (*known)->use = use;
  else connections_.push_back(std::make_unique<Connection>(Connection{socket, use}));
}

size_t Sender::useful_connections() const {
  size_t segments = 0;
  for (const OutgoingPut& put : puts_)
    segments += (put.length - put.handed_out + limits_.segment_bytes - 1) / limits_.segment_bytes;
  return std::max<size_t>(segments, 1);
}

void Sender::use_all_for_puts() {
  for (const auto& connection : connections_) connection->use.puts = connection->use.messages;
}

/// The connection for messages with the shortest queue.
Sender::Connection* Sender::least_loaded() {
  Connection* best = nullptr;
  for (const auto& candidate : connections_) {
    if (!candidate->use.messages) continue;
    if (candidate->free()) return candidate.get();
    if (best == nullptr || candidate->queue.size() < best->queue.size()) best = candidate.get();
  }
  return best;
}

/// The connection for puts, or null if there are several.
Sender::Connection* Sender::only_one_for_puts() {
  Connection* only = nullptr;
  for (const auto& candidate : connections_) {
    if (!candidate->use.puts) continue;
    if (only != nullptr) return nullptr;
    only = candidate.get();
  }
  return only;
}

// Waiting to share a write. A put that does not wait itself ends it: it takes along what waits.

bool Sender::message_waits(const Connection& connection, size_t bytes, bool may_wait) const {
  const bool others_wait = connection.wait.frames > 0 && connection.queue.size() < kCoalescedWriteBytes;
  if (bytes > kCoalescedBytes || !(connection.free() || others_wait) || !puts_.empty()) return false;
  return may_wait || Coalescer::is_open(connection.wait);
}

bool Sender::put_waits(const Connection& connection, uint64_t bytes) const {
  const bool alone = connection.free() && puts_.empty();
  return bytes < coalescer_.put_bytes() && connection.put == nullptr &&
         (alone || connection.wait.frames > 0) && Coalescer::is_open(connection.wait);
}

/// There is nothing but frames that wait for others, not enough of them, and the time is not over.
bool Sender::goes_on_waiting(const Connection& connection) const {
  return connection.wait.frames > 0 && connection.put == nullptr &&
         connection.queue.size() < kCoalescedWriteBytes &&
         (puts_.empty() || waiting_put_bytes() < coalescer_.put_bytes()) &&
         Coalescer::is_open(connection.wait);
}

uint64_t Sender::waiting_put_bytes() const {
  uint64_t bytes = 0;
  for (const OutgoingPut& put : puts_) bytes += put.length - put.handed_out;
  return bytes;
}

Result<Progress> Sender::send(const Envelope& envelope, const void* payload, bool may_wait) {
  const Envelope header = message_header(envelope);
  Connection& connection = *least_loaded();
  size_t taken = 0;
  const bool waits = message_waits(connection, envelope.bytes, may_wait);
  if (waits) {
    ++connection.wait.frames;
  } else if (connection.free()) {
    const Io io = write_message(connection.socket, header, payload);
    if (io.over()) return connection_lost(peer_, io);
    coalescer_.wrote(connection.wait);
    taken = io.bytes;
    if (taken == sizeof(header) + envelope.bytes) return Progress::accepted;
  } else if (connection.queue.size() + sizeof(header) + envelope.bytes > limits_.queue_bytes) {
    return Progress::busy;
  }
  const size_t header_taken = std::min(taken, sizeof(header));
  const size_t payload_taken = taken - header_taken;
  const size_t queued = connection.queue.size();
  connection.queue.append(reinterpret_cast<const std::byte*>(&header) + header_taken,
                          sizeof(header) - header_taken);
  if (envelope.bytes > payload_taken)
    connection.queue.append(static_cast<const std::byte*>(payload) + payload_taken,
                            envelope.bytes - payload_taken);
  if (MemoryWatch::lost(payload, envelope.bytes)) [[unlikely]] {
    if (taken > 0) return memory_is_gone(peer_);  // what has begun to leave has no end
    connection.queue.shorten(connection.queue.size() - queued);
    if (waits) --connection.wait.frames;
    return Progress::busy;
  }
  if (!waits || connection.queue.size() >= kCoalescedWriteBytes) WEFT_TRY(end_wait(connection));
  return Progress::accepted;
}

/// Writes what waits for others: a caller that sends on and on need not pump in between.
Status Sender::end_wait(Connection& connection) {
  if (connection.wait.frames == 0 || connection.put != nullptr || connection.socket.blocked()) return {};
  return write_queue(connection).status();
}

void Sender::put(const Envelope& envelope, const void* source, uint64_t bytes, Completion* done) {
  if (coalescer_.put_bytes() > 0)
    if (Connection* only = only_one_for_puts(); only != nullptr && put_waits(*only, bytes))
      ++only->wait.frames;
  if (spare_puts_.empty()) spare_puts_.emplace_back();
  OutgoingPut& put = spare_puts_.front() = {};
  puts_.splice(puts_.end(), spare_puts_, spare_puts_.begin());
  put.header.envelope = envelope;
  put.header.envelope.bytes = envelope_bytes(bytes);
  put.header.set_kind(FrameKind::segment);
  put.header.put_id = next_put_id_++;
  put.header.put_bytes = bytes;
  put.source = static_cast<const std::byte*>(source);
  put.length = put.unsent = bytes;
  put.done = done;
}

void Sender::forget(const Completion* first, const Completion* last) {
  const std::less<const Completion*> before;
  for (auto it = puts_.begin(); it != puts_.end();) {
    OutgoingPut& put = *it++;
    if (put.forgotten || before(put.done, first) || !before(put.done, last)) continue;
    put.forgotten = true;
    put.unsent -= put.length - put.handed_out;
    put.length = put.handed_out;
    for (const auto& connection : connections_)
      if (connection->put == &put) connection->source = nullptr;
    if (put.unsent > 0) continue;  // the connection that writes the last zero will say that it is over
    if (put.handed_out > 0) {
      const FrameHeader end = end_of(put);
      least_loaded()->queue.append(&end, sizeof(end));
    }
    retire(&put);
  }
}

void Sender::retire(const OutgoingPut* put) {
  const auto it =
      std::find_if(puts_.begin(), puts_.end(), [put](const OutgoingPut& other) { return &other == put; });
  spare_puts_.splice(spare_puts_.begin(), puts_, it);
}

bool Sender::has_segments() const {
  return std::any_of(puts_.begin(), puts_.end(),
                     [](const OutgoingPut& put) { return put.handed_out < put.length; });
}

bool Sender::begin_segment(Connection& connection) {
  if (!connection.use.puts) return false;
  const auto waiting = std::find_if(puts_.begin(), puts_.end(),
                                    [](const OutgoingPut& put) { return put.handed_out < put.length; });
  if (waiting == puts_.end()) return false;
  OutgoingPut& put = *waiting;
  connection.put = &put;
  connection.source = put.source + put.handed_out;
  connection.left = std::min<uint64_t>(limits_.segment_bytes, put.length - put.handed_out);
  connection.header = header_of(put, connection.left);
  connection.header_left = sizeof(FrameHeader);
  put.handed_out += connection.left;
  return true;
}

/// Writes what is left of the segment, and whole puts behind it if its put ends with it. Together they are no
/// longer than a segment may be, since a message that comes now waits behind them.
Result<size_t> Sender::write_segment(Connection& connection) {
  OutgoingPut& put = *connection.put;
  FrameHeader headers[kPutsInWrite], ends[kPutsInWrite];
  iovec parts[3 * kPutsInWrite];
  size_t count = 0;
  if (connection.header_left > 0) {
    const auto* header_end = reinterpret_cast<const std::byte*>(&connection.header + 1);
    parts[count++] = part(header_end - connection.header_left, connection.header_left);
  }
  const bool zeros = connection.source == nullptr;
  size_t offered = zeros ? std::min(connection.left, kZeros.size()) : connection.left;
  parts[count++] = part(zeros ? kZeros.data() : connection.source, offered);
  // Where this connection holds all that is left of the put, its end goes with the last bytes.
  const bool last = offered == put.unsent && put.handed_out == put.length;
  if (last) ends[0] = end_of(put), parts[count++] = part(&ends[0], sizeof(FrameHeader));
  size_t puts = 1;
  for (const OutgoingPut& next : puts_) {
    if (!last || puts == kPutsInWrite || !connection.queue.empty() || !connection.use.puts) break;
    if (next.handed_out == next.length) continue;
    if (next.handed_out > 0 || offered + next.length > limits_.segment_bytes) break;
    headers[puts] = header_of(next, next.length), ends[puts] = end_of(next);
    parts[count++] = part(&headers[puts], sizeof(FrameHeader));
    parts[count++] = part(next.source, next.length);
    parts[count++] = part(&ends[puts], sizeof(FrameHeader));
    offered += next.length;
    ++puts;
  }

  const Io io = connection.socket.write(parts, count);
  if (io.over()) return connection_lost(peer_, io);
  for (size_t taken = taken_of_segment(connection, io.bytes); taken > 0;) {
    begin_segment(connection);
    taken = taken_of_segment(connection, taken);
  }
  if (connection.put == nullptr && coalescer_.put_bytes() > 0) coalescer_.wrote(connection.wait);
  return io.bytes;
}

/// The kernel has taken this many bytes, from the segment's first on. Returns how many of them lie behind it.
size_t Sender::taken_of_segment(Connection& connection, size_t bytes) {
  OutgoingPut& put = *connection.put;
  const size_t header_taken = std::min(bytes, connection.header_left);
  const size_t payload_taken = std::min(bytes - header_taken, connection.left);
  connection.header_left -= header_taken;
  connection.left -= payload_taken;
  if (connection.source != nullptr) connection.source += payload_taken;
  put.unsent -= payload_taken;
  if (connection.left > 0) return 0;
  const size_t behind = bytes - header_taken - payload_taken;
  const FrameHeader end = end_of(put);
  const size_t end_taken = std::min(behind, sizeof(end));
  segment_written(connection, end, end_taken);
  return behind - end_taken;
}

void Sender::segment_written(Connection& connection, const FrameHeader& end, size_t end_taken) {
  OutgoingPut& put = *std::exchange(connection.put, nullptr);
  if (put.unsent > 0) return;
  if (end_taken <
      sizeof(end))  // its first bytes may be gone already: before any message that has queued up meanwhile
    connection.queue.prepend(reinterpret_cast<const std::byte*>(&end) + end_taken, sizeof(end) - end_taken);
  if (!put.forgotten) put.done->done = true;
  retire(&put);
}

Result<size_t> Sender::write_queue(Connection& connection) {
  const iovec parts[] = {part(connection.queue.data(), connection.queue.size())};
  const Io io = connection.socket.write(parts, 1);
  if (io.over()) return connection_lost(peer_, io);
  connection.queue.consume(io.bytes);
  coalescer_.wrote(connection.wait);
  return io.bytes;
}

Result<int> Sender::pump(size_t budget) {
  int writes = 0;
  for (const auto& connection : connections_) {
    for (size_t written = 0; written < budget && !connection->socket.blocked();) {
      if (goes_on_waiting(*connection)) break;
      if (connection->free() && !begin_segment(*connection)) break;
      const bool inside_segment = connection->put != nullptr;
      const Result<size_t> moved = inside_segment ? write_segment(*connection) : write_queue(*connection);
      if (!moved.ok()) return moved.status();
      written += *moved;
      if (*moved == 0) break;
      ++writes;
    }
  }
  return writes;
}

bool Sender::ready() const {
  const bool segments = has_segments();
  return std::any_of(connections_.begin(), connections_.end(), [segments](const auto& connection) {
    return !connection->socket.blocked() && ((segments && connection->use.puts) || !connection->free());
  });
}

bool Sender::waits() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& c) { return c->wait.frames > 0; });
}

bool Sender::pending() const {
  return !puts_.empty() ||
         std::any_of(connections_.begin(), connections_.end(), [](const auto& c) { return !c->free(); });
}

}  // namespace weft::transport::tcp
