// A plan: what one rank does for one collective, as plain data. Generators (one file an algorithm) make plans, the
// verifier proves them, model/ simulates them, engine/ executes them. Nothing here knows of threads or sockets.
//
// Vocabulary
//   region   bytes of a named buffer of a rank: (rank, space, offset).
//   space    input and output are the caller's buffers, scratch is `scratch_bytes` of the library's own memory.
//   lane     steps of one lane are started in order; lanes run side by side. `after` adds dependencies across lanes.
//   tag      names one notification of an ordered pair of ranks. For every ordered pair (a → b) the tags that a
//            uses towards b are 0, 1, 2, … without gaps, each in exactly one put or signal of a and in exactly one
//            wait of b. Notifications may arrive in any order: nothing relies on the fabric's.
//   expose   a signal may carry the handle of one of the sender's own spaces. Whoever has waited for it may from then
//            on put into that space, and a rank of the same node may also read it (copy and reduce sources).
//            The owner must learn, by a later wait, that others are done before its plan ends.
//
// The five kinds of step, and when each counts as done
//   put      writes `bytes` from an own region into a region of `peer`, then notifies (peer, tag). Asynchronous: its
//            lane goes on once it is started. A step that overwrites the source must name the put in `after`;
//            then it waits until the source may be reused. Up to Limits::eager bytes it needs no exposed target: the
//            receiver files it. Above that, `dst`'s space must have been exposed by the peer and waited for here.
//   signal   notifies (peer, tag), optionally exposing a space. Ordered after all earlier steps of its lane that are
//            not puts, and after what `after` names.
//   wait     done when the notification (peer, tag) has arrived, with its data in place.
//   copy     dst (own) = src (own or exposed by a rank of the same node).
//   reduce   dst (own) = op over all sources, in the order given. `bytes` is a multiple of the element. `final` marks
//            the step that makes an element's last value: there avg divides. Every output element passes through
//            exactly one final reduce.
// A plan is done when all its steps are, including the puts' sources being reusable.
//
// In place means that input and output are the same memory at the offset the C API says; every plan must be correct
// both ways. A copy onto itself costs nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/types.h"
#include "topology/layout.h"

namespace weft::plan {

enum class Collective : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  send,  // point to point: `peer` is the receiver; the receiver runs `recv` with `peer` the sender
  recv,
};
inline constexpr int kCollectives = 10;
const char* name_of(Collective collective);  // "AllReduce", …
bool reduces(Collective collective);

/// What is asked: the same value on every rank, except for send and recv.
struct Request {
  Collective collective = Collective::all_reduce;
  uint64_t count = 0;  // as in the C call: sendcount of AllGather and Gather, recvcount of ReduceScatter and Scatter,
                       // elements per peer for AlltoAll, all elements otherwise
  uint32_t element_bytes = 4;
  int root = 0;         // of broadcast, reduce, gather, scatter; the peer of send and recv
  bool strict = false;  // reductions add raw contributions in the canonical tree over rank numbers, whatever the rest

  uint64_t bytes() const { return count * element_bytes; }
  friend bool operator==(const Request&, const Request&) = default;
};

/// Sizes of a rank's caller buffers for a request; 0 where the rank has none (a non-root's gather output).
uint64_t input_bytes(const Request& request, int ranks, int rank);
uint64_t output_bytes(const Request& request, int ranks, int rank);
/// Where `input` starts inside `output` (or, for reduce_scatter and scatter, `output` inside `input`) when the call is
/// in place: rank × count for all_gather, gather, reduce_scatter, scatter, else 0.
uint64_t in_place_offset(const Request& request, int rank);

/// What the transports below will take; the tuner sets them.
struct Limits {
  uint64_t eager_intra_bytes = 8 << 10;   // largest put without an exposed target, to a rank of the same node
  uint64_t eager_inter_bytes = 16 << 10;  // … to another node
  uint64_t slice_bytes = 512 << 10;       // how long data is cut so that hops pipeline
  uint64_t eager_bytes(bool same_node) const { return same_node ? eager_intra_bytes : eager_inter_bytes; }
};

enum class Space : uint8_t { input, output, scratch, none };
enum class StepKind : uint8_t { put, signal, wait, copy, reduce };

struct Region {
  int32_t rank = 0;
  Space space = Space::none;
  uint64_t offset = 0;  // bytes
};

using StepId = uint32_t;

struct Step {
  StepKind kind = StepKind::copy;
  Space exposes = Space::none;  // signal: the own space it exposes; wait: the peer's space that it thereby learns
  bool final = false;           // reduce only
  uint16_t lane = 0;
  uint32_t tag = 0;      // put, signal, wait
  int32_t peer = -1;     // put, signal, wait
  uint64_t bytes = 0;    // put, copy, reduce
  Region dst;            // put (at `peer`), copy, reduce (own)
  uint32_t sources = 0;  // first of `source_count` regions in Plan::regions; put and copy have one
  uint32_t source_count = 0;
  uint32_t after = 0;  // first of `after_count` step ids in Plan::dependencies
  uint32_t after_count = 0;
};

struct Plan {
  std::string_view algorithm;  // static storage: the generator's name
  Request request;
  int rank = 0;
  int ranks = 1;
  uint64_t scratch_bytes = 0;
  std::vector<Step> steps;  // any order that respects lanes; ids are positions
  std::vector<Region> regions;
  std::vector<StepId> dependencies;

  // Derived by Builder::finish(), so that executing needs no search:
  std::vector<StepId> lane_steps;     // the ids of lane 0's steps, then lane 1's, …
  std::vector<uint32_t> lane_begin;   // lanes + 1 positions in lane_steps
  std::vector<uint32_t> wait_begin;   // ranks + 1: notification (p, t) to this rank has number wait_begin[p] + t
  bool has_dependents = false;        // any step names another in `after`

  int lanes() const { return static_cast<int>(lane_begin.size()) - 1; }
  uint32_t notifications() const { return wait_begin.back(); }
  std::span<const Region> sources_of(const Step& step) const { return {regions.data() + step.sources, step.source_count}; }
  std::span<const StepId> after(const Step& step) const { return {dependencies.data() + step.after, step.after_count}; }
};

/// Makes a plan step by step. Tags are numbered by the builder on the sending side only if the generator asks for it
/// with `next_tag`; most generators compute tags from the schedule, since both ends must agree.
///
/// Invariant: after finish() the builder is empty.
class Builder {
 public:
  Builder(std::string_view algorithm, const Request& request, int ranks, int rank);

  int rank() const { return plan_.rank; }
  Region input(uint64_t offset = 0) const { return {plan_.rank, Space::input, offset}; }
  Region output(uint64_t offset = 0) const { return {plan_.rank, Space::output, offset}; }
  Region scratch(uint64_t offset = 0) const { return {plan_.rank, Space::scratch, offset}; }
  /// Reserves `bytes` of own scratch, 64-byte aligned; returns the offset.
  uint64_t reserve(uint64_t bytes);

  StepId put(int lane, int peer, Region src, Region dst, uint64_t bytes, uint32_t tag, std::span<const StepId> after = {});
  StepId signal(int lane, int peer, uint32_t tag, Space exposes = Space::none, std::span<const StepId> after = {});
  StepId wait(int lane, int peer, uint32_t tag, Space learns = Space::none, std::span<const StepId> after = {});
  StepId copy(int lane, Region src, Region dst, uint64_t bytes, std::span<const StepId> after = {});
  StepId reduce(int lane, std::span<const Region> sources, Region dst, uint64_t bytes, bool final,
                std::span<const StepId> after = {});

  Plan finish();

 private:
  StepId add(Step step, std::span<const Region> sources, std::span<const StepId> after);
  Plan plan_;
};

/// One algorithm: a rank-parametric generator and what a user should know of it.
struct Algorithm {
  std::string_view name;      // "one_hop", "all_to_all", "ring", …
  Collective collective;
  std::string_view sentence;  // for weft_info
  /// Whether it can do this request on this layout; the reason when it cannot.
  Status (*fits)(const Request&, const topology::Layout&, const Limits&);
  Plan (*make)(const Request&, const topology::Layout&, const Limits&, int rank);
};

/// Every algorithm the library has.
std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(Collective collective, std::string_view name);

/// A readable listing, a line a step.
std::string to_string(const Plan& plan);

}  // namespace weft::plan
