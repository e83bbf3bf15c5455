#include "landing.h"

#include <algorithm>
#include <mutex>

#include "base/fork.h"
#include "base/settings.h"
#include "wire.h"

namespace weft::nccl_net {
namespace {

constexpr size_t kUsefulBytes = 32 << 10;  // less serves nobody
constexpr size_t kPlentyBytes = 4 << 20;   // a credit for each MiB; more brings nothing
constexpr size_t kShare = 8;               // the part of what is left that one connection may get

ForkSafeMutex mutex;
size_t granted = 0;  // by the process, guarded by `mutex`

}  // namespace

LandingGrant LandingGrant::take(size_t blind_bytes) {
  const std::lock_guard lock(mutex);
  const size_t left = static_cast<size_t>(settings().early_bytes) - granted;
  if (left < kUsefulBytes) return LandingGrant(0);
  const size_t wanted = std::max(kPlentyBytes, kMessagesInGrant * blind_bytes);
  const size_t bytes = std::max(kUsefulBytes, std::min(wanted, left / kShare));
  granted += bytes;
  return LandingGrant(bytes);
}

LandingGrant::~LandingGrant() {
  const std::lock_guard lock(mutex);
  granted -= bytes_;
}

}  // namespace weft::nccl_net
