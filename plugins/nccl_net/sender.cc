#include "sender.h"

#include <algorithm>
#include <cstring>

#include "transport/lost_memory.h"

namespace weft::nccl_net {
namespace {
constexpr size_t kCopiedBytes = 4 << 10;  // beyond, a put by reference costs less
constexpr int64_t kAskNs = 50'000;        // a clear that comes unasked has come by then, as a rule
}  // namespace

Sender::Sender(Introduction introduction)
    : Connection(std::move(introduction), size_t{abi::kMostRequests} * kMostReceives) {}

// What has been accepted is to arrive, although nobody polls any more.
Sender::~Sender() { close(true); }

bool Sender::may_send_blind(const Request::Part& part) const {
  const size_t bytes = part.capacity;
  return !part.of_gpu() && !all_are_cleared_ && bytes <= terms().blind_bytes &&
         eager_sent_.messages - eager_consumed_.messages < kEagerWindow &&
         eager_sent_.bytes - eager_consumed_.bytes + bytes <= terms().landing_bytes;
}

Result<Request*> Sender::send(const void* data, size_t bytes, int tag, const void* memory) {
  const auto held = lock();
  const Endpoint::Touch touch(endpoint());
  WEFT_TRY(check_memory(data, bytes, memory));
  Request* request = take_request();
  if (!request) return nullptr;
  if (!failure().ok()) return end(*request, failure()), request;
  uint32_t& turn = turns_[tag];
  Request::Part& part = request->parts.front();
  part.data = static_cast<std::byte*>(const_cast<void*>(data));
  part.capacity = part.bytes = bytes;
  part.tag = tag;
  part.turn = turn;
  part.memory = static_cast<const Memory*>(memory);
  if (!unsent_.empty() && unsent_.erase(name_of(tag, turn)) > 0) {
    keep(*request);
    ++turn;
    return request;
  }

  const auto clear = clears_.find(name_of(tag, turn));
  const bool cleared = clear != clears_.end();
  const bool late = cleared && !is_current(clear->second);
  if (late || (!cleared && !may_send_blind(part))) {
    if (!late && (bytes > terms().blind_bytes || part.of_gpu())) ask(*request);
    ++turn;
    waiting_.push_back(request);
    Connection::go_on();
    return request;
  }
  const bool room = start(*request, cleared ? &clear->second.clear : nullptr);
  Connection::go_on();
  if (!room) {
    give_back(*request);
    WEFT_TRY(endpoint().poll());
    return nullptr;
  }
  if (cleared) clears_.erase(clear);
  ++turn;
  return request;
}

/// Asks for the clear: at once, or, where a receiver has long expected long messages, only if it does not
/// come unasked. Every ask is a write here, and a read there in the middle of what it reads.
void Sender::ask(Request& request) {
  const Request::Part& part = request.only();
  if (!part.of_gpu() && request.ask_at_ns == 0 && puts_in_row_ >= abi::kMostRequests) {
    request.ask_at_ns = now_ns() + kAskNs;
    return remember_me();
  }
  request.ask_at_ns = 0;
  const AskNumber pauses = endpoint().pauses(), number = pauses == heard_pauses_ ? 0 : pauses;
  post(envelope(Kind::ask, part.tag, part.turn), &number, sizeof number);
}

/// Whether the receive is there for sure, as far as a clear of it tells. After a long pause the receiver may
/// have taken it away, and its memory's key, without an answer from here: then it is asked again.
bool Sender::is_current(Cleared& cleared) {
  const AskNumber number = endpoint().pauses();
  if (cleared.after == number) return true;
  if (std::exchange(cleared.asked_after, number) != number)
    post(envelope(Kind::ask, cleared.clear.tag, cleared.clear.turn), &number, sizeof number);
  return false;
}

/// When to do so, if it waits with that. A receiver clears in the order of turns, as it takes in what came
/// before: while an earlier message of the tag goes out, a clear is not missing.
int64_t Sender::ask_at_ns(const Request& request) const {
  const Request::Part& part = request.only();
  const bool behind = part.tag == last_put_.tag && static_cast<int32_t>(part.turn - last_put_.turn) > 0;
  return behind ? std::max(request.ask_at_ns, last_put_.seen_ns + kAskNs) : request.ask_at_ns;
}

// Over TCP nothing is copied that is worth a put, for there a receiver places what comes, cleared or not.
// (What is withdrawn in the middle keeps its share of the grant until the connection closes: nothing tells
// the receiver how much of it has come.)
bool Sender::start(Request& request, const Clear* clear) {
  if (clear && request.only().capacity > clear->target.bytes) {
    if (!request.only().of_gpu()) return refuse(request, *clear), true;
    cut(request, clear->target.bytes);
  }
  const size_t bytes = request.only().capacity;
  const Kind kind = clear ? Kind::put : Kind::eager;
  const size_t copied = endpoint().receiver_places() ? kCopiedBytes : transport().eager_bytes();
  transport::RemoteBuffer anywhere;
  anywhere.bytes = bytes;
  const bool by_cpu = !request.only().of_gpu() && (!clear || clear->host);
  const bool started = by_cpu && bytes <= std::min(copied, transport().eager_bytes())
                           ? send_copied(request, kind)
                           : put(request, kind, clear ? clear->target : anywhere);
  if (started && request.failure.ok()) ++messages_sent_;
  if (started && !clear) eager_sent_.add(bytes), puts_in_row_ = 0;
  if (started && clear) puts_in_row_ = std::min(puts_in_row_ + 1, abi::kMostRequests);
  return started;
}

/// Shortens a message of GPU memory to its receive, and test() reports the shorter length. From a buffer that
/// the user has registered, NCCL sends all that is left and goes on where the message ended.
void Sender::cut(Request& request, size_t bytes) {
  Request::Part& part = request.parts.front();
  part.capacity = part.bytes = bytes;
}

bool Sender::send_copied(Request& request, Kind kind) {
  const Request::Part& part = request.only();
  transport::Envelope message = envelope(kind, part.tag, part.turn);
  message.bytes = static_cast<uint32_t>(part.capacity);
  const auto sent = transport().send(peer(), message, part.data);
  if (!sent.ok()) return fail(sent.status()), end(request, failure()), true;
  if (*sent == transport::Progress::busy && MemoryWatch::lost(part.data, part.capacity))
    return give_up(transport::memory_is_gone(peer())), end(request, failure()), true;
  if (*sent == transport::Progress::busy) return false;
  request.open = 0;
  request.put.done = true;  // the bytes are copied
  request.ticket = transport().ticket();
  last_ = &request;
  return true;
}

Result<transport::Progress> Sender::put_out(const Request::Part& part, const transport::Envelope& message,
                                            const transport::RemoteBuffer& target,
                                            transport::Completion* done) {
  if (!part.of_gpu()) return transport().put(peer(), message, part.data, part.capacity, target, 0, done);
  const device::cuda::Scope scope = endpoint().gpu_scope();
  return transport().gpu_direct()->put_gpu(peer(), message, part.data, part.capacity, target, 0, done);
}

bool Sender::put(Request& request, Kind kind, const transport::RemoteBuffer& target) {
  const Request::Part& part = request.only();
  transport::Envelope message = envelope(kind, part.tag, part.turn);
  message.bytes = static_cast<uint32_t>(part.capacity);
  const auto accepted = put_out(part, message, target, &request.put);
  if (!accepted.ok()) return fail(accepted.status()), end(request, failure()), true;
  if (*accepted == transport::Progress::busy) return false;
  request.open = 0;
  request.ticket = transport().ticket();
  last_ = &request;
  last_put_ = {part.tag, part.turn, now_ns()};
  return true;
}

void Sender::refuse(Request& request, const Clear& clear) {
  const Request::Part& part = request.only();
  const uint64_t bytes = part.capacity;
  post(envelope(Kind::refused, part.tag, part.turn), &bytes, sizeof bytes);
  request.other_side_first = true;
  end(request,
      weft::fail(Code::invalid_usage, "a message of {} bytes with tag {} was sent to a receive of {} bytes",
                 bytes, part.tag, clear.target.bytes));
}

// A send whose bytes have been taken over may be over before they are out, if a later one is not: that is
// polled for, and is not over before everything is out. So sends that follow one another share writes.
bool Sender::complete(Request& request) {
  if (request.open > 0 || !request.put.done || !endpoint().status().ok()) return false;
  const uint64_t ticket = std::max(request.ticket, owed_);
  if (transport().flushed(ticket)) return true;
  const bool later = !waiting_.empty() || (last_ && last_ != &request && last_->owner && last_->failure.ok());
  if (later) owed_ = ticket;
  return later;
}

void Sender::withdraw(Request& request) {
  if (std::erase(waiting_, &request) > 0) unsent_.insert(name_of(request.only().tag, request.only().turn));
  if (request.open > 0 || request.put.done) return;
  if (gone()) endpoint().forget(request.put);
  else if (!endpoint().take_back(peer(), request.put, closed_there())) --messages_sent_;
  request.put.done = true;  // nothing is left to be taken back
}

/// The send is over without having been sent.
void Sender::keep(Request& request) {
  request.open = 0;
  request.put.done = true;
}

// ---- What the receiver says

void Sender::arrived(const transport::Envelope& envelope, const void* payload) {
  EagerCount count;
  switch (static_cast<Kind>(envelope.kind)) {
    case Kind::clear: return cleared(envelope, payload);
    case Kind::withdrawn: return withdrawn(envelope, payload);
    case Kind::credit:
      if (envelope.bytes != sizeof count) break;
      std::memcpy(&count, payload, sizeof count);
      consumed(count);
      return remember_me();
    default: break;
  }
  fail(weft::fail(Code::protocol_error, "the receiver sent a message that is not understood"));
}

/// Counts may be overtaken by later ones.
void Sender::consumed(const EagerCount& count) {
  if (count.messages < eager_consumed_.messages || count.messages > eager_sent_.messages) return;
  eager_consumed_ = count;
}

void Sender::cleared(const transport::Envelope& envelope, const void* payload) {
  ClearHeader header;
  if (envelope.bytes >= sizeof header) std::memcpy(&header, payload, sizeof header);
  if (envelope.bytes < sizeof header || header.count > kMostReceives ||
      envelope.bytes != sizeof header + header.count * sizeof(Clear))
    return fail(weft::fail(Code::protocol_error, "the receiver sent a clear of {} bytes", envelope.bytes));
  consumed(header.consumed);
  all_are_cleared_ = all_are_cleared_ || header.all_are_cleared != 0;
  const auto* entries = static_cast<const std::byte*>(payload) + sizeof header;
  for (uint32_t i = 0; i < header.count; ++i) {
    Clear clear;
    std::memcpy(&clear, entries + i * sizeof clear, sizeof clear);
    heard(clear.answers);
    // It may have gone out eagerly before its clear came, or its receive may be gone again.
    const uint64_t name = name_of(clear.tag, clear.turn);
    if (has_left(clear.tag, clear.turn) || unsent_.contains(name)) continue;
    Cleared& known = clears_[name];
    known.clear = clear;
    known.after = std::max({known.after, clear.answers, header.asked, first_pauses_});
  }
  remember_me();
}

bool Sender::has_left(int tag, uint32_t turn) const {
  const auto next = turns_.find(tag);
  if (next == turns_.end() || static_cast<int32_t>(turn - next->second) >= 0) return false;
  return !unsent_.contains(name_of(tag, turn)) &&
         std::none_of(waiting_.begin(), waiting_.end(), [&](const Request* request) {
           return request->only().tag == tag && request->only().turn == turn;
         });
}

/// Nobody receives the message: if it is still here, it stays, and if it is not posted yet, it will.
void Sender::withdrawn(const transport::Envelope& envelope, const void* payload) {
  AskNumber answered = 0;
  if (envelope.bytes == sizeof answered) std::memcpy(&answered, payload, sizeof answered);
  heard(answered);
  const int tag = static_cast<int>(envelope.tag());
  const uint64_t name = name_of(envelope);
  const Fate fate = has_left(tag, envelope.op) ? Fate::comes : Fate::stays;
  if (fate == Fate::stays) {
    clears_.erase(name);
    const auto waits = std::find_if(waiting_.begin(), waiting_.end(), [&](const Request* request) {
      return name_of(request->only().tag, request->only().turn) == name;
    });
    if (waits != waiting_.end()) keep(**waits), waiting_.erase(waits);
    else unsent_.insert(name);
  }
  post(this->envelope(Kind::word, tag, envelope.op), &fate, sizeof fate);
}

void Sender::go_on() {
  Connection::go_on();
  if (!failure().ok() || !endpoint().status().ok()) return;
  std::deque<Request*> still_waiting;
  bool room = true, asks_later = false;
  const int64_t now = waiting_.empty() ? 0 : now_ns();
  const bool writes = last_ && last_->owner && last_->open == 0 && !last_->put.done;
  if (writes && !waiting_.empty()) last_put_.seen_ns = now;
  for (Request* request : waiting_) {
    const auto clear = clears_.find(name_of(request->only().tag, request->only().turn));
    const bool cleared = clear != clears_.end();
    const bool may = room && (cleared ? is_current(clear->second) : may_send_blind(request->only()));
    if (!may || !(room = start(*request, cleared ? &clear->second.clear : nullptr)))
      still_waiting.push_back(request);
    else if (cleared) clears_.erase(clear);
    if (may || request->ask_at_ns == 0) continue;
    if (ask_at_ns(*request) <= now) ask(*request);
    else asks_later = true;
  }
  waiting_.swap(still_waiting);
  Connection::go_on();  // refusals and asks
  if (!room || asks_later) remember_me();
}

}  // namespace weft::nccl_net
