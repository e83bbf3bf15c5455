#include "transport/ofi_messages.h"

#include <cstring>

#include "base/checked_copy.h"
#include "base/memory_watch.h"
#include "transport/lost_memory.h"

namespace weft::transport::ofi {

Result<Progress> Messages::post_short(MessageKind kind, int peer, size_t rail) {
  Header header;
  header.kind = kind;
  header.count = static_cast<uint32_t>(rail);
  return post_over(rail, peer, header, nullptr, 0);
}

/// Greets a peer over the rails on which it has not answered.
Status Messages::meet(int peer) {
  Peer& to = peers_[peer];
  const int64_t now = now_ns();
  for (size_t rail = 0; rail < to.routes.size(); ++rail) {
    if ((to.met >> rail & 1) != 0 || !to.greetings[rail].due(now)) continue;
    Result<Progress> outcome = post_short(MessageKind::greeting, peer, rail);
    if (!outcome) return outcome.status();
    if (*outcome == Progress::accepted) to.greetings[rail].sent(now);
  }
  return {};
}

Result<Progress> Messages::post(int peer, const Header& header, const void* payload, size_t bytes) {
  const auto attempt = [&]() -> Result<Progress> {
    if (peers_[peer].met_on_all()) [[likely]]
      return post_now(peer, header, payload, bytes);
    WEFT_TRY(meet(peer));
    return Progress::busy;
  };
  Result<Progress> outcome = attempt();
  if (outcome && *outcome == Progress::busy) {
    Result<int> reaped = reap_();
    if (!reaped) return reaped.status();
    if (*reaped > 0) outcome = attempt();
  }
  if (!outcome) {
    peers_.lose(peer, outcome.status());
    return peers_[peer].lost;
  }
  return *outcome == Progress::busy ? refuse() : outcome;
}

Status Messages::copy(int peer, void* to, const void* from, size_t bytes) const {
  if (careful_ && bytes > kUncheckedBytes)
    return copy_checked(to, from, bytes) ? Status() : memory_is_gone(peer);
  if (bytes > 0) std::memcpy(to, from, bytes);
  return careful_ && MemoryWatch::lost(to, bytes) ? memory_is_gone(peer) : Status();
}

Result<Progress> Messages::post_now(int peer, const Header& header, const void* payload, size_t bytes) {
  const size_t rails = peers_[peer].routes.size();
  for (size_t turn = 0; turn < rails; ++turn) {
    Result<Progress> outcome = post_over(next_rail_++ % rails, peer, header, payload, bytes);
    if (!outcome || *outcome == Progress::accepted) return outcome;
  }
  return Progress::busy;
}

Result<Progress> Messages::post_over(size_t index, int peer, Header header, const void* payload,
                                     size_t bytes) {
  header.token = peers_[peer].token;
  header.sender = peers_[peer].known_as;
  Result<fi_addr_t> to = rails_.route(peers_[peer], index);
  if (!to) return to.status();
  Rail& rail = rails_[index];
  Operation* send = rail.take_send();
  if (!send) return Progress::busy;
  std::memcpy(send->buffer, &header, sizeof(header));
  if (Status copied = copy(peer, send->buffer + sizeof(header), payload, bytes); !copied.ok()) {
    rail.give_back(send);
    return copied;
  }
  if (MemoryWatch::lost(payload, bytes)) [[unlikely]]
    return rail.give_back(send), Progress::busy;
  send->number = last_ + 1;
  send->may_fail = may_be_lost(header);
  Result<Progress> outcome = rail.post_send(send, peer, *to, sizeof(header) + bytes);
  if (outcome && *outcome == Progress::accepted) ++last_, out_.push_back(false);
  return outcome;
}

void Messages::left(uint64_t number) {
  out_[number - (last_ - out_.size()) - 1] = true;
  while (!out_.empty() && out_.front()) out_.pop_front();
}

}  // namespace weft::transport::ofi
