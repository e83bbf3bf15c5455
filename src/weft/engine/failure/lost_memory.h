// LostMemory: finds the operation whose buffers its caller has freed too early (base/memory_watch.h), and
// says so.
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
  /// The error of an operation if this thread has found some of its memory missing (MemoryWatch::lost()); ok:
  /// none is.
  static Status of(const Operation& op);
  /// The communicators whose operations have lost memory, and why. Takes the substitute pages away.
  std::vector<std::pair<Communicator*, Status>> settle();

 private:
  static bool owns(const void* self, const void* address);
  void remember(const void* begin, uint64_t bytes);

  const OperationTable& operations_;
  std::vector<std::pair<const void*, uint64_t>> buffers_;  // of failed operations
};

}  // namespace weft::engine
