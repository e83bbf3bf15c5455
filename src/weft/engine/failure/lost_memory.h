// LostMemory: finds the operations whose buffers were freed while in use (base/memory_watch.h), and makes
// their errors.
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

  /// Watches, on this thread, the buffers of active operations. It also watches buffers of failed operations,
  /// which transports may still access.
  MemoryWatch watch() const { return {owns, this}; }
  /// The error of an operation if this thread has found some of its memory missing (MemoryWatch::lost()),
  /// otherwise ok.
  static Status of(const Operation& op);
  /// The communicators whose operations have lost memory, and why. Unmaps the substitute pages.
  std::vector<std::pair<Communicator*, Status>> settle();

 private:
  static bool owns(const void* self, const void* address);
  void remember(const void* begin, uint64_t bytes);

  const OperationTable& operations_;
  std::vector<std::pair<const void*, uint64_t>> buffers_;  // of failed operations
};

}  // namespace weft::engine
