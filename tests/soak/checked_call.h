// CheckedCall: one rank's part in a collective, with its buffers, and the check of what came out. Values are
// small whole numbers that every type holds exactly and that follow from the call's seed, so that each rank
// knows every result.
//
// Thread safety: a call belongs to one rank's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "round.h"
#include "weft/weft.h"

namespace soak {

class CheckedCall {
 public:
  /// For rank `rank` of `ranks`. Fills the input.
  CheckedCall(const Call& call, int rank, int ranks);
  ~CheckedCall();
  CheckedCall(const CheckedCall&) = delete;

  weftResult_t start(weftComm_t comm, weftStream_t stream);
  /// Once it is complete: what is wrong with the result, the input or the bytes around them; empty if nothing
  /// is.
  std::string check() const;

 private:
  struct Buffer {
    std::byte* memory = nullptr;  // `bytes` between two guards
    size_t bytes = 0;
    bool shareable = false;
    std::byte* data() const;
  };
  void allocate(Buffer& buffer, size_t bytes) const;
  static std::string check_guards(const Buffer& buffer, const char* which);
  int value(int rank, size_t index) const;
  int reduced(size_t index) const;
  int expected(size_t index) const;
  std::string check_elements(const std::byte* data, size_t first, size_t count, bool output) const;
  size_t share(int from, int to) const;
  size_t sum_of_shares(bool to_me) const;
  bool receives() const;

  const Call call_;
  const int rank_, ranks_;
  size_t element_bytes_;
  bool in_place_ = false;
  size_t send_count_ = 0, receive_count_ = 0;
  size_t own_block_ = 0;  // in place: where the smaller of both lies in the larger, in elements
  std::vector<std::vector<int>> values_;              // by rank, of a period of indices
  std::vector<size_t> send_counts_, receive_counts_;  // of the ...V calls
  Buffer send_, receive_;
};

}  // namespace soak
