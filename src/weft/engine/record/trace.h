// Trace: a timeline of operations and their steps, as JSON for Perfetto (ui.perfetto.dev), in the file that
// WEFT_TRACE names. All ranks that see that file write into it, each as a process of its own. The lowest of
// these ranks on each node starts the file afresh. Without WEFT_TRACE it costs the test of one pointer.
//
// Thread safety: under the context's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace weft::bootstrap {
class Bootstrap;
}

namespace weft::engine {

class Fabric;
struct Operation;

class Trace {
 public:
  /// The trace of this rank, or null if none is wanted. A collective where any rank of the job writes a
  /// trace.
  static Result<std::unique_ptr<Trace>> open(const Fabric& fabric, bootstrap::Bootstrap& bootstrap,
                                             Deadline deadline);
  ~Trace();

  /// An operation that has just ended.
  void operation(const Operation& op);
  /// A step of an operation that took from `begin` to now (ticks), and returns now.
  uint64_t step(const Operation& op, uint32_t lane, uint32_t step, uint64_t begin);

 private:
  Trace(UniqueFd file, int rank) : file_(std::move(file)), rank_(rank) {}
  void span(const std::string& track, const std::string& name, uint64_t begin, uint64_t end,
            const std::string& args);
  void flush();

  UniqueFd file_;
  int rank_;
  std::string text_;  // events not yet written
};

}  // namespace weft::engine
