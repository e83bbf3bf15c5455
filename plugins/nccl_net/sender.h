// Sender: the sending end of a connection. A short message goes out at once, with its bytes, while the eager
// window has room; any other waits until the receiver has cleared it, and is then put in place.
//
// Thread safety: as Connection.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "connection.h"

namespace weft::nccl_net {

class Sender final : public Connection {
 public:
  explicit Sender(Introduction introduction);
  ~Sender() override;

  /// Starts a send; null: no room, try again later. `memory` is what register_memory() returned for it.
  /// Errors: invalid_argument. Over a lost connection test() reports the loss, as it does for receives.
  Result<Request*> send(const void* data, size_t bytes, int tag, const void* memory);

 private:
  void* place(const transport::Envelope&) override { return nullptr; }
  void arrived(const transport::Envelope& envelope, const void* payload) override;
  bool expects(const transport::Envelope&) const override { return true; }
  void go_on() override;
  void withdraw(Request& request) override;
  bool complete(Request& request) override;
  uint64_t messages_sent() const override { return messages_sent_; }

  bool may_send_blind(const Request::Part& part) const;
  void begun() override { heard_pauses_ = first_pauses_ = endpoint().pauses(); }
  void ask(Request& request);
  struct Cleared {
    Clear clear;
    uint32_t after = 0;        // so many of the endpoint's pauses it was said, at least
    uint32_t asked_after = 0;  // so many it was asked for again
  };
  bool is_current(Cleared& cleared);
  void heard(AskNumber answered) { heard_pauses_ = std::max(heard_pauses_, answered); }
  int64_t ask_at_ns(const Request& request) const;
  void consumed(const EagerCount& count);
  void cleared(const transport::Envelope& envelope, const void* payload);
  /// Whether it has been sent, eagerly or after its clear.
  bool has_left(int tag, uint32_t turn) const;
  void withdrawn(const transport::Envelope& envelope, const void* payload);
  void keep(Request& request);
  /// Sends now what may be sent. False: the transport has no room.
  bool start(Request& request, const Clear* clear);
  bool send_copied(Request& request, Kind kind);
  bool put(Request& request, Kind kind, const transport::RemoteBuffer& target);
  Result<transport::Progress> put_out(const Request::Part& part, const transport::Envelope& message,
                                      const transport::RemoteBuffer& target, transport::Completion* done);
  void refuse(Request& request, const Clear& clear);
  void cut(Request& request, size_t bytes);

  std::unordered_map<int, uint32_t> turns_;       // next one, by tag
  std::unordered_map<uint64_t, Cleared> clears_;  // whose send has not started, by name
  std::unordered_set<uint64_t> unsent_;  // names of messages that are never sent: taken away at either side
  std::deque<Request*> waiting_;         // to be cleared or for the window, in the order of their start
  const Request* last_ = nullptr;        // that was started
  struct Outgoing {
    int tag = 0;
    uint32_t turn = 0;
    int64_t seen_ns = 0;  // on its way out
  };
  Outgoing last_put_;
  uint64_t owed_ = 0;  // ticket that the last one to be over has to wait for
  EagerCount eager_sent_, eager_consumed_;
  uint64_t messages_sent_ = 0;            // of any kind: the receiver sees as many arrive
  uint32_t first_pauses_ = 0;             // heard_pauses_ when the connection began
  uint32_t heard_pauses_ = 0;             // of the endpoint's: the receiver has answered since
  bool all_are_cleared_ = false;          // the receiver has said so
  int puts_in_row_ = abi::kMostRequests;  // since the last eager message
};

}  // namespace weft::nccl_net
