// Verdict: finding out who holds an operation up, and saying so by name. An operation that has made no
// progress for a while, or that received a message for a different call, asks its peers (over the bootstrap,
// on a thread of its own) what they have called; the answer becomes the error.
//
// Thread safety: the static functions need the context's lock.
#pragma once

#include <cstdint>

#include "engine/context/context_lock.h"

namespace weft::engine {

class Communicator;
class Context;
struct Operation;

class Verdict {
 public:
  /// A message from rank `from` of the communicator belongs to another call under the same operation number.
  /// It will not come again, so the inquiry waits for its turn where another is running; the operation may
  /// end meanwhile, if it needs nothing from `from`.
  static void on_mismatch(Context& context, Operation& op, int from) WEFT_REQUIRES(context_lock);
  /// The same for operation `number`, which has ended here.
  static void on_late_message(Context& context, Communicator& comm, uint32_t number, int from)
      WEFT_REQUIRES(context_lock);
  /// `op` is due for a look: past its deadline it fails with the names of those who have not arrived; before,
  /// it fails only if a peer has called something else.
  static void on_stall(Context& context, Operation& op, int64_t now) WEFT_REQUIRES(context_lock);
};

}  // namespace weft::engine
