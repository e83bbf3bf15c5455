// Connection: what a sender and a receiver have in common: their endpoint, their registrations, their
// requests, and small messages that wait for room. It is what NCCL holds as a comm.
//
// Thread safety: every public function but those of Member, which are the endpoint's to call. Each takes the
// endpoint's lock.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "abi.h"
#include "base/fork.h"
#include "endpoint.h"
#include "handle.h"
#include "peer_watch.h"
#include "wire.h"

namespace weft::nccl_net {

class Connection;

/// How long what the other side has said to come is waited for, once nothing else comes either.
inline constexpr double kArrival_s = 2;

/// A dma-buf, in which some GPU memory begins at `offset`.
struct DmaBuf {
  int fd = -1;
  uint64_t offset = 0;
};

/// A registration.
struct Memory {
  std::byte* address = nullptr;
  size_t bytes = 0;
  int gpu = -1;             // the CUDA device whose memory it is, which no CPU touches; -1: host memory
  uint64_t gpu_buffer = 0;  // the driver's number of that memory, where it begins; used once
  transport::RemoteBuffer exposed;

  bool holds(const void* data, size_t length) const {
    const auto offset = reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(address);
    return offset <= bytes && length <= bytes - offset;
  }
};

/// A send, or a group of receives, from its start until test() has told of its end.
struct Request {
  struct Part {
    std::byte* data = nullptr;
    size_t capacity = 0;  // of the receive; of a send, its size
    size_t bytes = 0;     // that came
    int tag = 0;
    uint32_t turn = 0;
    const Memory* memory = nullptr;
    bool done = false;

    bool of_gpu() const { return memory && memory->gpu >= 0; }
  };
  Connection* owner = nullptr;
  Status failure;
  bool withdrawn = false;         // by deregister()
  bool other_side_first = false;  // is to be told of the failure: nobody may poll any more once this is over
  int count = 1;
  int open = 1;  // parts that are not done
  std::array<Part, kMostReceives> parts;
  transport::Completion put;  // of a send
  uint64_t ticket = 0;        // of a send, which is complete once this is flushed, too
  int64_t ask_at_ns = 0;      // of a send: to be asked for then, 0 = not, or not any more

  const Part& only() const { return parts.front(); }
  /// For its next use. Of its parts only those that it had are made new, for that is felt in short messages.
  void renew(Connection& by) {
    std::fill_n(parts.begin(), count, Part{});
    owner = &by;
    failure = {};
    withdrawn = other_side_first = false;
    count = open = 1;
    put = {};
    ticket = 0;
    ask_at_ns = 0;
  }
};

/// How both sides of a connection came to know each other.
struct Introduction {
  std::shared_ptr<Endpoint> endpoint;
  int peer = -1;          // of the endpoint
  std::string peer_name;  // for messages
};

class Connection : public Member {
 public:
  Connection(const Connection&) = delete;
  ~Connection() override;

  /// The number by which the other side addresses this one.
  uint32_t number() const { return number_; }
  const Ownership& ownership() const { return ownership_; }
  /// The other side is there, with this number, and these are the terms.
  /// `handshake`: the socket of the handshake, open for as long as both sides have the connection.
  void begin(uint32_t remote_number, const Terms& terms, UniqueFd handshake);

  /// Memory of `type`, kHostMemory or kCudaMemory; of the latter, `file` may be the dma-buf that it is
  /// registered by. A connection that the other side has closed takes memory all the same, since NCCL may be
  /// in the middle of posting. Errors: unsupported for memory that the device cannot reach, invalid_pointer
  /// for what is not of that type, system_error, or what broke the endpoint.
  Result<Memory*> register_memory(void* data, size_t bytes, int type, const DmaBuf* file = nullptr);
  /// Ends every request that uses the memory: after this it is neither read nor written. Errors:
  /// invalid_argument for what was not registered here.
  Status deregister(Memory* memory);

  /// Whether the request is over. If so it is gone, `sizes` has the bytes of every part, and the status is
  /// the request's.
  Result<bool> test(Request& request, int* sizes);

 protected:
  explicit Connection(Introduction introduction, size_t requests);
  /// Takes the connection apart, with requests in flight or not. The derived class's destructor calls it.
  void close(bool let_out);

  // With the lock held:
  transport::Transport& transport() { return endpoint_->transport(); }
  Endpoint& endpoint() { return *endpoint_; }
  const Terms& terms() const { return terms_; }
  const Status& failure() const { return failure_; }
  /// Memory of a GPU has been registered.
  virtual void gpu_memory_came() {}
  Status check_memory(const void* data, size_t bytes, const void* memory) const;
  int peer() const { return peer_; }
  Request* take_request();
  void give_back(Request& request) { request.owner = nullptr, free_.push_back(&request); }
  bool in_use(const Request& request) const { return request.owner != nullptr; }
  /// Ends a request with an error; to be told by test().
  void end(Request& request, const Status& why);
  transport::Envelope envelope(Kind kind, int tag = 0, uint32_t turn = 0) const;
  /// The other side is there.
  virtual void begun() {}
  /// Queues a small message, for the next poll(): nothing is sent from inside of the transport's poll().
  void post(const transport::Envelope& envelope, const void* payload, size_t bytes);
  /// Whether all that was posted is on its way, and nothing has to be polled for.
  bool all_is_said() { return controls_.empty() && transport().flushed(said_); }
  std::deque<Request>& requests() { return requests_; }

  /// Takes a request out of what waits and is under way, whatever it is at, so that its memory is left alone.
  virtual void withdraw(Request& request) = 0;
  /// Ends the memory's exposure. When it returns, nobody writes into it any more.
  virtual void vacate(const Memory& memory) { unexpose(memory); }
  void unexpose(const Memory& memory);
  /// All of it has happened, and nothing has to be polled for any more.
  virtual bool complete(Request& request) = 0;

  void pump() final;
  /// Sends what waits, in a turn of the endpoint's or at once. What finds no room is remembered.
  virtual void go_on();
  void fail(const Status& why) override;
  /// Fails for a mistake of NCCL's: nothing is begun any more, but the other side is there, so that what has
  /// been begun is taken back as it is otherwise.
  void give_up(const Status& why);
  /// Whether the process on the other side is not there, or the network does not reach it.
  bool gone() const { return gone_; }
  /// Whether the other side has closed the connection, as far as it was looked at: it begins nothing more,
  /// and hears nothing.
  bool closed_there() const { return peer_watch_.last_seen() == PeerWatch::Peer::closed; }
  bool hears() const { return !gone_ && !closed_there(); }
  PeerWatch::Peer watch_peer() { return peer_watch_.look(); }
  /// How many messages the other side has sent in all. Only once it has closed the connection.
  uint64_t messages_sent_there() const { return peer_watch_.messages(); }
  /// Whether nothing that the other side has sent before it closed the connection is still to come.
  virtual bool everything_came() const { return closed_there(); }
  /// How many messages this side has sent.
  virtual uint64_t messages_sent() const { return 0; }
  void look_at_peer() override;
  bool has_registered(const void* address) const override;
  void memory_lost() override;

  /// Whether what the other side sent before it left is not waited for any more.
  bool waited_enough();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(endpoint_->mutex()); }
  void remember_me();

 private:
  Result<Memory> expose_host(void* data, size_t bytes);
  Result<Memory> expose_gpu(void* data, size_t bytes, const DmaBuf* file);

  struct Control {
    transport::Envelope envelope;
    std::vector<std::byte> payload;
  };

  const Ownership ownership_;
  std::shared_ptr<Endpoint> endpoint_;  // for good
  const int peer_;
  PeerWatch peer_watch_;
  std::optional<QuietDeadline> arrival_;  // of what was sent before the other side closed
  const std::string peer_name_;
  Status failure_;
  bool gone_ = false;
  std::deque<Request> requests_;  // all there ever are
  std::vector<Request*> free_;
  std::unordered_set<Memory*> memories_;
  const uint32_t number_;  // last of what the endpoint may ask for: from then on it does
  uint32_t remote_number_ = 0;
  Terms terms_;
  std::deque<Control> controls_;  // in order
  uint64_t said_ = 0;             // ticket of the last one that was accepted
  bool remembered_ = false;
};

}  // namespace weft::nccl_net
