// Incoming: the packets that have come to an endpoint. They are held back and taken in any order: messages
// into posted receives, writes into registered memory. A message without a receive waits, and with too many
// of them the mailbox is not emptied any more, so that senders wait, too.
//
// Thread safety: as its domain's.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>

#include "board.h"
#include "completions.h"
#include "domain.h"
#include "late.h"
#include "mailbox.h"

namespace weft::fake_efa {

struct Receive {
  std::byte* buffer = nullptr;
  size_t bytes = 0;
  void* context = nullptr;
};

class Incoming {
 public:
  Incoming(Domain& domain, Chance& chance, CompletionQueue& queue, int slowness)
      : domain_(domain), chance_(chance), queue_(queue), slowness_(slowness) {}
  int open(const Address& own) { return mailbox_.open(own); }
  void close() { mailbox_.close(); }

  size_t receives() const { return receives_.size(); }
  void post(const Receive& receive) { receives_.push_back(receive); }
  void progress();

 private:
  struct Packet {
    PacketHeader header;
    std::array<std::byte, kMessageBytes> payload;
  };
  using WriteName = std::pair<uint64_t, uint64_t>;  // writer; slot and generation

  void empty_mailbox();
  bool take(const Packet& packet);
  bool take_message(const Packet& packet);
  void take_write(const Packet& packet);

  Domain& domain_;
  Chance& chance_;
  CompletionQueue& queue_;
  const int slowness_;
  Mailbox mailbox_;
  Late<std::unique_ptr<Packet>> packets_;
  std::deque<Receive> receives_;
  PeerBoards boards_;
  struct Begun {
    uint32_t came = 0;
    bool refused = false;
  };
  std::map<WriteName, Begun> begun_;
};

}  // namespace weft::fake_efa
