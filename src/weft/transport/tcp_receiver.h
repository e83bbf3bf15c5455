// Receiver: reads frames from one connection, and hands them to the engine's Sink. PutAssembly: which puts of
// a peer are under way, over all its connections.
//
// Many small frames cost one read, into a scratch buffer that all receivers of a transport share. The payload
// of a longer frame goes straight to where Sink::place() says. Between reads a receiver keeps only an
// incomplete frame's state, and the messages that a patient receiver puts off. It asks the Sink before every
// single write, so that memory may be taken away between any two calls of the Sink.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "transport/tcp_frame.h"
#include "transport/tcp_socket.h"
#include "transport/transport.h"

namespace weft::transport::tcp {

/// Counts the segments that have arrived of each put of a peer. Few puts are under way at a time: as a rule
/// one on each connection.
class PutAssembly {
 public:
  /// A segment or the end of a put has arrived whole. Returns true if the put is complete now and is to be
  /// delivered.
  Result<bool> add(const FrameHeader& frame);
  size_t under_way() const { return puts_.size(); }

 private:
  struct Put {
    uint32_t id;
    bool ended = false;
    bool cancelled = false;
    uint64_t expected;  // bytes, final once ended
    uint64_t received = 0;
  };
  std::vector<Put> puts_;
};

class Receiver {
 public:
  /// `puts` is shared by the receivers of one peer; it and `socket` outlive this. `patient`: once the
  /// receiver has delivered something, it leaves the rest to the next read(), if there may be a place for it
  /// by then, which spares a copy. The rest is in the kernel, or was read already: from the first message on
  /// that the Sink does not expect.
  Receiver(int peer, Socket& socket, PutAssembly& puts, bool patient = false)
      : peer_(peer), socket_(socket), puts_(puts), patient_(patient) {}

  struct Outcome {
    int events = 0;    // frames completed and reads that moved something
    Status ended;      // not ok: the connection is over, by its peer or by garbage
    size_t bytes = 0;  // from the kernel
  };
  /// Reads until there is nothing more, or about `budget` bytes have arrived. It stops early if the Sink
  /// takes nothing early from this peer (Sink::takes_early()): then the kernel's buffers fill, and the peer
  /// waits. `is_last`: the peer is gone, so the receiver takes everything. Between two calls `scratch` is
  /// free for other use.
  Outcome read(Sink& sink, std::span<std::byte> scratch, size_t budget, bool is_last = false);
  /// Whether messages were read and put off: read() has something to deliver without any event from the
  /// kernel.
  bool puts_off() const { return put_off_at_ < put_off_.size(); }

 private:
  bool may_wait(Sink& sink) const;
  size_t read_ahead(bool direct, size_t scratch_bytes) const;
  std::byte* target(Sink& sink);
  bool unexpected(Sink& sink, const std::byte* data, size_t bytes) const;
  Status go_on(Sink& sink);
  Result<size_t> consume(Sink& sink, const std::byte* data, size_t bytes, bool patient);
  Status copy(std::byte* into, const std::byte* data, size_t bytes) const;
  Status garbage(const Status& why) const;
  Result<size_t> begin_frame(Sink& sink, const std::byte* data, size_t bytes);
  Status advance(Sink& sink, size_t bytes);
  Status finish_frame(Sink& sink, const std::byte* payload);

  int peer_;
  Socket& socket_;
  PutAssembly& puts_;
  const bool patient_;
  bool long_frames_ = false;  // the last frame had a long payload
  FrameHeader header_;
  size_t header_filled_ = 0;
  size_t left_ = 0;                 // of the payload; 0: a header is next
  bool holds_ = false;              // the frame is a message that the Sink had no place for when it began
  std::vector<std::byte> held_;     // its payload then; else memory for the next one
  std::vector<std::byte> put_off_;  // whole frames first; from put_off_at_ on
  size_t put_off_at_ = 0;
  int events_ = 0;
};

}  // namespace weft::transport::tcp
