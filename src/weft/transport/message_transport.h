// MessageTransport: the part of a transport that carries messages, moves everything along, and lets a thread
// sleep. Sink: the engine's side of it.
//
// Messages and puts to one peer may arrive in any order.
//
// Thread safety: none, except due_ns(); the engine calls the transports of a context under that context's
// lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/envelope.h"

namespace weft::transport {

/// The outcome of handing something over. `busy` is no error: the transport took nothing, and the caller
/// tries again after poll(). A payload whose memory is gone is answered busy, too; the caller's MemoryWatch
/// knows.
enum class Progress : uint8_t { accepted, busy };

/// The engine's side of a transport. Transports call it inside poll() only.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Where `envelope.bytes` of payload from `peer` should be written as they arrive, or null if that is not
  /// known yet. A transport that already holds the payload need not ask. The bytes of a put without a place
  /// are dropped.
  virtual void* place(int peer, const Envelope& envelope) = 0;
  /// A message or a put has arrived whole. `payload` is null if the bytes already are where place() said or
  /// where the put was aimed at; otherwise the Sink copies them before it returns.
  virtual void arrived(int peer, const Envelope& envelope, const void* payload) = 0;
  /// Whether a message is for an operation under way. The transport may leave other messages where they are
  /// while it delivers expected ones.
  virtual bool expects(int /*peer*/, const Envelope& /*envelope*/) const { return true; }
  /// Whether the transport delivers unexpected messages from `peer` when there are no expected ones. If not,
  /// no operation under way needs that peer, and the transport may leave its messages where they are, so that
  /// the peer waits.
  virtual bool takes_early(int /*peer*/) const { return true; }
  /// The connection to `peer` is lost; nothing more will arrive from it.
  virtual void lost(int peer, const Status& why) = 0;
};

/// Bytes and messages moved, for tests, traces and the report.
struct Counters {
  uint64_t messages_sent = 0;
  uint64_t payload_bytes_sent = 0;  // of messages and puts
  uint64_t puts = 0;
  uint64_t bytes_read = 0;  // single-copy reads of a peer's memory
};

class MessageTransport {
 public:
  virtual ~MessageTransport() = default;
  virtual std::string describe() const = 0;  // "shared memory", "tcp, 2 rails", "libfabric efa, 4 rails"

  /// Largest payload of send().
  virtual size_t eager_bytes() const = 0;
  /// Sends an envelope and up to eager_bytes() of payload, copied before the call returns. The receiver's
  /// Sink files the payload.
  virtual Result<Progress> send(int peer, const Envelope& envelope, const void* payload) = 0;

  /// For callers that stop polling between operations. A ticket stands for everything accepted so far.
  /// flushed() is true once none of that needs another poll() to leave, beyond what the Completions of puts
  /// say. Callers ask for tickets in order.
  virtual uint64_t ticket() const = 0;
  virtual bool flushed(uint64_t ticket) = 0;
  /// Waits until everything accepted has left, for the end of a job: destroying the transport then loses
  /// nothing. Errors: timeout if a peer does not take its data, remote_error for a peer that is lost
  /// meanwhile.
  virtual Status flush(Deadline deadline) = 0;

  /// Moves things along: delivers what has arrived to `sink`, continues what is under way. Returns the number
  /// of events; 0 means that nothing happened.
  virtual Result<int> poll(Sink& sink) = 0;
  /// When poll() is next needed although no descriptor becomes readable, by the clock of now_ns(); 0: at no
  /// time. From any thread.
  virtual int64_t due_ns() const { return 0; }

  /// Sleeping. The engine calls prepare_sleep() on each transport. If every transport returns true, the
  /// engine sleeps on all their descriptors, and then calls finish_sleep() on each. False means that
  /// something is there already: poll again.
  virtual bool prepare_sleep() = 0;
  virtual void finish_sleep() = 0;
  /// Adds the descriptors to watch (level-triggered, readable) to an epoll instance, once. A transport whose
  /// set of descriptors changes adds an epoll instance of its own.
  virtual Status watch(int epoll_fd) = 0;

  virtual Counters counters() const = 0;
};

}  // namespace weft::transport
