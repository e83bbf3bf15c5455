// The messages between the two sides of a connection, once they are connected. Pure values.
//
// Both sides count the messages of each tag, in the order in which they are posted. A message's number among
// those of its tag is its turn. Tag and turn name a message, so it does not matter in which order messages
// arrive.
// * eager: a short message with its bytes, sent whether the receive is posted or not.
// * clear: the receiver has posted receives, and gives the address of each. It goes out unasked if long
//   messages are expected, because the last one was long. Otherwise it answers an ask: at once, or together
//   with others if the sender still has clears of that tag for the next few.
// * ask: a long message waits for its clear. A sender that has not listened for long asks again although it
//   has a clear, since the receive may be gone. Its ask has a number, which the answer (a clear or a
//   withdrawal) carries.
// * put: the bytes of a message that was cleared, in place.
// * credit: the receiver has taken eager messages out. A clear says that, too.
// * refused: a message is longer than the receive that it matches, and will not come.
// * withdrawn: a receive has been taken away. The sender sends no more of its message, and that send is
//   complete, as if the other side had discarded the bytes.
// * word: the answer to that. It says whether the message still comes, because it has been sent.
//
// An eager message waits for its receive in a landing. When the sides connect, the receiver grants a number
// of messages and of bytes. So many may be in flight or in landings. Further eager messages wait for a
// credit or a clear.
//
// This cannot lock up, in whichever order tags are received. Credits that the receiver has not reported are
// less than a quarter of the grant, and a message is not longer than a quarter. So when a sender waits, more
// than half of the grant is in landings, or soon will be. From half on, the receiver clears every posted
// receive, long or short.
//
// Only puts reach GPU memory. So a message from there waits for its clear, however short it is, and asks for
// it. A receiver that has registered GPU memory says so in a clear, and from then on clears every receive
// when it is posted. A sender that has read this sends no eager message any more. Eager messages that it had
// sent before may match a receive into GPU memory; the receiver copies them there.
//
// In an Envelope, `comm` is the connection, by the number at its other side. The tag and `op`, the turn,
// name the message.
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
