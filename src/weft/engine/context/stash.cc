#include "engine/context/stash.h"

#include <utility>

namespace weft::engine {

namespace {

constexpr size_t kSpares = 4096;  // of a kind, before their list grows
constexpr size_t kListed = 8;     // messages of an operation, before their list grows

/// The last spare, or a new one.
template <typename T>
T take_spare(std::vector<T>& spares) {
  if (spares.empty()) return {};
  T spare = std::move(spares.back());
  spares.pop_back();
  return spare;
}

}  // namespace

Stash::Stash(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {
  spare_nodes_.reserve(kSpares);
  spare_lists_.reserve(kSpares);
}

std::vector<Stash::Message>& Stash::list_of(uint64_t key) {
  const auto found = messages_.find(key);
  if (found != messages_.end()) return found->second;
  if (spare_nodes_.empty()) {
    std::vector<Message>& list = messages_[key];
    list.reserve(kListed);
    return list;
  }
  Messages::node_type node = take_spare(spare_nodes_);
  node.key() = key;
  return messages_.insert(std::move(node)).position->second;
}

bool Stash::keep(int peer, const transport::Envelope& envelope, const void* payload) {
  const uint64_t cost = sizeof(Message) + (payload ? envelope.bytes : 0);
  if (cost > budget_bytes_ - bytes_) return false;
  Message message{peer, envelope, {}};
  if (payload) {
    message.payload = take_spare(spares_of(envelope.bytes));
    spare_bytes_ -= message.payload.capacity();
    const auto* bytes = static_cast<const std::byte*>(payload);
    message.payload.assign(bytes, bytes + envelope.bytes);
  }
  if (static_cast<size_t>(peer) >= kept_of_.size()) kept_of_.resize(static_cast<size_t>(peer) + 1);
  count(message, 1);
  list_of(key_of(envelope.comm, envelope.op)).push_back(std::move(message));
  return true;
}

std::vector<Stash::Message> Stash::take(uint32_t comm, OpNumber number, int peer) {
  const auto found = messages_.find(key_of(comm, number));
  if (found == messages_.end()) return {};
  std::vector<Message> taken = take_spare(spare_lists_);
  std::vector<Message>& kept = found->second;
  taken.reserve(std::max(kept.size(), kListed));
  size_t left = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (peer < 0 || kept[i].peer == peer) {
      count(kept[i], -1);
      taken.push_back(std::move(kept[i]));
    } else {
      if (left != i) kept[left] = std::move(kept[i]);
      ++left;
    }
  }
  kept.erase(kept.begin() + static_cast<ptrdiff_t>(left), kept.end());
  if (left == 0) {
    Messages::node_type node = messages_.extract(found);
    spare_nodes_.push_back(std::move(node));
  }
  return taken;
}

std::vector<Stash::Message> Stash::find_all(uint32_t comm, MessageKind kind) const {
  std::vector<Message> found;
  for (const auto& [key, kept] : messages_)
    for (const Message& message : kept)
      if (message.envelope.comm == comm && message.envelope.kind == static_cast<uint8_t>(kind))
        found.push_back(message);
  return found;
}

void Stash::recycle(std::vector<Message> taken) {
  for (Message& message : taken) {
    const size_t bytes = message.payload.capacity();
    if (bytes == 0 || spare_bytes_ + bytes > budget_bytes_) continue;
    spare_bytes_ += bytes;
    spares_of(bytes).push_back(std::move(message.payload));
  }
  taken.clear();
  if (taken.capacity() > 0) spare_lists_.push_back(std::move(taken));
}

void Stash::drop(uint32_t comm) {
  for (auto it = messages_.begin(); it != messages_.end();) {
    if (it->first >> 32 != comm) {
      ++it;
      continue;
    }
    for (const Message& message : it->second) count(message, -1);
    it = messages_.erase(it);
  }
  for (auto spares = spare_payloads_.rbegin(); spares != spare_payloads_.rend(); ++spares)
    for (; !spares->empty() && spare_bytes_ > kLargeBytes; spares->pop_back())
      spare_bytes_ -= spares->back().capacity();
}

}  // namespace weft::engine
