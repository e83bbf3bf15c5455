// LandingGrant: a connection's share of the memory in which messages wait that come before their receive. All
// shares of the process together stay within WEFT_EARLY_BYTES.
//
// Thread safety: granting and giving back from any threads; a grant belongs to one.
#pragma once

#include <cstddef>
#include <utility>

namespace weft::nccl_net {

class LandingGrant {
 public:
  /// Grants what serves a connection whose longest such message has `blind_bytes`, while there is plenty.
  /// The more connections have their shares already, the less it grants, and at last nothing. Then every
  /// message waits for its receive.
  static LandingGrant take(size_t blind_bytes);
  LandingGrant(LandingGrant&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  ~LandingGrant();
  size_t bytes() const { return bytes_; }

 private:
  explicit LandingGrant(size_t bytes) : bytes_(bytes) {}
  size_t bytes_;
};

}  // namespace weft::nccl_net
