#include "receiver.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "base/checked_copy.h"
#include "gpu.h"
#include "transport/lost_memory.h"

namespace weft::nccl_net {

namespace {

Status too_long(uint64_t message_bytes, const Request::Part& part) {
  return fail(Code::invalid_usage, "a message of {} bytes with tag {} came for a receive of {} bytes",
              message_bytes, part.tag, part.capacity);
}

/// The sender is told of messages that were consumed when they are this part of what it may have.
constexpr size_t kToldParts = 4;
/// From this part on, landings are crowded: no receive relies on what the sender may still have. It counts
/// what is kept here, and what it has not been told to be gone, so when it waits, that shows here (wire.h).
constexpr size_t kCrowdParts = 2;

/// While the sender may go on with so many messages of a tag, further clears wait until there are fewer, to
/// go out together: half of what NCCL has in flight.
constexpr int kClearedAhead = 4;

Clear clear_for(const Request::Part& part) {
  Clear clear;
  clear.tag = part.tag;
  clear.turn = part.turn;
  if (part.memory) clear.target = part.memory->exposed;
  clear.host = part.of_gpu() ? 0 : 1;
  clear.target.address = reinterpret_cast<uint64_t>(part.data);
  clear.target.bytes = part.capacity;
  return clear;
}

/// Whether a CPU may write `bytes` there.
bool placeable(const Request::Part& part, size_t bytes) { return bytes <= part.capacity && !part.of_gpu(); }

/// What has waited for its receive may find that NCCL has freed the memory meanwhile.
Status copy_in(const Request::Part& part, const void* payload, size_t bytes) {
  if (part.of_gpu()) return gpu::copy_in(part.memory->gpu, part.data, payload, bytes);
  const bool copied = bytes > transport::kUncheckedBytes
                          ? copy_checked(part.data, payload, bytes)
                          : (std::memcpy(part.data, payload, bytes), !MemoryWatch::lost(part.data, bytes));
  if (copied) return {};
  return fail(Code::invalid_usage,
              "a buffer was freed or unmapped while {} bytes with tag {} were received into it", bytes,
              part.tag);
}

}  // namespace

Receiver::Receiver(Introduction introduction)
    : Connection(std::move(introduction), abi::kMostRequests),
      grant_(LandingGrant::take(endpoint().blind_limit())) {}

Receiver::~Receiver() { close(false); }

Result<Request*> Receiver::receive(int count, void* const* data, const size_t* bytes, const int* tags,
                                   void* const* memory) {
  if (count < 1 || count > kMostReceives)
    return weft::fail(Code::invalid_argument, "{} receives in a group, must be 1 to {}", count,
                      kMostReceives);
  const auto held = lock();
  const Endpoint::Touch touch(endpoint());
  for (int i = 0; i < count; ++i) WEFT_TRY(check_memory(data[i], bytes[i], memory ? memory[i] : nullptr));
  Request* request = take_request();
  if (!request) return nullptr;
  request->count = request->open = count;
  std::vector<Clear> clears;
  for (int i = 0; i < count; ++i) {
    Request::Part& part = request->parts[static_cast<size_t>(i)];
    part.data = static_cast<std::byte*>(data[i]);
    part.capacity = bytes[i];
    part.tag = tags[i];
    part.memory = memory ? static_cast<const Memory*>(memory[i]) : nullptr;
    match(*request, part, clears);
  }
  if (!clears.empty()) tell(clears);
  go_on();
  // What came before a connection was lost can still be taken; a receive of more is told so by test().
  if (!failure().ok() && request->open > 0) end(*request, failure());
  return request;
}

/// From here on no message is to come before its receive is known: a CPU could not put it where it belongs.
void Receiver::gpu_memory_came() {
  if (std::exchange(clears_all_, true)) return;
  clear_all();
  tell({});  // whether there was something to clear or not
  go_on();
}

/// Takes the part's message if it is here, or else posts the part, and clears it if its message may wait for
/// that.
void Receiver::match(Request& request, Request::Part& part, std::vector<Clear>& clears) {
  Tag& tag = tags_[part.tag];
  part.turn = tag.next++;
  const uint64_t name = name_of(part.tag, part.turn);
  const auto landing = landings_.find(name);
  const bool coming = landing != landings_.end();
  if (coming && landing->second.whole) {
    const Landing landed = take_off(name);
    return fill({&request, &part, &tag, true}, landed.data.get(), landed.bytes);
  }
  Posted& posted = posted_.emplace(name, Posted{&request, &part, &tag, coming}).first->second;
  if (coming) return void(++tag.cleared);
  const auto asked = asked_.extract(name);
  if (asked || clears_all_ || crowded()) {
    clears.push_back(cleared(posted));
    if (asked) clears.back().answers = asked.mapped();
    return;
  }
  if (!long_ones_ || part.capacity <= terms().blind_bytes) return;
  if (tag.cleared < kClearedAhead) clears.push_back(cleared(posted));
  else held_.push_back(name);
}

/// The clear of a receive, which counts as cleared from now on.
Clear Receiver::cleared(Posted& posted) {
  posted.cleared = true;
  ++posted.tag->cleared;
  return clear_for(*posted.part);
}

/// The receive's message has arrived. (Withdrawals clear nothing: more may be about to be withdrawn. A
/// sender that waits for a held clear asks.)
Receiver::Posted Receiver::take_posted(uint64_t name) {
  const auto found = posted_.find(name);
  const Posted posted = found->second;
  posted_.erase(found);
  if (posted.cleared && --posted.tag->cleared < kClearedAhead && !held_.empty()) clear_held();
  return posted;
}

void Receiver::clear_held() { clear(std::exchange(held_, {})); }

/// Other messages have what was granted, and what is posted may be for one that waits for its share.
void Receiver::clear_all() {
  std::vector<uint64_t> names;
  for (const auto& [name, posted] : posted_) names.push_back(name);
  clear(names);
}

/// Tells of those that are still posted and have no clear yet, as many at once as go into a message.
void Receiver::clear(const std::vector<uint64_t>& names) {
  std::vector<Clear> clears;
  for (const uint64_t name : names) {
    const auto posted = posted_.find(name);
    if (posted == posted_.end() || posted->second.cleared) continue;
    clears.push_back(cleared(posted->second));
    if (clears.size() == kMostReceives) tell(std::exchange(clears, {}));
  }
  if (!clears.empty()) tell(clears);
}

/// Without a number nothing is said twice. An ask with one is answered, since the sender knows nothing for
/// sure.
void Receiver::asked(const transport::Envelope& envelope, const void* payload) {
  long_ones_ = true;
  AskNumber number = 0;
  if (envelope.bytes == sizeof number) std::memcpy(&number, payload, sizeof number);
  last_asked_ = std::max(last_asked_, number);
  const uint64_t name = name_of(envelope);
  if (const auto found = posted_.find(name); found != posted_.end()) {
    Posted& posted = found->second;
    if (posted.cleared && number == 0) return;
    Clear clear = posted.cleared ? clear_for(*posted.part) : cleared(posted);
    clear.answers = number;
    tell({clear});
  } else if (awaited(envelope)) {
    asked_[name] = number;
  } else if (number != 0) {
    post(this->envelope(Kind::withdrawn, static_cast<int>(envelope.tag()), envelope.op), &number,
         sizeof number);
  }
}

void Receiver::tell(const std::vector<Clear>& clears) {
  std::byte message[kLongestControl];
  ClearHeader header;
  header.consumed = told_ = consumed_;
  header.count = static_cast<uint32_t>(clears.size());
  header.all_are_cleared = clears_all_;
  header.asked = last_asked_;
  std::memcpy(message, &header, sizeof header);
  std::ranges::copy(std::as_bytes(std::span(clears)), message + sizeof header);
  post(envelope(Kind::clear), message, sizeof header + clears.size() * sizeof(Clear));
}

// ---- What the sender says

void* Receiver::place(const transport::Envelope& envelope) {
  const auto kind = static_cast<Kind>(envelope.kind);
  if (kind != Kind::eager && kind != Kind::put) return nullptr;
  const uint64_t name = name_of(envelope);
  // What has begun to land goes on there, although its receive may be posted by now.
  if (const auto landing = landings_.find(name); landing != landings_.end())
    return envelope.bytes <= landing->second.bytes ? landing->second.data.get() : nullptr;
  if (const auto posted = posted_.find(name); posted != posted_.end())
    return placeable(*posted->second.part, envelope.bytes) ? posted->second.part->data : nullptr;
  if (kind != Kind::eager || !awaited(envelope)) return nullptr;
  Landing* landing = land(envelope);
  return landing ? landing->data.get() : nullptr;
}

/// Whether there is a place for it, or it needs none.
bool Receiver::expects(const transport::Envelope& envelope) const {
  if (static_cast<Kind>(envelope.kind) != Kind::eager) return true;
  return posted_.contains(name_of(envelope)) || landings_.contains(name_of(envelope));
}

void Receiver::arrived(const transport::Envelope& envelope, const void* payload) {
  ++heard_;
  const auto kind = static_cast<Kind>(envelope.kind);
  if (kind == Kind::refused) return refused(envelope, payload);
  if (kind == Kind::ask) return asked(envelope, payload);
  if (kind == Kind::word) return word(envelope, payload);
  if (kind != Kind::eager && kind != Kind::put)
    return fail(weft::fail(Code::protocol_error, "the sender sent a message that is not understood"));
  ++messages_came_;
  const uint64_t name = name_of(envelope);
  if (!posted_.contains(name)) {
    if (!taken_.empty()) taken_.erase(name);  // all of it is here
    // A put without its receive was withdrawn here.
    return kind == Kind::eager ? arrived_early(envelope, payload) : void();
  }
  const Posted posted = take_posted(name);
  long_ones_ = kind == Kind::put;
  if (landings_.contains(name)) {
    const Landing landed = take_off(name);
    return fill(posted, payload ? payload : landed.data.get(), envelope.bytes);
  }
  fill(posted, payload, envelope.bytes);
  if (kind == Kind::eager) consumed(envelope.bytes);
}

/// An eager message is here and its receive is not: it stays in its landing.
void Receiver::arrived_early(const transport::Envelope& envelope, const void* payload) {
  long_ones_ = false;
  const auto begun = landings_.find(name_of(envelope));
  if (!awaited(envelope)) {
    if (begun != landings_.end()) return (void)take_off(begun->first);
    return consumed(envelope.bytes);
  }
  if (begun == landings_.end() && !payload && envelope.bytes > 0) return consumed(envelope.bytes);
  Landing* landing = begun != landings_.end() ? &begun->second : land(envelope);
  if (!landing) return;
  if (payload && envelope.bytes > 0) std::memcpy(landing->data.get(), payload, envelope.bytes);
  landing->whole = true;
}

// ---- Landings

/// Whether a receive is still to come that this is for; if not, the receive was withdrawn.
bool Receiver::awaited(const transport::Envelope& envelope) const {
  const auto tag = tags_.find(static_cast<int>(envelope.tag()));
  return tag == tags_.end() || static_cast<int32_t>(envelope.op - tag->second.next) >= 0;
}

bool Receiver::crowded() const {
  return landings_.size() >= kEagerWindow / kCrowdParts || landed_bytes_ >= grant_.bytes() / kCrowdParts;
}

/// A landing for a message; null, and the connection is lost, if the sender has no right to one.
Receiver::Landing* Receiver::land(const transport::Envelope& envelope) {
  const bool was_crowded = crowded();
  if (landings_.size() >= kEagerWindow || landed_bytes_ + envelope.bytes > grant_.bytes()) {
    fail(weft::fail(Code::protocol_error, "the sender has sent more than {} messages or {} bytes ahead",
                    kEagerWindow, grant_.bytes()));
    return nullptr;
  }
  landed_bytes_ += envelope.bytes;
  Landing& landing = landings_[name_of(envelope)];
  landing.data = std::make_unique_for_overwrite<std::byte[]>(envelope.bytes);
  landing.bytes = envelope.bytes;
  if (!was_crowded && crowded()) clear_all();
  return &landing;
}

/// The message in a landing is gone for its receive, or for good.
Receiver::Landing Receiver::take_off(uint64_t name) {
  const auto found = landings_.find(name);
  Landing landing = std::move(found->second);
  landings_.erase(found);
  landed_bytes_ -= landing.bytes;
  consumed(landing.bytes);
  return landing;
}

void Receiver::consumed(size_t bytes) {
  consumed_.add(bytes);
  if (consumed_.messages - told_.messages < kEagerWindow / kToldParts &&
      consumed_.bytes - told_.bytes < std::max<size_t>(grant_.bytes() / kToldParts, 1))
    return;
  told_ = consumed_;
  post(envelope(Kind::credit), &told_, sizeof told_);
}

/// The part's message is here: `payload`, or null if it is in place.
void Receiver::fill(const Posted& posted, const void* payload, size_t bytes) {
  Request::Part& part = *posted.part;
  if (bytes > part.capacity) return end(*posted.request, too_long(bytes, part));
  if (payload && bytes > 0) {
    if (const Status copied = copy_in(part, payload, bytes); !copied.ok())
      return end(*posted.request, copied);
  }
  part.bytes = bytes;
  part.done = true;
  --posted.request->open;
}

void Receiver::refused(const transport::Envelope& envelope, const void* payload) {
  uint64_t bytes = 0;
  if (envelope.bytes == sizeof bytes) std::memcpy(&bytes, payload, sizeof bytes);
  const auto found = posted_.find(name_of(envelope));
  if (found == posted_.end()) return void(taken_.erase(name_of(envelope)));
  const Posted posted = unpost(found->first);
  withdraw(*posted.request);
  end(*posted.request, too_long(bytes, *posted.part));
}

Status Receiver::flush(int count, void* const* data, const int* bytes, void* const* memory) {
  std::map<int, std::vector<gpu::Buffer>> by_gpu;
  {
    const auto held = lock();
    for (int i = 0; i < count; ++i) {
      if (bytes[i] <= 0) continue;
      WEFT_TRY(check_memory(data[i], static_cast<size_t>(bytes[i]), memory[i]));
      const Memory& registered = *static_cast<const Memory*>(memory[i]);
      if (registered.gpu >= 0) by_gpu[registered.gpu].push_back({registered.address, registered.gpu_buffer});
    }
  }
  for (const auto& [ordinal, buffers] : by_gpu) WEFT_TRY(gpu::flush(ordinal, buffers));
  return {};
}

bool Receiver::complete(Request& request) { return request.open == 0; }

// ---- Receives that are taken away

void Receiver::withdraw(Request& request) {
  for (int i = 0; i < request.count; ++i) {
    const Request::Part& part = request.parts[static_cast<size_t>(i)];
    if (!part.done) take_away(name_of(part.tag, part.turn));
  }
}

/// The receive is gone, without its message.
Receiver::Posted Receiver::unpost(uint64_t name) {
  const auto found = posted_.find(name);
  const Posted posted = found->second;
  posted_.erase(found);
  if (posted.cleared) --posted.tag->cleared;
  else std::erase(held_, name);
  return posted;
}

/// Its message may be on its way, which the sender is asked for; one that waits there is not to wait any
/// longer.
void Receiver::take_away(uint64_t name) {
  if (!posted_.contains(name)) return;
  const Posted posted = unpost(name);
  if (posted.cleared && posted.part->memory && !endpoint().receiver_places())
    taken_.emplace(name, Taken{posted.part->memory});
  if (hears()) post(envelope(Kind::withdrawn, posted.part->tag, posted.part->turn), nullptr, 0);
}

void Receiver::word(const transport::Envelope& envelope, const void* payload) {
  Fate fate{};
  if (envelope.bytes == sizeof fate) std::memcpy(&fate, payload, sizeof fate);
  endpoint().answered(peer(), true);
  if (fate == Fate::stays) taken_.erase(name_of(envelope));
  else if (const auto taken = taken_.find(name_of(envelope)); taken != taken_.end())
    taken->second.answered = true;
}

// The network may write to a receive that was cleared until its message arrives, or until the sender says
// that it will not: of this receive by a word, of all by a farewell. Where there is neither, the key is
// withdrawn, so that nothing more begins; but that does not end what has begun (over libfabric's TCP
// provider).
void Receiver::vacate(const Memory& memory) {
  std::vector<uint64_t> names;  // of requests that have failed
  for (const auto& [name, posted] : posted_)
    if (posted.part->memory == &memory) names.push_back(name);
  for (const uint64_t name : names) take_away(name);
  const auto is_its = [&](const auto& entry) { return entry.second.memory == &memory; };
  const auto is_unanswered = [&](const auto& entry) { return is_its(entry) && !entry.second.answered; };
  const auto there_is = [&](const auto& test) { return std::any_of(taken_.begin(), taken_.end(), test); };
  QuietDeadline word(gave_up_ && heard_ == 0 ? 0 : endpoint().patience_s(peer())), arrival(kArrival_s);
  bool begins = watch_peer() == PeerWatch::Peer::there;  // the sender may begin to write
  while (there_is(is_its) && !gone() && endpoint().status().ok()) {
    if (endpoint().poll().ok()) sched_yield();
    begins = watch_peer() == PeerWatch::Peer::there;
    if (everything_came()) std::erase_if(taken_, is_its);
    // The network would refuse the rest of a write that has begun, and lose the peer.
    const bool silent =
        word.passed(heard_) && begins && there_is(is_unanswered) && !endpoint().is_written(peer(), number());
    // A sender that was never heard may not have finished its connect(), which says nothing of others.
    if (silent && heard_ == 0) gave_up_ = true;
    else if (silent) endpoint().answered(peer(), false);
    if (silent || arrival.passed(endpoint().events())) break;
  }
  const bool open = std::erase_if(taken_, is_its) > 0 && endpoint().status().ok();
  const bool reachable = open && begins && endpoint().exposed_elsewhere(memory.exposed);
  unexpose(memory);
  const auto has_died = [&] { return watch_peer() == PeerWatch::Peer::gone; };
  if (open) endpoint().finish_writes(peer(), number(), reachable, has_died);
}

}  // namespace weft::nccl_net
