// EndedCommunicators: a record of the communicators that this rank has destroyed or aborted. The rank uses
// the record to recognize late messages, and to answer peers that wait for a call that will never come.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "engine/context/context_lock.h"
#include "engine/run/comm_operations.h"
#include "engine/run/operation.h"

namespace weft::engine {

class EndedCommunicators {
 public:
  void add(const Communicator& comm) WEFT_REQUIRES(context_lock);
  bool contain(uint32_t comm) const { return calls_.contains(comm); }
  /// Whether a communicator has ended without a call of operation `number`. Rank `from` of the job asks.
  /// False for puts, which need no call on this rank.
  bool lack(uint32_t comm, OpNumber number, int from) const;

 private:
  struct Calls {
    OpNumber last_collective = 0;
    std::map<int, Transfers> transfers;  // by rank of the job; ranks without transfers are not in it
  };
  std::unordered_map<uint32_t, Calls> calls_;  // by communicator
};

}  // namespace weft::engine
