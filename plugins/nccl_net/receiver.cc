#include "receiver.h"

#include <cstring>

namespace weft::nccl_net {

namespace {

Status too_long(uint64_t message_bytes, const Request::Part& part) {
  return fail(Code::invalid_usage, "a message of {} bytes with tag {} came for a receive of {} bytes",
              message_bytes, part.tag, part.capacity);
}

/// Early messages beyond which no receive relies on the sender's window. The sender counts as many as are
/// kept here, and those that it has not been told to be gone: a window that is full shows here.
constexpr size_t kCrowd = kEagerWindow / 2;

Clear clear_for(const Request::Part& part) {
  Clear clear;
  clear.tag = part.tag;
  clear.turn = part.turn;
  if (part.memory) clear.target = part.memory->exposed;
  clear.target.address = reinterpret_cast<uint64_t>(part.data);
  clear.target.bytes = part.capacity;
  return clear;
}

}  // namespace

Receiver::Receiver(Introduction introduction) : Connection(std::move(introduction), abi::kMostRequests) {}

Receiver::~Receiver() { close(false); }

Result<Request*> Receiver::receive(int count, void* const* data, const size_t* bytes, const int* tags,
                                   void* const* memory) {
  if (count < 1 || count > kMostReceives)
    return weft::fail(Code::invalid_argument, "{} receives in a group, must be 1 to {}", count,
                      kMostReceives);
  const auto held = lock();
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
  pump();
  // What came before a connection was lost can still be taken; a receive of more is told so by test().
  if (!failure().ok() && request->open > 0) end(*request, failure());
  return request;
}

/// Takes the part's message if it is here, or else posts the part, and clears it if its message may wait for
/// that.
void Receiver::match(Request& request, Request::Part& part, std::vector<Clear>& clears) {
  part.turn = turns_[part.tag]++;
  const uint64_t name = name_of(part.tag, part.turn);
  if (const auto early = early_.find(name); early != early_.end()) {
    const std::vector<std::byte> payload = std::move(early->second.payload);
    early_.erase(early);
    fill({&request, &part, true}, payload.data(), payload.size());
    return consumed_one();
  }
  const bool to_be_cleared =
      (long_ones_ && part.capacity > blind_bytes()) || asked_.erase(name) > 0 || early_.size() >= kCrowd;
  posted_.emplace(name, Posted{&request, &part, to_be_cleared});
  if (to_be_cleared) clears.push_back(clear_for(part));
}

/// Other messages fill the sender's window, and what is posted may be of one that waits for room in it.
void Receiver::clear_all() {
  std::vector<Clear> clears;
  for (auto& [name, posted] : posted_) {
    if (std::exchange(posted.cleared, true)) continue;
    clears.push_back(clear_for(*posted.part));
    if (clears.size() == kMostReceives) tell(std::exchange(clears, {}));
  }
  if (!clears.empty()) tell(clears);
}

void Receiver::asked(const transport::Envelope& envelope) {
  long_ones_ = true;
  const uint64_t name = name_of(envelope);
  if (const auto posted = posted_.find(name); posted != posted_.end()) {
    if (!std::exchange(posted->second.cleared, true)) tell({clear_for(*posted->second.part)});
    return;
  }
  const auto turn = turns_.find(static_cast<int>(envelope.tag()));
  const bool to_come = turn == turns_.end() || static_cast<int32_t>(envelope.op - turn->second) >= 0;
  if (to_come) asked_.insert(name);
}

void Receiver::tell(const std::vector<Clear>& clears) {
  std::byte message[kLongestControl];
  ClearHeader header;
  header.consumed = eager_told_ = eager_consumed_;
  header.count = static_cast<uint32_t>(clears.size());
  std::memcpy(message, &header, sizeof header);
  std::memcpy(message + sizeof header, clears.data(), clears.size() * sizeof(Clear));
  post(envelope(Kind::clear), message, sizeof header + clears.size() * sizeof(Clear));
}

// ---- What the sender says

void* Receiver::place(const transport::Envelope& envelope) {
  const auto posted = posted_.find(name_of(envelope));
  if (posted == posted_.end() || envelope.bytes > posted->second.part->capacity) return nullptr;
  return posted->second.part->data;
}

void Receiver::arrived(const transport::Envelope& envelope, const void* payload) {
  const auto kind = static_cast<Kind>(envelope.kind);
  if (kind == Kind::refused) return refused(envelope, payload);
  if (kind == Kind::ask) return asked(envelope);
  if (kind != Kind::eager && kind != Kind::put)
    return fail(weft::fail(Code::protocol_error, "the sender sent a message that is not understood"));
  const auto found = posted_.find(name_of(envelope));
  if (found == posted_.end()) {
    if (kind == Kind::eager)
      long_ones_ = false, keep(envelope, payload);  // a put without its receive was withdrawn here
    return;
  }
  const Posted posted = found->second;
  posted_.erase(found);
  fill(posted, payload, envelope.bytes);
  long_ones_ = kind == Kind::put;
  if (kind == Kind::eager) consumed_one();
}

void Receiver::keep(const transport::Envelope& envelope, const void* payload) {
  const auto turn = turns_.find(static_cast<int>(envelope.tag()));
  const bool withdrawn = turn != turns_.end() && static_cast<int32_t>(envelope.op - turn->second) < 0;
  if (withdrawn || (!payload && envelope.bytes > 0)) return consumed_one();
  if (early_.size() >= kEagerWindow)
    return fail(
        weft::fail(Code::protocol_error, "the sender has sent more than {} messages ahead", kEagerWindow));
  const auto* bytes = static_cast<const std::byte*>(payload);
  early_.emplace(name_of(envelope), Early{std::vector<std::byte>(bytes, bytes + envelope.bytes)});
  if (early_.size() == kCrowd) clear_all();
}

/// The part's message is here: `payload`, or null if it is in place.
void Receiver::fill(const Posted& posted, const void* payload, size_t bytes) {
  Request::Part& part = *posted.part;
  if (bytes > part.capacity) return end(*posted.request, too_long(bytes, part));
  if (payload && bytes > 0) std::memcpy(part.data, payload, bytes);
  part.bytes = bytes;
  part.done = true;
  --posted.request->open;
}

void Receiver::refused(const transport::Envelope& envelope, const void* payload) {
  uint64_t bytes = 0;
  if (envelope.bytes == sizeof bytes) std::memcpy(&bytes, payload, sizeof bytes);
  const auto found = posted_.find(name_of(envelope));
  if (found == posted_.end()) return;
  const Posted posted = found->second;
  withdraw(*posted.request);
  end(*posted.request, too_long(bytes, *posted.part));
}

void Receiver::consumed_one() {
  ++eager_consumed_;
  if (eager_consumed_ - eager_told_ < kEagerWindow / 4) return;
  eager_told_ = eager_consumed_;
  post(envelope(Kind::credit), &eager_told_, sizeof eager_told_);
}

bool Receiver::complete(Request& request) { return request.open == 0; }

void Receiver::withdraw(Request& request) {
  for (int i = 0; i < request.count; ++i) {
    const Request::Part& part = request.parts[static_cast<size_t>(i)];
    if (!part.done) posted_.erase(name_of(part.tag, part.turn));
  }
}

}  // namespace weft::nccl_net
