// What the two sides of a connection say to each other, once they are connected. Pure values.
//
// Messages match in the order in which they are posted, tag by tag: both sides count, so the turn of a
// message among those with its tag names it, and the order in which anything arrives does not matter.
// * eager: a short message with its bytes, sent whether the receive is posted or not.
// * clear: the receiver has posted receives, and says where each wants its bytes. It goes out where long
//   messages are expected, since the last one was long, and else for whom asks: at once, or, while the sender
//   has clears of that tag for the next few, together with others.
// * ask: a long message waits for its clear. A sender that has not listened for long asks again for one that
//   it has, since the receive may be gone: by a number, which the answer carries, a clear or a withdrawal.
// * put: the bytes of a message that was cleared, in place.
// * credit: the receiver has taken eager messages out. A clear says that, too.
// * refused: a message is longer than the receive that it matches, and will not come.
// * withdrawn: a receive has been taken away. What has not been sent for it is not sent any more, and that
//   send is over, as if its bytes had been thrown away at the other side.
// * word: the answer to that, whether the message comes all the same, since it has been sent.
//
// What an eager message waits in for its receive is called its landing. A sender may have so many messages,
// and so many bytes of them, on their way or in landings as the receiver has granted when they met; what is
// beyond waits for a credit or a clear. That cannot lock up, in whichever order tags are received: untold
// credits are less than a quarter of the grant and a message is no longer than another, so when a sender
// waits, more than half of the grant is in landings (or there in a moment), and from half on the receiver
// clears every receive that is posted, long or short.
//
// GPU memory is reached by puts alone, so a message from there waits for its clear, however short it is, and
// asks for it. A receiver that has registered GPU memory says so in a clear, and from then on clears every
// receive as it is posted; a sender that has heard of it sends nothing blind any more. Only what was on its
// way by then may come eagerly for a receive into GPU memory, and is copied there.
//
// In an Envelope, `comm` is the connection, by the number at its other side; the tag and `op`, the turn, name
// the message.
#pragma once

#include <cstdint>

#include "transport/transport.h"

namespace weft::nccl_net {

enum class Kind : uint8_t {
  eager = 1,
  clear = 2,
  put = 3,
  credit = 4,
  refused = 5,
  ask = 6,
  withdrawn = 7,
  word = 8
};

/// Eager messages on their way, or in landings, on one connection.
inline constexpr uint64_t kEagerWindow = 256;
/// Of the bytes that are granted for landings, what one message may have.
inline constexpr size_t kMessagesInGrant = 4;
/// Receives in a group.
inline constexpr int kMostReceives = 8;
/// Longest message, bytes: NCCL cuts what is longer.
inline constexpr size_t kLongestMessage = size_t{1} << 30;

/// Of eager messages, since the beginning.
struct EagerCount {
  uint64_t messages = 0;
  uint64_t bytes = 0;

  void add(size_t message_bytes) { ++messages, bytes += message_bytes; }
};

/// The payload of an ask, and of a withdrawal that answers one; 0: none.
using AskNumber = uint32_t;

struct ClearHeader {
  EagerCount consumed;
  uint32_t count = 0;            // of Clears that follow
  uint32_t all_are_cleared = 0;  // 1: from now on every receive is; nothing is to come before its clear
  AskNumber asked = 0;           // the last ask that had come when this was sent: a clear may come late
  uint32_t unused = 0;
};
struct Clear {
  int32_t tag = 0;
  uint32_t turn = 0;
  uint32_t host = 1;               // 0: in GPU memory, which only puts reach
  uint32_t answers = 0;            // the number of the ask, 0: none
  transport::RemoteBuffer target;  // as long as the receive
};
/// The payload of a word.
enum class Fate : uint32_t { comes = 1, stays = 2 };
inline constexpr size_t kLongestControl = sizeof(ClearHeader) + kMostReceives * sizeof(Clear);

/// Names a message among all of its connection that are under way.
inline uint64_t name_of(int tag, uint32_t turn) { return uint64_t{static_cast<uint32_t>(tag)} << 32 | turn; }
inline uint64_t name_of(const transport::Envelope& envelope) {
  return name_of(static_cast<int>(envelope.tag()), envelope.op);
}

}  // namespace weft::nccl_net
