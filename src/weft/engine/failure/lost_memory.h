// LostMemory: callers' buffers that were freed while an operation used them (base/memory_watch.h): whose they
// were, and the sentence that says so.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/memory_watch.h"
#include "base/status.h"

namespace weft::engine {

class Communicator;
class OperationTable;
struct Operation;

class LostMemory {
 public:
  explicit LostMemory(const OperationTable& operations) : operations_(operations) {}

  /// Watches, on this thread, the buffers of active operations, and those of failed ones that transports may
  /// still touch.
  MemoryWatch watch() const { return {owns, this}; }
  /// What is wrong with an operation some of whose memory this thread has found missing
  /// (MemoryWatch::lost()); ok: none of it is.
  static Status of(const Operation& op);
  /// The communicators whose operations have lost memory, and why; the pages go again.
  std::vector<std::pair<Communicator*, Status>> settle();

 private:
  static bool owns(const void* self, const void* address);
  void remember(const void* begin, uint64_t bytes);

  const OperationTable& operations_;
  std::vector<std::pair<const void*, uint64_t>> buffers_;  // of failed operations
};

}  // namespace weft::engine
