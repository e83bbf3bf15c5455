// Verdict: finds the rank that holds an operation up, and names it in the error. It asks the peers what they
// have called, if an operation makes no progress or receives a message of a different call. A separate thread
// sends the questions over the bootstrap (inquiries.h). The error is made from the answers.
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
  /// The message comes once, so the inquiry waits while another one runs. Meanwhile the operation may end, if
  /// it needs nothing from `from`.
  static void on_mismatch(Context& context, Operation& op, int from) WEFT_REQUIRES(context_lock);
  /// The same for operation `number`, which has ended here.
  static void on_late_message(Context& context, Communicator& comm, uint32_t number, int from)
      WEFT_REQUIRES(context_lock);
  /// `op` makes no progress. Past its deadline it fails, and the error names the ranks that have not arrived.
  /// Before, it fails only if a peer has called something else, or has ended the communicator.
  static void on_stall(Context& context, Operation& op, int64_t now) WEFT_REQUIRES(context_lock);
};

}  // namespace weft::engine
