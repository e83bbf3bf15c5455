// Endpoint: a transport, its lock, and the connections that share it. Over TCP each connection has one of its
// own, made of its sockets; over libfabric one endpoint serves all connections of a device in a context.
// It makes progress when somebody asks (poll()); there are no threads. What connections say to each other is
// theirs (sender.h, receiver.h).
//
// Messages carry the number that the connection has at the other side in Envelope::comm.
//
// Thread safety: everything but create functions, id() and blind_limit() is called with mutex() held.
// Invariants: connections are called from poll() alone: place() and arrived() while the transport is at work,
// pump() and fail() after.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory_watch.h"
#include "device/cuda/device.h"
#include "devices.h"
#include "transport/transport.h"

namespace weft::transport {
class OfiTransport;
class TcpTransport;
}  // namespace weft::transport

namespace weft::nccl_net {

/// What an endpoint calls of a connection.
class Member {
 public:
  virtual ~Member() = default;
  /// As transport::Sink's.
  virtual void* place(const transport::Envelope& envelope) = 0;
  virtual void arrived(const transport::Envelope& envelope, const void* payload) = 0;
  virtual bool expects(const transport::Envelope& envelope) const = 0;
  /// Goes on with what had to wait.
  virtual void pump() = 0;
  /// Nothing will come or go any more.
  virtual void fail(const Status& why) = 0;
  /// Looks whether the other side has closed the connection or died, and fails it then.
  virtual void look_at_peer() = 0;
  /// Whether the address lies in host memory that NCCL has registered.
  virtual bool has_registered(const void* address) const = 0;
  /// Some memory is not there any more (MemoryWatch::lost()), perhaps of that.
  virtual void memory_lost() = 0;
};

/// Passes when nothing has happened for a while: a peer that gets little processor time is not one that is
/// stuck. It passes after kLongest_s in any case.
class QuietDeadline {
 public:
  explicit QuietDeadline(double quiet_s)
      : quiet_s_(quiet_s), quiet_(Deadline::in_seconds(quiet_s)), end_(Deadline::in_seconds(kLongest_s)) {}
  /// To be asked after each poll. `events`: a count of what has happened.
  bool passed(uint64_t events) {
    if (std::exchange(seen_, events) != events) quiet_ = Deadline::in_seconds(quiet_s_), polls_ = 0;
    return (++polls_ > kFewestPolls && quiet_.passed()) || end_.passed();
  }

 private:
  static constexpr double kLongest_s = 10;
  static constexpr int kFewestPolls = 64;  // or else this process has had no time to look

  const double quiet_s_;
  Deadline quiet_;
  const Deadline end_;
  uint64_t seen_ = 0;
  int polls_ = 0;
};

class Endpoint final : private transport::Sink {
 public:
  /// The sides of a TCP connection, as ranks of its transport.
  static constexpr int kSenderSide = 0, kReceiverSide = 1;
  /// The number that the first connection of an endpoint gets.
  static constexpr uint32_t kFirstConnection = 1;

  /// Takes connected sockets, one a rail; the first poll() takes them over, and nothing is sent before it.
  /// Errors: system_error.
  static Result<std::shared_ptr<Endpoint>> over_tcp(int side, std::vector<UniqueFd> rails);
  /// Opens the device's domains. Errors: as OfiTransport::create().
  static Result<std::shared_ptr<Endpoint>> over_ofi(const Device& device);
  ~Endpoint() override;

  std::mutex& mutex() { return mutex_; }
  /// The longest message that this side of a connection would have come before its receive is known: what
  /// WEFT_EAGER_INTER_BYTES says, or the transport's choice.
  size_t blind_limit() const { return blind_limit_; }
  static size_t tcp_blind_limit();
  /// Whether puts need no target because the receiver says where they go, as over TCP.
  bool receiver_places() const { return tcp_ != nullptr; }
  /// Random; 0 over TCP.
  uint64_t id() const { return id_; }

  /// Over libfabric: the number here of a peer, given at the first call. Errors: unsupported when there have
  /// been too many.
  Result<int> number_of(uint64_t endpoint);
  /// Makes the peer reachable. It knows this endpoint by the number `known_as`; where that has changed, it
  /// has lost and found us.
  Status introduce(int peer, std::span<const std::byte> address, uint32_t known_as);
  std::vector<std::byte> fabric_address() const;

  /// A number for a connection with `peer`, to be given to the other side.
  uint32_t enter(Member& member, int peer);
  void leave(uint32_t connection);
  /// The connection has something that waits: pump() it at the next poll().
  void remember(uint32_t connection) { restless_.push_back(connection); }

  /// Not ok: broken, and no connection of this endpoint works any more.
  const Status& status() const { return status_; }
  transport::Transport& transport() { return *transport_; }  // only while status() is ok
  /// The transport's way to GPU memory. Only while status() is ok. Errors: unsupported, with the reason,
  /// where it moves host memory only.
  Result<transport::GpuDirect*> gpu_direct();
  /// Whether a reader that polls before a message is complete sees each aligned 128 bytes in order. Only
  /// over libfabric, while status() is ok. Errors: unsupported, with the reason.
  Status writes_in_order() const;
  /// What a thread that calls it has to be in. Only where there is such a way.
  device::cuda::Scope gpu_scope() const { return device::cuda::Scope(*gpu_); }

  /// One turn: takes in what has come, and lets connections go on.
  Status poll();
  /// A count of what polls have found.
  uint64_t events() const { return events_; }
  /// Lives while somebody touches NCCL's memory: what is found to be missing of it fails the connections that
  /// have registered it, at the end at the latest. poll() has its own.
  class Touch {
   public:
    explicit Touch(Endpoint& endpoint) : endpoint_(endpoint), watch_(owns, &endpoint) {}
    ~Touch() { endpoint_.look_for_lost_memory(); }

   private:
    Endpoint& endpoint_;
    const MemoryWatch watch_;
  };
  void look_for_lost_memory() {
    if (MemoryWatch::lost()) [[unlikely]]
      fail_lost_memory();
  }
  /// How often nobody has polled for so long that a receiver may have given up waiting for a word from here.
  /// Always 0 over TCP.
  uint32_t pauses() const;
  /// Returns once the source of a put to `peer` is not read any more, and whether all of it was sent. A put
  /// to a connection that is `closed` there is cut short. Where a transport does not give the source back in
  /// time, the endpoint is broken, which does.
  bool take_back(int peer, transport::Completion& completion, bool closed);
  /// Lets go of a put to a process that has gone.
  void forget(transport::Completion& completion);
  /// How long a receiver waits for a peer's answer. A peer that has not answered in that time has none until
  /// it answers.
  double patience_s(int peer) const;
  void answered(int peer, bool in_time);
  /// Whether pages of a buffer that is exposed can be written through another exposure, too.
  bool exposed_elsewhere(const transport::RemoteBuffer& buffer) const;
  /// Over libfabric: whether a write for the connection is known to have begun and not to be over.
  bool is_written(int peer, uint32_t connection) const;
  /// Over libfabric, when nothing more can begin to be written for the connection: returns once what had
  /// begun is over. Where it is not in time, or something may begin for all that (`reachable`), the endpoint
  /// is broken. A process that has died is an exception: after that time nothing of it is on its way.
  void finish_writes(int peer, uint32_t connection, bool reachable, const std::function<bool()>& has_died);
  /// Gives what was accepted up to `ticket` a little time to get out.
  void let_out(uint64_t ticket);

 private:
  struct Route {
    Member* member;
    int peer;
  };

  void* place(int peer, const transport::Envelope& envelope) override;
  void arrived(int peer, const transport::Envelope& envelope, const void* payload) override;
  bool expects(int peer, const transport::Envelope& envelope) const override;
  void lost(int peer, const Status& why) override;
  const Route* route(int peer, const transport::Envelope& envelope) const;
  static bool owns(const void* endpoint, const void* address);
  void fail_lost_memory();
  void look_at_peers();
  void fail_lost();
  void break_down(Status why);

  std::mutex mutex_;
  uint64_t id_ = 0;
  size_t blind_limit_ = 0;
  Status gpu_wanted_;                    // ok if the transport was opened for GPU memory
  device::cuda::Device* gpu_ = nullptr;  // for which
  Status status_;
  std::unique_ptr<transport::Transport> transport_;
  transport::OfiTransport* ofi_ = nullptr;  // inside transport_, whichever it is
  transport::TcpTransport* tcp_ = nullptr;
  std::unordered_map<uint32_t, Route> routes_;  // by number of the connection
  uint32_t last_number_ = 0;
  std::vector<uint32_t> restless_;              // connections to be pumped
  std::unordered_map<uint64_t, int> peers_;     // over libfabric: numbers by endpoint
  std::unordered_map<int, uint32_t> known_as_;  // numbers of this endpoint, by peer
  int next_peer_ = 1;                           // 0 is this endpoint itself
  std::vector<std::pair<int, Status>> losses_;  // to be told after poll()
  uint64_t events_ = 0;
  uint32_t idle_polls_ = 0;
  std::unordered_set<int> silent_;  // peers whose last answer has not come in time
  std::unordered_set<int> ended_;   // peers that have died, and of whom nothing is on its way
  int64_t polled_ns_ = 0;           // over libfabric: when, last
  uint32_t pauses_ = 0;             // that are over
};

}  // namespace weft::nccl_net
