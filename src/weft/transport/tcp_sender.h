// Sender: everything on its way to one peer. Messages wait as bytes in the bounded queue of a connection.
// Puts wait by reference in one list, and every connection that is for puts takes the next segment from it
// when it has room. So rails share a put in proportion to their speed, and a message waits behind one segment
// at most.
//
// Short frames may wait to share a write with others, as the coalescer says (tcp_coalescer.h). They do so
// until their time is over, until a frame comes that does not wait, or until there is enough for a write.
// Puts wait only where one connection is for puts; then a write takes several of them.
//
// The sender does not poll, connect or notice that a peer is gone: TcpTransport does.
//
// Thread safety: none. Invariants: a connection is inside at most one segment. Its queue begins at a frame's
// boundary; or in the middle of a frame that it has begun to write, and then it is inside no segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/status.h"
#include "transport/tcp_coalescer.h"
#include "transport/tcp_frame.h"
#include "transport/tcp_socket.h"
#include "transport/transport.h"

namespace weft::transport::tcp {

/// Bytes first in, first out. The queue keeps its memory: a sender that once waited for a peer will wait
/// again.
class ByteQueue {
 public:
  bool empty() const { return head_ == bytes_.size(); }
  size_t size() const { return bytes_.size() - head_; }
  const std::byte* data() const { return bytes_.data() + head_; }
  void append(const void* data, size_t bytes);
  void prepend(const void* data, size_t bytes);
  void consume(size_t bytes);
  /// Takes back what was appended last.
  void shorten(size_t bytes) { bytes_.resize(bytes_.size() - bytes); }

 private:
  std::vector<std::byte> bytes_;
  size_t head_ = 0;
};

struct OutgoingPut {
  FrameHeader header;  // what its segments have in common: id, size and envelope
  const std::byte* source = nullptr;
  uint64_t length = 0;      // to be handed out: the put's size, or less once it is forgotten
  uint64_t handed_out = 0;  // to connections
  uint64_t unsent = 0;      // of `length`, bytes that the kernel has not taken
  Completion* done = nullptr;
  bool forgotten = false;
};

class Sender {
 public:
  struct Limits {
    size_t queue_bytes;    // of messages waiting on a connection
    size_t segment_bytes;  // of a put in one frame
  };

  struct Use {
    bool messages = true;
    bool puts = true;
  };

  /// `coalescer` outlives this.
  Sender(int peer, Limits limits, Coalescer& coalescer)
      : peer_(peer), limits_(limits), coalescer_(coalescer) {}

  /// Sets what a connection is for, from the next frame on. Adds it if it is new; it outlives the Sender.
  void use(Socket& socket, Use use);
  /// Connections for messages take puts as well, from now on.
  void use_all_for_puts();
  /// How many connections could be at work at once on the puts that are waiting.
  size_t useful_connections() const;

  /// The three operations of a transport. They need a connection for them; an error means that it broke.
  /// `may_wait`: the message may wait to share a write, whatever the time.
  Result<Progress> send(const Envelope& envelope, const void* payload, bool may_wait = false);
  void put(const Envelope& envelope, const void* source, uint64_t bytes, Completion* done);
  void forget(const Completion* first, const Completion* last);

  /// Writes about `budget` bytes on each connection that takes them. Returns how many writes moved something.
  Result<int> pump(size_t budget);
  /// pump() would do something.
  bool ready() const;
  /// Something has not been taken by the kernel yet.
  bool pending() const;
  /// … of a put.
  bool puts() const { return !puts_.empty(); }
  /// … because it waits to share a write.
  bool waits() const;

 private:
  struct Connection {
    Socket& socket;
    Use use{};
    ByteQueue queue{};
    OutgoingPut* put = nullptr;  // whose segment is being written, or null
    FrameHeader header{};        // of that segment
    size_t header_left = 0;
    const std::byte* source = nullptr;  // of what is left of it; null: zeros, for a put that was forgotten
    size_t left = 0;

    Coalescer::Wait wait{};  // of messages in the queue, and of puts

    bool free() const { return put == nullptr && queue.empty(); }
  };

  Connection* least_loaded();
  Connection* only_one_for_puts();
  bool message_waits(const Connection& connection, size_t bytes, bool may_wait) const;
  bool put_waits(const Connection& connection, uint64_t bytes) const;
  bool goes_on_waiting(const Connection& connection) const;
  uint64_t waiting_put_bytes() const;
  Status end_wait(Connection& connection);
  bool has_segments() const;
  bool begin_segment(Connection& connection);
  Result<size_t> write_segment(Connection& connection);
  size_t taken_of_segment(Connection& connection, size_t bytes);
  Result<size_t> write_queue(Connection& connection);
  void segment_written(Connection& connection, const FrameHeader& end, size_t end_taken);
  void retire(const OutgoingPut* put);

  int peer_;
  Limits limits_;
  Coalescer& coalescer_;
  uint32_t next_put_id_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::list<OutgoingPut> puts_;        // in order of arrival; all that have unsent bytes
  std::list<OutgoingPut> spare_puts_;  // memory for the next ones
};

}  // namespace weft::transport::tcp
