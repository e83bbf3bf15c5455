// Receiver: the receiving end of a connection. It clears long receives as they are posted, keeps short
// messages that come before their receive in landings, and files everything by name.
//
// Invariant: landings have no more than was granted (wire.h); a sender that goes beyond is cut off.
//
// Thread safety: as Connection.
#pragma once

#include <memory>
#include <unordered_map>

#include "connection.h"
#include "landing.h"

namespace weft::nccl_net {

class Receiver final : public Connection {
 public:
  explicit Receiver(Introduction introduction);
  ~Receiver() override;

  /// Starts `count` receives, each of one message; null: no room, try again later. Errors: invalid_argument.
  /// Over a lost connection it still takes what came before.
  Result<Request*> receive(int count, void* const* data, const size_t* bytes, const int* tags,
                           void* const* memory);

  /// Returns when the GPUs see what `count` receives have brought into their memory, `bytes` each. Errors:
  /// invalid_argument for memory that is not registered here, invalid_usage for memory that was freed while
  /// it was, or what the driver says.
  Status flush(int count, void* const* data, const int* bytes, void* const* memory);

  /// What the sender is to be told that it may have in landings.
  size_t landing_bytes() const { return grant_.bytes(); }

 private:
  struct Tag {
    uint32_t next = 0;  // turn
    int cleared = 0;    // receives that are posted, and that the sender may go on with
  };
  struct Posted {
    Request* request;
    Request::Part* part;
    Tag* tag;
    bool cleared;  // or its message has begun to come
  };
  struct Taken {
    const Memory* memory;
    bool answered = false;  // the sender has said that it comes
  };
  struct Landing {
    std::unique_ptr<std::byte[]> data;
    size_t bytes = 0;
    bool whole = false;
  };

  void* place(const transport::Envelope& envelope) override;
  void arrived(const transport::Envelope& envelope, const void* payload) override;
  bool expects(const transport::Envelope& envelope) const override;
  void withdraw(Request& request) override;
  void vacate(const Memory& memory) override;
  bool complete(Request& request) override;
  bool everything_came() const override { return closed_there() && messages_came_ == messages_sent_there(); }
  void gpu_memory_came() override;

  void match(Request& request, Request::Part& part, std::vector<Clear>& clears);
  void tell(const std::vector<Clear>& clears);
  void clear_all();
  void clear_held();
  void clear(const std::vector<uint64_t>& names);
  Clear cleared(Posted& posted);
  Posted take_posted(uint64_t name);
  Posted unpost(uint64_t name);
  void asked(const transport::Envelope& envelope, const void* payload);
  bool awaited(const transport::Envelope& envelope) const;
  bool crowded() const;
  Landing* land(const transport::Envelope& envelope);
  Landing take_off(uint64_t name);
  void arrived_early(const transport::Envelope& envelope, const void* payload);
  void fill(const Posted& posted, const void* payload, size_t bytes);
  void refused(const transport::Envelope& envelope, const void* payload);
  void take_away(uint64_t name);
  void word(const transport::Envelope& envelope, const void* payload);
  void consumed(size_t bytes);

  const LandingGrant grant_;
  std::unordered_map<int, Tag> tags_;
  std::unordered_map<uint64_t, Posted> posted_;  // by name
  std::unordered_map<uint64_t, Taken> taken_;    // withdrawn, and may be written to, by name
  std::vector<uint64_t> held_;  // names of receives whose clears wait for others, or did and have gone
  std::unordered_map<uint64_t, Landing> landings_;  // by name
  size_t landed_bytes_ = 0;                         // of all landings
  // Asks for long messages whose receive is not posted yet, by name.
  std::unordered_map<uint64_t, AskNumber> asked_;
  bool long_ones_ = true;    // are expected
  bool clears_all_ = false;  // there is GPU memory to receive into
  EagerCount consumed_, told_;
  uint64_t messages_came_ = 0;  // of any kind
  bool gave_up_ = false;        // waiting for a word of a sender that was never heard
  AskNumber last_asked_ = 0;    // the greatest number of an ask
  uint64_t heard_ = 0;          // these, and what the sender says besides
};

}  // namespace weft::nccl_net
