// A plan: what one rank does for one collective, as plain data. Generators (one file an algorithm) make
// plans, the verifier proves them, model/ simulates them, engine/ executes them. Nothing here knows of
// threads or sockets.
//
// Vocabulary
//   region   bytes of a named buffer of a rank: (rank, space, offset).
//   space    input and output are the caller's buffers, scratch is `scratch_bytes` of the library's own
//            memory. Nobody writes to an input by that name (in place, the output's name reaches it).
//   lane     steps of one lane are started in order; lanes run side by side. `after` adds dependencies
//            across lanes. An executor is fair: after a copy or a reduce of one lane it looks at the others
//            before it goes on, which is what makes the phases of a sliced plan overlap.
//   tag      names one notification of an ordered pair of different ranks. For every ordered pair (a → b)
//            the tags that a uses towards b are 0, 1, 2, … without gaps, each in exactly one put or signal
//            of a and in exactly one wait of b. Notifications may arrive in any order: nothing relies on
//            the fabric's.
//   expose   a signal may carry the handle of one of the sender's own spaces, which must not be empty.
//            A rank that has waited for it may from then on put into that space, and on the same node it
//            may also read it (copy and reduce sources): by steps that come after that very wait, in its
//            lane or through `after`. The owner must learn, by a later wait, that others are done before
//            its plan ends.
//
// The five kinds of step, and when each counts as done
//   put      writes `bytes` (more than 0) from an own region into a region of `peer`, then notifies (peer,
//            tag). Asynchronous: its lane goes on once it is started. A step that overwrites the source
//            must name the put in `after`, or come after one that does; then it waits until the source may
//            be reused. That says nothing of the far side. The far side's wait, on the other hand, says
//            that the source has been read: whoever knows of that wait may put into the source. Up to
//            Limits::eager bytes it needs no exposed target: the receiver files it, at any moment between
//            the beginning of its own plan and its wait. Above that, `dst`'s space must have been exposed
//            by the peer and waited for here.
//   signal   notifies (peer, tag), optionally exposing a space. Ordered after all earlier steps of its lane
//            that are not puts, and after what `after` names.
//   wait     done when the notification (peer, tag) has arrived, with its data in place.
//   copy     dst (own) = src (own or exposed by a rank of the same node). They are the same bytes or
//            disjoint.
//   reduce   dst (own) = op over all sources, in the order given; dst may be one of the own sources, or is
//            disjoint from all. `bytes` and all offsets are multiples of the element. A source says how many
//            ranks' contributions it holds: an average of floats weighs it by that, so that every partial
//            value is the mean of some ranks' inputs and lies between them. A reduce is `final` if its
//            sources hold the contributions of all ranks: there an average of integers, which are added
//            until then, divides. Every output element passes through exactly one final reduce.
// A plan is done when all its steps are, including the puts' sources being reusable.
//
// In place means that input and output are the same memory at the offset the C API says; every plan must be
// correct both ways (but see Request::disjoint). A copy onto itself costs nothing. A plan for no elements
// has no steps, but for a transfer's, which is one notification.
//
// A send to oneself is no plan: the executor copies from the send's buffer to the receive's.
#pragma once

#include <cstdint>
#include <memory>
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
bool has_root(Collective collective);        // broadcast, reduce, gather, scatter
bool reduces(Collective collective);
/// Between two ranks, each of which calls another one.
constexpr bool is_transfer(Collective collective) {
  return collective == Collective::send || collective == Collective::recv;
}

struct Uneven;  // plan/uneven.h

/// What is asked: the same value on every rank, except for send and recv, and for the places of uneven
/// blocks.
struct Request {
  Collective collective = Collective::all_reduce;
  uint64_t count = 0;  // as in the C call: sendcount of AllGather and Gather, recvcount of ReduceScatter and
                       // Scatter, elements per peer for AlltoAll, all elements otherwise
  uint32_t element_bytes = 4;
  int root = 0;            // of broadcast, reduce, gather, scatter; the peer of send and recv
  bool strict = false;     // reductions add raw contributions in the canonical tree over rank numbers,
                           // whatever the rest
  bool disjoint = false;   // all_to_all: no rank calls it in place; saves the copy that in place needs. Like
                           // the rest of the request it must be the same on every rank
  bool announced = false;  // of send and recv: the sender's first message says what comes, and lets the
                           // receiver begin. Of no elements nothing else is sent

  /// Of an all_gather, reduce_scatter or all_to_all whose blocks have sizes of their own. Regions of a peer's
  /// input or output are then counted from the beginning of the block that the two ranks share.
  std::shared_ptr<const Uneven> uneven = nullptr;

  uint64_t bytes() const { return count * element_bytes; }
  friend bool operator==(const Request& a, const Request& b);
};

/// Sizes of a rank's caller buffers for a request; 0 where the rank has none (a non-root's gather output).
uint64_t input_bytes(const Request& request, int ranks, int rank);
uint64_t output_bytes(const Request& request, int ranks, int rank);
/// Where `input` starts inside `output` (or, for reduce_scatter and scatter, `output` inside `input`) when
/// the call is in place: rank × count for all_gather, gather, reduce_scatter, scatter, else 0.
uint64_t in_place_offset(const Request& request, int rank);

/// What the transports below will take, which is theirs to say, and slices, which are the tuner's.
struct Limits {
  uint64_t eager_intra_bytes = 0;  // largest put without an exposed target, to a rank of the same node
  uint64_t eager_inter_bytes = 0;  // … to another node
  uint64_t eager_incast_bytes =
      UINT64_MAX;                    // … if that is less, where messages to several nodes share the way
  uint64_t slice_bytes = 512 << 10;  // how long data is cut so that hops pipeline
  bool nic_bound =
      false;  // CPUs move data between nodes faster than interfaces carry it, and fill their queues
  uint64_t eager_bytes(bool same_node) const { return same_node ? eager_intra_bytes : eager_inter_bytes; }
};

enum class Space : uint8_t { input, output, scratch, none };
enum class StepKind : uint8_t { put, signal, wait, copy, reduce };
const char* name_of(Space space);    // "input", …
const char* name_of(StepKind kind);  // "put", …

// For a kind that they lack, these two and name_of() make the compiler warn.
/// Whether such a step sends a message to its peer.
constexpr bool sends(StepKind kind) {
  switch (kind) {
    case StepKind::put:
    case StepKind::signal: return true;
    case StepKind::wait:
    case StepKind::copy:
    case StepKind::reduce: return false;
  }
  return false;
}
/// Whether it reads bytes and writes them somewhere.
constexpr bool moves(StepKind kind) {
  switch (kind) {
    case StepKind::put:
    case StepKind::copy:
    case StepKind::reduce: return true;
    case StepKind::signal:
    case StepKind::wait: return false;
  }
  return false;
}

struct Region {
  int32_t rank = 0;
  Space space = Space::none;
  uint64_t offset = 0;  // bytes

  /// The region `bytes` further on.
  Region operator+(uint64_t bytes) const { return {rank, space, offset + bytes}; }
  friend bool operator==(const Region&, const Region&) = default;
};

/// A source of a reduce.
struct Source {
  Region region;
  uint32_t contributions = 1;  // of how many ranks there is something in it
};

using StepId = uint32_t;
inline constexpr StepId kNoStep = UINT32_MAX;  // in Builder's `after`: ignored

struct Step {
  StepKind kind = StepKind::copy;
  Space exposes = Space::none;  // signal: the own space it exposes; wait: the peer's that it thereby learns
  bool final = false;           // reduce only: its sources hold all ranks' contributions
  uint16_t lane = 0;
  uint32_t tag = 0;      // put, signal, wait
  int32_t peer = -1;     // put, signal, wait
  uint64_t bytes = 0;    // put, copy, reduce
  Region dst = {};       // put (at `peer`), copy, reduce (own)
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
  std::vector<uint32_t> contributions;  // of each region, if it is a reduce's source; else 1
  std::vector<StepId> dependencies;

  // Derived by Builder::finish(), so that executing needs no search:
  std::vector<StepId> lane_steps;    // the ids of lane 0's steps, then lane 1's, …
  std::vector<uint32_t> lane_begin;  // lanes + 1 positions in lane_steps
  std::vector<uint32_t> wait_begin;  // ranks + 1: notification (p, t) from p has number wait_begin[p] + t
  bool has_dependents = false;       // any step names another in `after`

  int lanes() const { return static_cast<int>(lane_begin.size()) - 1; }
  uint32_t notifications() const { return wait_begin.back(); }
  /// How many of them come from a rank; their tags count from 0.
  uint32_t notifications_from(int rank) const {
    return wait_begin[static_cast<size_t>(rank) + 1] - wait_begin[static_cast<size_t>(rank)];
  }
  std::span<const Region> sources_of(const Step& step) const {
    return {regions.data() + step.sources, step.source_count};
  }
  std::span<const uint32_t> contributions_of(const Step& step) const {
    return {contributions.data() + step.sources, step.source_count};
  }
  std::span<const StepId> after(const Step& step) const {
    return {dependencies.data() + step.after, step.after_count};
  }
};

/// Makes a plan step by step.
///
/// Tags: a generator may number the notifications of a pair freely, as long as both ends use the same number
/// for a notification. finish() renumbers each pair's 0, 1, 2, … in ascending order.
///
/// Empty data: a put of no bytes becomes a signal, so that notifications stay balanced. A copy or reduce of
/// no bytes, or a copy onto itself, is dropped if it has no `after`. Its id is kNoStep.
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
  /// A lane that no step has used so far: 0, if there is none yet. Lanes are below 65536.
  int new_lane() { return lanes_++; }

  StepId put(int lane, int peer, Region src, Region dst, uint64_t bytes, uint32_t tag,
             std::span<const StepId> after = {});
  StepId signal(int lane, int peer, uint32_t tag, Space exposes = Space::none,
                std::span<const StepId> after = {});
  StepId wait(int lane, int peer, uint32_t tag, Space learns = Space::none,
              std::span<const StepId> after = {});
  StepId copy(int lane, Region src, Region dst, uint64_t bytes, std::span<const StepId> after = {});
  StepId reduce(int lane, std::span<const Source> sources, Region dst, uint64_t bytes,
                std::span<const StepId> after = {});

  Plan finish();

 private:
  StepId add(Step step, int lane, std::span<const Source> sources, std::span<const StepId> after);
  Plan plan_;
  int lanes_ = 0;
};

/// One algorithm: a rank-parametric generator and what a user should know of it.
struct Algorithm {
  std::string_view name;  // "one_hop", "all_to_all", "ring", …
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
