// Inbox: takes in the messages of a context. It finds the operation that a message is for and the place of
// its payload. The inbox keeps messages of operations that this rank has not called yet (stash.h), and
// delivers them when the operation starts. A rank that keeps many reads little more from peers that are ahead
// of it, so that they wait.
//
// Thread safety: under the context's lock. transport::Sink is called from within Fabric::poll().
#pragma once

#include <cstdint>

#include "engine/context/context_lock.h"
#include "engine/context/ended_communicators.h"
#include "engine/context/stash.h"
#include "engine/run/operation.h"
#include "transport/transport.h"

namespace weft::engine {

class Communicator;
class Context;

/// The number of no operation: that of messages to a MessageHandler.
inline constexpr uint32_t kProbeNumber = kCollectiveMask;

/// Receives messages that are no operation's.
class MessageHandler {
 public:
  virtual ~MessageHandler() = default;
  /// As transport::Sink's.
  virtual void* place(const transport::Envelope& envelope) = 0;
  virtual void arrived(int peer, const transport::Envelope& envelope, const void* payload) = 0;
};

class Inbox final : public transport::Sink {
 public:
  explicit Inbox(Context& context);

  /// The receiver of messages with the number kProbeNumber; null: none.
  void set_handler(MessageHandler* handler) { handler_ = handler; }
  /// Whether early messages are kept.
  bool empty() const { return stash_.empty(); }
  /// Whether so many are kept that peers who send more may have to wait.
  bool keeps_many() const { return stash_.is_large(); }
  /// Delivers the early messages of an operation that starts.
  void deliver_early(Operation& op) WEFT_REQUIRES(context_lock);
  /// Takes up the puts that were announced to a communicator before it was created here.
  void note_early_puts(Communicator& comm) WEFT_REQUIRES(context_lock);
  /// Drops what is kept for a communicator that has failed.
  void drop(uint32_t comm) WEFT_REQUIRES(context_lock) { stash_.drop(comm); }
  /// The same for a communicator that is gone. Later messages for it are dropped.
  void retire(const Communicator& comm) WEFT_REQUIRES(context_lock);
  /// Communicators that are gone.
  const EndedCommunicators& ended() const { return ended_; }

  // transport::Sink
  void* place(int peer, const transport::Envelope& envelope) override WEFT_REQUIRES(context_lock);
  void arrived(int peer, const transport::Envelope& envelope, const void* payload) override
      WEFT_REQUIRES(context_lock);
  bool expects(int peer, const transport::Envelope& envelope) const override WEFT_REQUIRES(context_lock);
  bool takes_early(int peer) const override WEFT_REQUIRES(context_lock) {
    return !keeps_many() || takes_more_early(peer);
  }
  void lost(int peer, const Status& why) override WEFT_REQUIRES(context_lock);

 private:
  bool takes_more_early(int peer) const WEFT_REQUIRES(context_lock);
  void keep(int peer, const transport::Envelope& envelope, const void* payload, Communicator* known)
      WEFT_REQUIRES(context_lock);
  bool note_put(Communicator& comm, int peer, const transport::Envelope& envelope, const void* payload)
      WEFT_REQUIRES(context_lock);
  void say_half_full(const Communicator& comm, int peer, OpNumber number) WEFT_REQUIRES(context_lock);
  void deliver(Operation& op, int peer, const transport::Envelope& envelope, const void* payload)
      WEFT_REQUIRES(context_lock);
  Status file_payload(Operation& op, int from, const transport::Envelope& envelope, const void* payload);
  Result<bool> learn(Operation& op, int peer, const transport::Envelope& envelope, uint32_t number,
                     const void* payload) WEFT_REQUIRES(context_lock);

  Context& context_;
  Stash stash_;
  MessageHandler* handler_ = nullptr;
  EndedCommunicators ended_;
  bool said_half_full_ = false;  // of the stash
  int64_t early_taken_ns_ = 0;   // when an early message was kept last, of so many as to be too many
};

}  // namespace weft::engine
