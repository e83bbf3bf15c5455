// Sender: everything on its way to one peer. Messages wait as bytes in the bounded queue of a connection;
// puts wait by reference in one list, and every connection that is for puts takes the next segment from it
// whenever it has room. So rails share a put by how fast they are, and a message waits behind one segment at
// most.
//
// Gathering: where it is asked for, short messages that follow one another at once share a write, because a
// write costs more than what it carries. The first leaves immediately; those that come within `gather_ns` of
// a write wait for the end of that time. Whether that pays is found out by trying: where a wait brings no
// company, the next ones are spared it. Puts may wait in the same way, by reference, where there is one
// connection: then a write takes several of them. Where it is not asked for, whoever sends may say of a
// message that it can wait; it does so until one that cannot, until there is enough for a write, or until
// pump().
//
// Not who polls, connects or notices that a peer is gone: that is TcpTransport.
//
// Thread safety: none. Invariants: a connection is inside at most one segment; its queue begins at a frame's
// boundary, or in the middle of one that it has begun to write, and then it is inside no segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/status.h"
#include "transport/tcp_frame.h"
#include "transport/tcp_socket.h"
#include "transport/transport.h"

namespace weft::transport::tcp {

/// Bytes first in, first out. Their memory is kept: whoever once had to wait for a peer will have to again.
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
    size_t queue_bytes;     // of messages waiting on a connection
    size_t segment_bytes;   // of a put in one frame
    int64_t gather_ns = 0;  // for which a message may wait for others, 0 = not at all
    // Puts shorter than this may wait, too, until together they are as long; 0 = no put waits.
    size_t gather_put_bytes = 0;
  };

  struct Use {
    bool messages = true;
    bool puts = true;
  };

  Sender(int peer, Limits limits) : peer_(peer), limits_(limits) {}

  /// What a connection is for, from the next frame on. Any of them; they outlive the Sender.
  void use(Socket& socket, Use use);
  /// Those for messages take puts, too.
  void use_all_for_puts();
  /// How many connections could be at work at once on the puts that are waiting.
  size_t useful_connections() const;

  /// The three operations of Transport. They need a connection for them; an error means that it broke.
  Result<Progress> send(const Envelope& envelope, const void* payload, bool can_wait = false);
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
  /// … because it waits for others to share a write.
  bool gathers() const;

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

    int64_t gathers_until_ns = 0;
    int gathered = 0;  // messages in the queue, and puts, that wait for others
    int spared = 0;    // writes that need not be followed by waiting, for that has brought nothing lately

    bool free() const { return put == nullptr && queue.empty(); }
  };

  Connection* least_loaded();
  Connection* only_one_for_puts();
  bool may_gather(const Connection& connection, size_t bytes, bool can_wait) const;
  bool may_gather_put(const Connection& connection, uint64_t bytes) const;
  bool waits(const Connection& connection) const;
  uint64_t waiting_put_bytes() const;
  void gather_after_write(Connection& connection);
  Status end_gathering(Connection& connection);
  bool has_segments() const;
  bool begin_segment(Connection& connection);
  Result<size_t> write_segment(Connection& connection);
  size_t taken_of_segment(Connection& connection, size_t bytes);
  Result<size_t> write_queue(Connection& connection);
  void segment_written(Connection& connection, const FrameHeader& end, size_t end_taken);
  void retire(const OutgoingPut* put);

  int peer_;
  Limits limits_;
  uint32_t next_put_id_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::list<OutgoingPut> puts_;        // in order of arrival; all that have unsent bytes
  std::list<OutgoingPut> spare_puts_;  // memory for the next ones
};

}  // namespace weft::transport::tcp
