#include "transport/faulty.h"

#include <algorithm>

namespace weft::transport {

bool FaultyTransport::happens(double probability) {
  return probability > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

Status FaultyTransport::refuse(int peer) const {
  return fail(Code::remote_error, "rank {} is gone, as the faulty transport was told to pretend", peer);
}

Result<Progress> FaultyTransport::send(int peer, const Envelope& envelope, const void* payload) {
  if (gone(peer)) return refuse(peer);
  if (happens(options_.busy)) return Progress::busy;
  return inner().send(peer, envelope, payload);
}

Result<Progress> FaultyTransport::put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                                      const RemoteBuffer& target, uint64_t offset, Completion* done) {
  if (gone(peer)) return refuse(peer);
  if (happens(options_.busy)) return Progress::busy;
  return inner().put(peer, envelope, source, bytes, target, offset, done);
}

Result<Progress> FaultyTransport::put_gpu(int peer, const Envelope& envelope, const void* source,
                                          size_t bytes, const RemoteBuffer& target, uint64_t offset,
                                          Completion* done) {
  if (gone(peer)) return refuse(peer);
  if (happens(options_.busy)) return Progress::busy;
  return Decorator::put_gpu(peer, envelope, source, bytes, target, offset, done);
}

void* FaultyTransport::place(int peer, const Envelope& envelope) {
  return gone(peer) ? nullptr : sink_->place(peer, envelope);
}

void FaultyTransport::arrived(int peer, const Envelope& envelope, const void* payload) {
  if (gone(peer)) return;
  if (!happens(options_.hold)) return deliver(peer, envelope, payload);
  const uint64_t polls = 1 + random_() % static_cast<uint64_t>(std::max(options_.hold_polls, 1));
  Arrival arrival{polls_ + polls, peer, envelope, payload != nullptr, {}};
  if (payload != nullptr) {
    const auto* bytes = static_cast<const std::byte*>(payload);
    arrival.payload.assign(bytes, bytes + envelope.bytes);
  }
  held_.push_back(std::move(arrival));
}

void FaultyTransport::deliver(int peer, const Envelope& envelope, const void* payload) {
  ++delivered_;
  sink_->arrived(peer, envelope, payload);
}

void FaultyTransport::lost(int peer, const Status& why) {
  if (gone(peer)) return;
  if (peer == options_.lose_peer) lost_ = true;
  sink_->lost(peer, why);
}

int FaultyTransport::deliver_due() {
  std::vector<Arrival> due;
  std::erase_if(held_, [&](Arrival& arrival) {
    if (arrival.due > polls_) return false;
    due.push_back(std::move(arrival));
    return true;
  });
  std::shuffle(due.begin(), due.end(), random_);
  for (const Arrival& arrival : due)
    if (!gone(arrival.peer))
      deliver(arrival.peer, arrival.envelope, arrival.has_payload ? arrival.payload.data() : nullptr);
  return static_cast<int>(due.size());
}

Result<int> FaultyTransport::poll(Sink& sink) {
  ++polls_;
  sink_ = &sink;
  Result<int> events = inner().poll(*this);
  if (!events.ok()) return events;
  *events += deliver_due();
  if (options_.lose_peer >= 0 && !lost_ && delivered_ >= options_.lose_after) {
    lost(options_.lose_peer, refuse(options_.lose_peer));
    ++*events;
  }
  return events;
}

bool FaultyTransport::prepare_sleep() {
  const bool loss_due = options_.lose_peer >= 0 && !lost_ && delivered_ >= options_.lose_after;
  return held_.empty() && !loss_due && inner().prepare_sleep();
}

}  // namespace weft::transport
