// What the ranks of a communicator tell each other when they make something together: a short AllGather of
// the library's own, which has its place among the calls.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "engine/run/communicator.h"

namespace weft::engine {

/// What all ranks say, by rank, and then this rank's own word.
template <typename Word>
using Words = std::vector<Word>;

template <typename Word>
std::shared_ptr<Words<Word>> words_of(const Communicator& comm, const Word& own) {
  static_assert(std::is_trivially_copyable_v<Word>);
  auto words = std::make_shared<Words<Word>>(static_cast<size_t>(comm.size()) + 1);
  words->back() = own;
  return words;
}

/// Starts the exchange. With a reference.
template <typename Word>
Result<Operation*> gather_words(Communicator& comm, std::shared_ptr<Words<Word>> words, Purpose purpose)
    WEFT_REQUIRES(context_lock) {
  Call call;
  call.collective = plan::Collective::all_gather;
  call.send = &words->back();
  call.recv = words->data();
  call.count = sizeof(Word);
  call.type = device::DataType::uint8;
  call.purpose = purpose;
  return comm.begin(call, std::move(words));
}

/// Waits for its end, and releases it.
inline Status end_gathering(Lock& lock, Communicator& comm, Operation* op) WEFT_REQUIRES(context_lock) {
  const Status gathered = comm.context().waiting().result_of(lock, *op);
  comm.context().operations().release(op);
  return gathered;
}

}  // namespace weft::engine
