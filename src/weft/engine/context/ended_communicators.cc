#include "engine/context/ended_communicators.h"

#include "engine/run/communicator.h"

namespace weft::engine {

void EndedCommunicators::add(const Communicator& comm) {
  Calls& calls = calls_[comm.id()];
  calls.last_collective = comm.operations().last_collective();
  for (int peer = 0; peer < comm.size(); ++peer)
    if (const Transfers& transfers = comm.operations().transfers(peer); transfers.any())
      calls.transfers[comm.members().world_rank(peer)] = transfers;
}

bool EndedCommunicators::lack(uint32_t comm, OpNumber number, int from) const {
  const auto found = calls_.find(comm);
  if (found == calls_.end() || (number & kPutBit)) return false;
  const Calls& calls = found->second;
  if (!(number & kTransferBit)) return comes_after(number, calls.last_collective);
  const auto transfers = calls.transfers.find(from);
  return transfers == calls.transfers.end() || transfers->second.lack(number);
}

}  // namespace weft::engine
