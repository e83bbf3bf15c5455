// Transport: how bytes get from one rank to another. Shared memory, TCP and libfabric implement this
// interface; the tests wrap it to make it faulty or slow. A transport knows ranks and bytes, and nothing of
// collectives: it carries envelopes without reading their meaning.
//
// Two services, and two more between ranks of one node:
//
//   send   a message: an envelope and up to eager_bytes() of payload, copied before the call returns. The
//          receiver's Sink files the payload.
//   put    one-sided: bytes go straight into memory that the peer has exposed. Then the envelope arrives at
//          the peer's Sink.
//   map    a pointer to memory that a peer of the node has exposed.
//   read   a single-copy read of such memory, or a read that its owner helps with (Reading).
//
// Messages and puts to one peer may arrive in any order.
//
// Thread safety: none; the engine calls the transports of a context under that context's lock. Abort: the
// destructor of a transport closes everything in bounded time, with messages and puts in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace weft::transport {

/// What arrives beside the payload. The transport carries it; the engine gives it meaning.
struct Envelope {
  uint32_t comm = 0;       // communicator
  uint32_t op = 0;         // which operation of it
  uint32_t signature = 0;  // hash of what the sender was asked to do
  uint16_t tag_low = 0;    // tag = tag_high << 16 | tag_low
  uint8_t kind = 0;        // Kind, the engine's
  uint8_t space = 0;       // plan::Space: where the payload goes, or which space is exposed
  uint64_t offset = 0;     // in that space, bytes
  uint32_t bytes = 0;      // of payload; of a put, envelope_bytes()
  uint16_t tag_high = 0;
  uint16_t reserved = 0;  // the transport's own while under way: send 0, and do not look at it on arrival

  uint32_t tag() const { return uint32_t{tag_high} << 16 | tag_low; }
  void set_tag(uint32_t tag) {
    tag_low = static_cast<uint16_t>(tag), tag_high = static_cast<uint16_t>(tag >> 16);
  }
};
static_assert(sizeof(Envelope) == 32);

/// What Envelope::bytes says of a put: its size, or 2^32 - 1 for all that is longer.
inline uint32_t envelope_bytes(uint64_t put_bytes) {
  return put_bytes < UINT32_MAX ? static_cast<uint32_t>(put_bytes) : UINT32_MAX;
}

/// How a peer's memory is reached: written by the owner's transport (expose), understood by the peer's. Plain
/// bytes, so that it can travel as a payload.
struct RemoteBuffer {
  uint64_t address = 0;  // in the owner's address space
  uint64_t bytes = 0;
  uint64_t keys[6] = {};  // registration keys by rail, segment number: the transport's own
};
static_assert(sizeof(RemoteBuffer) == 64);

/// The outcome of handing something over. `busy` is no error: nothing was taken, call again after poll(). So
/// it is for a payload that is not there, of which the caller's MemoryWatch knows.
enum class Progress : uint8_t { accepted, busy };

/// A pointer through which a peer's memory can be read and written from here.
struct MappedBuffer {
  std::byte* address = nullptr;         // null if it can only be read()
  std::shared_ptr<const void> mapping;  // keeps `address` good; null where the owner's exposure is enough
};

/// Set by a transport when a put's source may be reused. Lives until then; owned by the caller.
struct Completion {
  bool done = false;
};

/// A long read of a peer's memory, front to back, with which the peer helps while it has time for that: it
/// brings pieces to where both can see them. What has not come the reader can fetch itself, so that it
/// depends on nobody. Destroying it ends it.
class Reading {
 public:
  virtual ~Reading() = default;
  /// How long the next piece is, there or not; 0 at the end. Pieces of readings that are as long begin and
  /// end at the same places.
  virtual uint64_t piece() const = 0;
  /// Where the next piece is, if it is there, else null. Good until take().
  virtual const std::byte* ready() const = 0;
  /// How long the peer took to bring the piece that ready() gives.
  virtual int64_t bringing_ns() const = 0;
  /// Reads the next piece without help.
  virtual Status fetch(void* into) = 0;
  /// The reader is done with the piece, which ready() gave or fetch() read.
  virtual void take() = 0;
  /// What pieces that were brought have cost both ranks on average, and the least that one cost which was
  /// read alone. Where help is not worth it, again and again, there is no more of it, nor in the next
  /// readings of that peer's memory. Returns whether there is still help.
  virtual bool judge(int64_t brought_ns, int64_t alone_ns) = 0;
};

/// The engine's side of a transport. Called from inside poll(), and only there.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Where `envelope.bytes` of payload from `peer` should be written as they come in, or null if that is not
  /// known yet. A transport that has the payload in hand anyway need not ask.
  virtual void* place(int peer, const Envelope& envelope) = 0;
  /// A message or a put has arrived whole. `payload` is null if it already is where place() said or where the
  /// put was aimed at; otherwise the Sink copies it before it returns.
  virtual void arrived(int peer, const Envelope& envelope, const void* payload) = 0;
  /// Whether a message is for something under way. One that is not may be left where it is while there are
  /// others.
  virtual bool expects(int /*peer*/, const Envelope& /*envelope*/) const { return true; }
  /// Whether one from `peer` that is not is taken in where there are no others. If not, nothing under way
  /// has to hear from that peer, and what it sends may be left, so that it waits.
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

/// What a network does with the memory of a GPU when it needs no copy in host memory. Only transports that
/// were opened for a device have it; what cannot be reached this way goes through host memory, as if there
/// were none.
class GpuDirect {
 public:
  virtual ~GpuDirect() = default;
  /// ok if puts go between the GPU memory of this rank and of `peer`; both ends give the same answer. Of
  /// oneself: whether this rank offers it. Else the reason, of either end.
  virtual Status gpu_direct_with(int peer) const = 0;
  /// As Transport::expose, for GPU memory; Transport::unexpose ends it. `unsupported` if this memory, of all,
  /// cannot be registered: then it has to be staged.
  virtual Result<RemoteBuffer> expose_gpu(void* address, size_t bytes) = 0;
  /// ok if expose_dma_buf() works here, else why not.
  virtual Status takes_dma_bufs() const = 0;
  /// As expose_gpu, by a dma-buf that the caller has of the memory, which begins at `offset` of it. `fd` may
  /// be closed afterwards.
  virtual Result<RemoteBuffer> expose_dma_buf(void* address, size_t bytes, int fd, uint64_t offset) = 0;
  /// As Transport::put, from GPU memory.
  virtual Result<Progress> put_gpu(int peer, const Envelope& envelope, const void* source, size_t bytes,
                                   const RemoteBuffer& target, uint64_t offset, Completion* done) = 0;
  /// Withdraws the keys of everything that is exposed no more: after a failure, when a peer may still write.
  virtual void drop_unexposed_gpu() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string describe() const = 0;  // "shared memory", "tcp over eth0", "libfabric efa, 4 rails"

  /// Largest payload of send() to this peer.
  virtual size_t eager_bytes() const = 0;
  /// Up to so many bytes a message is no worse than a put where either will do.
  virtual size_t brief_put_bytes() const { return eager_bytes(); }

  virtual Result<Progress> send(int peer, const Envelope& envelope, const void* payload) = 0;

  /// Makes own memory reachable for peers until unexpose(). The same range may be exposed several times at
  /// once; registrations are cached.
  virtual Result<RemoteBuffer> expose(void* address, size_t bytes) = 0;
  virtual void unexpose(const RemoteBuffer& buffer) = 0;

  /// Writes `bytes` at `offset` of `target`, which `peer` exposed, then delivers `envelope` there. `done` is
  /// set when the source may be reused, now or in a later poll().
  virtual Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                               const RemoteBuffer& target, uint64_t offset, Completion* done) = 0;
  /// Gives up on puts whose `done` lies in [first, last): they may still run or not, but `done` is not
  /// touched again.
  virtual void forget(const Completion* first, const Completion* last) = 0;
  /// How much may be on its way over one connection at once, roughly: what is more than a network holds waits
  /// in its queues, and what these do not hold is lost. 0 = no bound, as long as there was none: one that is
  /// set is changed, and not lifted. Where the network sees to this itself, nothing happens.
  virtual void bound_flight(size_t bytes) { (void)bytes; }

  /// For callers that stop polling between operations. ticket() stands for everything accepted so far;
  /// flushed() is true once none of it needs another poll() to get out, beyond what the Completions of puts
  /// say. It is asked for tickets in order. Where accepting means just that, both are trivial.
  virtual uint64_t ticket() const { return 0; }
  virtual bool flushed(uint64_t ticket) {
    (void)ticket;
    return true;
  }

  /// Makes `target` reachable by a pointer where that is possible; it lasts while `mapping` of the answer
  /// does, whatever else is mapped.
  virtual MappedBuffer map(int peer, const RemoteBuffer& target) {
    (void)peer, (void)target;
    return {};
  }
  /// Whether map() gives the very memory of `peer`, a thread of this process, which goes when its owner frees
  /// it; elsewhere what is mapped stays. Nothing here keeps a caller from touching what has gone.
  virtual bool same_process(int peer) const {
    (void)peer;
    return false;
  }
  /// Reads a peer's exposed memory; only where reads_peers() is true.
  virtual Status read(int peer, const RemoteBuffer& target, uint64_t offset, void* into, size_t bytes) {
    (void)peer, (void)target, (void)offset, (void)into, (void)bytes;
    return fail(Code::unsupported, "{} cannot read a peer's memory", describe());
  }
  virtual bool reads_peers() const { return false; }
  /// A read of what map() cannot reach, with its owner's help. Null where nobody helps: read() does it all.
  /// The owner's exposure and this transport outlive it.
  virtual std::unique_ptr<Reading> begin_reading(int peer, const RemoteBuffer& target, uint64_t offset,
                                                 uint64_t bytes) {
    (void)peer, (void)target, (void)offset, (void)bytes;
    return nullptr;
  }

  /// Null where the transport knows host memory only.
  virtual GpuDirect* gpu_direct() { return nullptr; }

  /// Moves things along: delivers what has arrived to `sink`, continues what is under way. Returns how many
  /// events there were; 0 means that nothing happened.
  virtual Result<int> poll(Sink& sink) = 0;

  /// Sleeping. The engine calls prepare_sleep() on each transport, sleeps on all their descriptors if every
  /// one said true, and then calls finish_sleep() on each. False means that something is there already: poll
  /// again.
  virtual bool prepare_sleep() = 0;
  virtual void finish_sleep() = 0;
  /// Adds the descriptors to watch (level-triggered, readable) to an epoll instance once, when the context is
  /// made. A transport whose set of descriptors changes adds an epoll instance of its own.
  virtual Status watch(int epoll_fd) = 0;

  virtual Counters counters() const = 0;
};

}  // namespace weft::transport
