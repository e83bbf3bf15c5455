#include "engine/stash.h"

#include <utility>

namespace weft::engine {

bool Stash::keep(int peer, const transport::Envelope& envelope, const void* payload) {
  const uint64_t cost = sizeof(Message) + (payload ? envelope.bytes : 0);
  if (cost > budget_bytes_ - bytes_) return false;
  const auto* bytes = static_cast<const std::byte*>(payload);
  messages_[key_of(envelope.comm, envelope.op)].push_back(
      {peer, envelope,
       payload ? std::vector<std::byte>(bytes, bytes + envelope.bytes) : std::vector<std::byte>()});
  bytes_ += cost;
  return true;
}

std::vector<Stash::Message> Stash::take(uint32_t comm, OpNumber number, int peer) {
  const auto found = messages_.find(key_of(comm, number));
  if (found == messages_.end()) return {};
  std::vector<Message> taken, left;
  for (Message& message : found->second) {
    const bool wanted = peer < 0 || message.peer == peer;
    if (wanted) bytes_ -= cost_of(message);
    (wanted ? taken : left).push_back(std::move(message));
  }
  if (left.empty()) messages_.erase(found);
  else found->second = std::move(left);
  return taken;
}

void Stash::drop(uint32_t comm) {
  for (auto it = messages_.begin(); it != messages_.end();) {
    if (it->first >> 32 != comm) {
      ++it;
      continue;
    }
    for (const Message& message : it->second) bytes_ -= cost_of(message);
    it = messages_.erase(it);
  }
}

}  // namespace weft::engine
