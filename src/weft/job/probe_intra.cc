#include "job/probe_intra.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::job {
namespace {

constexpr size_t kEagerProbe = 16 << 10;
// Lengths of reads: one that shows the cost of the system call, and ones inside and beyond the caches.
constexpr size_t kShortRead = 64, kCachedRead = 256 << 10, kLargeRead = 16 << 20, kReducedPiece = 128 << 10;

}  // namespace

/// The median time of a read of the peer's memory while the peer reads this rank's.
Result<double> IntraProbe::read_us(std::byte* into, const Reads& reads) {
  WEFT_TRY(meet());
  std::vector<double> durations;
  for (int i = 0; i <= reads.times; ++i) {
    double writing_us = 0;
    if (reads.own != nullptr) {
      const int64_t begin = now_ns();
      std::memset(reads.own, i, reads.bytes);
      writing_us = us_since(begin);
      WEFT_TRY(meet());
    }
    const int64_t begin = now_ns();
    {
      engine::Lock lock = context_.lock();
      const size_t at = reads.span_bytes == 0 ? 0 : static_cast<size_t>(i) * reads.bytes % reads.span_bytes;
      const engine::AccessGuard guard(context_.workspace().accessor());
      if (!guard.admitted(gate_.get())) return fail(Code::remote_error, "rank {} has given up", peer_);
      WEFT_TRY(transport_.peer_mapping()->read(peer_, inbox_.exposed_, at, into, reads.bytes));
    }
    if (i > 0) durations.push_back(writing_us + us_since(begin));
    if (reads.own != nullptr) WEFT_TRY(meet());
  }
  return std::max(model::median(durations), 1e-3);
}

Status IntraProbe::measure_reads(model::Memory* memory) {
  if (!transport_.peer_mapping()->reads_peers()) {
    // Long data is copied into a window that peers map, and out of it.
    if (memory != nullptr) {
      memory->peer_cached = memory->copy_cached / 2;
      memory->peer_written = memory->peer_cached;
      memory->peer_large = memory->copy_large / 2;
      memory->peer_reduced = memory->peer_large;
      memory->peer_us = 0.1;
    }
    return {};
  }
  Exposed ours(*this, kLargeRead);
  std::vector<std::byte> theirs(kLargeRead, std::byte{2});
  WEFT_TRY(ours.exchange());
  const Result<double> little = read_us(theirs.data(), {.bytes = kShortRead, .times = 60});
  if (!little.ok()) return little.status();
  const Result<double> cached = read_us(theirs.data(), {.bytes = kCachedRead, .times = 30});
  if (!cached.ok()) return cached.status();
  const Result<double> written =
      read_us(theirs.data(), {.bytes = kCachedRead, .times = 30, .own = ours.data()});
  if (!written.ok()) return written.status();
  const Result<double> large = read_us(theirs.data(), {.bytes = kLargeRead, .times = 3});
  if (!large.ok()) return large.status();
  const Result<double> pieces =
      read_us(theirs.data(), {.bytes = kReducedPiece, .times = 60, .span_bytes = kLargeRead});
  if (!pieces.ok()) return pieces.status();
  // A rank must not free its memory while the other reads it.
  WEFT_TRY(meet());
  ours.take_back();
  if (memory == nullptr) return {};
  const model::Memory stated = *memory;
  const double rate = kCachedRead / std::max(*cached - *little, 1e-3);
  memory->peer_cached = model::plausible(rate, stated.peer_cached);
  memory->peer_us = std::clamp(*little, 0.1, 50.0);
  // The cost of writing alone is charged as a copy.
  const double own_us = kCachedRead / memory->copy_cached;
  memory->peer_written = std::min(
      model::plausible(kCachedRead / std::max(*written - *little - own_us, 1e-3), stated.mapped_cached),
      memory->peer_cached);
  memory->peer_large =
      std::min(model::plausible(kLargeRead / *large, stated.peer_large), memory->peer_cached);
  memory->peer_reduced =
      std::clamp(model::plausible(kReducedPiece / std::max(*pieces - *little, 1e-3), stated.peer_reduced),
                 memory->peer_large, memory->peer_cached);
  return {};
}

/// The median time that both ranks together take to hand a piece over through mapped memory. One rank writes
/// it into the other's window, `theirs`, and the other copies it out. Both directions run at the same time.
Result<double> IntraProbe::hand_over_us(std::byte* window, std::byte* theirs, const Pieces& pieces) {
  const auto [bytes, span, times] = pieces;
  std::vector<std::byte> from(span, std::byte{1}), into(span, std::byte{2});
  const int warm = static_cast<int>(span / bytes);  // scratch is used many times, so its pages are mapped
  std::vector<double> durations;
  for (int i = 0; i < warm + times; ++i) {
    const size_t at = static_cast<size_t>(i) * bytes % span;
    if (span == bytes) std::memset(from.data(), i, bytes);  // programs send data that they have just written
    WEFT_TRY(meet());
    const int64_t begin = now_ns();
    {
      const engine::Lock lock = context_.lock();
      const engine::AccessGuard guard(context_.workspace().accessor());
      if (!guard.admitted(gate_.get())) return fail(Code::remote_error, "rank {} has given up", peer_);
      std::memcpy(theirs + at, from.data() + at, bytes);
    }
    const double putting_us = us_since(begin);
    WEFT_TRY(meet());
    const int64_t there = now_ns();
    std::memcpy(into.data() + at, window + at, bytes);
    if (i >= warm) durations.push_back(putting_us + us_since(there));
  }
  return std::max(model::median(durations), 1e-3);
}

/// If there is no memory, or a rank cannot map the other's, the stated rates stay.
Status IntraProbe::measure_mapped(model::Memory* memory) {
  Exposed ours(*this, kLargeRead, Exposed::In::window);
  Result<bool> can = both(ours.data() != nullptr);
  if (!can.ok() || !*can) return can.status();
  WEFT_TRY(ours.exchange());
  transport::MappedBuffer theirs;
  {
    const engine::Lock lock = context_.lock();
    theirs = transport_.peer_mapping()->map(peer_, inbox_.exposed_);
  }
  can = both(theirs.address != nullptr);
  if (!can.ok()) return can.status();
  if (*can) WEFT_TRY(measure_slices(ours.data(), theirs.address, memory));
  WEFT_TRY(meet());
  ours.take_back();
  return {};
}

Status IntraProbe::measure_slices(std::byte* window, std::byte* theirs, model::Memory* memory) {
  // An operation puts slices. Beyond the caches, every slice is at another place.
  constexpr size_t kSlice = 512 << 10;
  const auto measure = [&](double* rate, double copied, size_t piece, size_t span) -> Status {
    const Result<double> us = hand_over_us(window, theirs, {.bytes = piece, .span_bytes = span, .times = 31});
    if (!us.ok()) return us.status();
    // The owner's copy out of its window is charged as a copy.
    const auto bytes = static_cast<double>(piece);
    if (rate != nullptr) *rate = model::plausible(bytes / std::max(*us - bytes / copied, *us / 3), *rate);
    return {};
  };
  model::Memory to_nobody;
  model::Memory& into = memory != nullptr ? *memory : to_nobody;
  const auto [cached, large] = std::pair(into.copy_cached, into.copy_large);
  into.mapped_near = into.mapped_cached;  // what is plausible
  WEFT_TRY(measure(&into.mapped_near, cached, model::kMappedNear, model::kMappedNear));
  WEFT_TRY(measure(&into.mapped_cached, cached, model::kMappedCached, model::kMappedCached));
  WEFT_TRY(measure(&into.mapped_large, large, kSlice, model::kMappedLarge));
  into.mapped_large = std::min(into.mapped_large, into.mapped_cached);
  return {};
}

Status IntraProbe::measure(model::Machine* machine) {
  model::Link* const link = machine ? &machine->intra : nullptr;
  WEFT_TRY(measure_messages(link, 2000, 0.02));
  const size_t bytes = std::min(kEagerProbe, transport_.eager_bytes());
  const Result<double> exchange = message_us(bytes, 500, 0.02, Way::both);
  if (!exchange.ok()) return exchange.status();
  if (link != nullptr) {
    // Copied into the FIFO and out of it.
    const double moving = std::max(*exchange - link->alpha_us - 2 * link->overhead_us, 1e-3);
    link->bytes_per_us = model::plausible(2 * static_cast<double>(bytes) / moving, link->bytes_per_us);
  }
  WEFT_TRY(measure_reads(machine ? &machine->memory : nullptr));
  return measure_mapped(machine ? &machine->memory : nullptr);
}

}  // namespace weft::job
