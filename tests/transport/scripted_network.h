// ScriptedNetwork: transports of several ranks between which a test carries every message by hand. What a
// rank sends stays in flight() until the test delivers it, in any order, late, or never. The receiver sees it
// at its next poll(). A test also says which transports are busy or broken, which connections end, and when
// the source of a put may be reused. There are no threads, no clock and no randomness in it.
//
// Thread safety: none; with progress threads, under the receiving context's lock (see deliver()).
#pragma once

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "transport/transport.h"

namespace weft::transport {

class ScriptedNetwork {
 public:
  /// Something that a rank has sent and nobody has received.
  struct InFlight {
    int from, to;
    Envelope envelope;
    std::vector<std::byte> payload = {};  // of a message
    // Of a put.
    bool is_put = false;
    const void* source = nullptr;  // read when it is delivered
    size_t bytes = 0;
    RemoteBuffer target = {};
    uint64_t offset = 0;
    Completion* done = nullptr;  // null: the sender has forgotten it
  };

  struct Options {
    size_t eager_bytes = 4096;
    size_t brief_put_bytes = 0;  // every put of a known target goes one-sided
    bool reads_peers = false;    // as inside a node
  };

  explicit ScriptedNetwork(Options options) : options_(options) {}

  /// A transport of `rank`, for its fabric to own. The network outlives it.
  std::unique_ptr<Transport> make(int rank) {
    auto end = std::make_unique<End>(*this, rank);
    ends_[rank] = end.get();
    return end;
  }

  // ---- The script

  /// Oldest first. A test that erases one loses it.
  std::deque<InFlight>& flight() { return flight_; }
  /// The oldest in flight from one rank to another; fails the test if there is none.
  size_t find(int from, int to) const {
    for (size_t i = 0; i < flight_.size(); ++i)
      if (flight_[i].from == from && flight_[i].to == to) return i;
    ADD_FAILURE() << "rank " << from << " has sent nothing to rank " << to;
    return flight_.size();
  }
  /// Delivers flight()[at]. A put writes its bytes now, if its target is still exposed; its source may be
  /// reused at once, or after complete_put() if puts_complete is false.
  void deliver(size_t at) {
    ASSERT_LT(at, flight_.size());
    InFlight what = std::move(flight_[at]);
    flight_.erase(flight_.begin() + static_cast<std::ptrdiff_t>(at));
    if (what.is_put) {
      write_put(what);
      incomplete_.push_back(what.done);
      if (puts_complete) complete_put();
    }
    End& receiver = *ends_.at(what.to);
    receiver.arrivals.push_back(std::move(what));
    receiver.ring();
  }
  void deliver_all() {
    while (!flight_.empty()) deliver(0);
  }
  /// A message that no rank has sent.
  void forge(InFlight what) { flight_.push_back(std::move(what)); }
  bool puts_complete = true;
  /// The source of the put that was delivered first, of those that are not complete, may be reused.
  void complete_put() {
    ASSERT_FALSE(incomplete_.empty());
    if (Completion* const done = incomplete_.front()) done->done = true;
    incomplete_.pop_front();
  }
  /// Puts that were delivered and are not complete.
  size_t incomplete() const { return incomplete_.size(); }
  /// Which sends and puts are answered with busy, by (from, to).
  std::set<std::pair<int, int>> busy;
  /// Which sends, puts and reads fail, by (from, to).
  std::map<std::pair<int, int>, Status> broken;
  /// Called in each read, before it copies: with the reader, and the address in its peer.
  std::function<void(int reader, const void* from)> on_read = [](int, const void*) {};
  /// The connection of `rank` to `peer` ends: `rank` hears of it at its next poll().
  void lose(int rank, int peer, const Status& why) {
    ends_.at(rank)->losses.emplace_back(peer, why);
    ends_.at(rank)->ring();
  }

  // ---- What has happened

  /// Sends, puts and reads that were tried, also those that were refused.
  uint64_t tried(int from, int to) const {
    const auto found = tried_.find({from, to});
    return found == tried_.end() ? 0 : found->second;
  }
  /// What was delivered, and the losses, that a rank has not polled yet.
  size_t unheard(int rank) const {
    const auto end = ends_.find(rank);
    return end == ends_.end() ? 0 : end->second->arrivals.size() + end->second->losses.size();
  }
  /// Puts into memory that was not exposed any more. They wrote nothing.
  uint64_t stray_puts() const { return stray_puts_; }

 private:
  struct Keys {
    uint64_t exposure;
    uint64_t none[5] = {};
  };

  class End final : public Transport, PeerMapping {
   public:
    End(ScriptedNetwork& network, int rank) : network_(network), rank_(rank) {}

    std::string describe() const override { return "scripted"; }
    size_t eager_bytes() const override { return network_.options_.eager_bytes; }
    size_t brief_put_bytes() const override { return network_.options_.brief_put_bytes; }
    Result<Progress> send(int peer, const Envelope& envelope, const void* payload) override {
      WEFT_TRY(network_.attempt(rank_, peer));
      if (network_.busy.contains({rank_, peer})) return Progress::busy;
      InFlight what{rank_, peer, envelope, {}};
      if (payload) {
        what.payload.resize(envelope.bytes);
        std::memcpy(what.payload.data(), payload, envelope.bytes);
      }
      ++counters_.messages_sent;
      network_.flight_.push_back(std::move(what));
      return Progress::accepted;
    }
    Result<RemoteBuffer> expose(void* address, size_t bytes) override {
      RemoteBuffer buffer;
      buffer.address = reinterpret_cast<uintptr_t>(address);
      buffer.bytes = bytes;
      buffer.keys = TransportKeys(Keys{.exposure = ++network_.exposures_});
      ++network_.exposed_[{rank_, buffer.address}];
      return buffer;
    }
    void unexpose(const RemoteBuffer& buffer) override { --network_.exposed_[{rank_, buffer.address}]; }
    Result<Progress> put(int peer, const Envelope& envelope, const void* source, size_t bytes,
                         const RemoteBuffer& target, uint64_t offset, Completion* done) override {
      WEFT_TRY(network_.attempt(rank_, peer));
      if (network_.busy.contains({rank_, peer})) return Progress::busy;
      ++counters_.puts;
      network_.flight_.push_back({rank_, peer, envelope, {}, true, source, bytes, target, offset, done});
      return Progress::accepted;
    }
    void forget(const Completion* first, const Completion* last) override {
      for (InFlight& what : network_.flight_)
        if (what.done >= first && what.done < last) what.done = nullptr;
      for (Completion*& done : network_.incomplete_)
        if (done >= first && done < last) done = nullptr;
    }
    bool reads_forgotten() const override { return false; }
    PeerMapping* peer_mapping() override { return this; }
    MappedBuffer map(int, const RemoteBuffer&) override { return {}; }
    bool same_process(int) const override { return false; }
    bool reads_peers() const override { return network_.options_.reads_peers; }
    Status read(int peer, const RemoteBuffer& target, uint64_t offset, void* into, size_t bytes) override {
      WEFT_TRY(network_.attempt(rank_, peer));
      const auto* const from = reinterpret_cast<const std::byte*>(target.address) + offset;
      network_.on_read(rank_, from);
      std::memcpy(into, from, bytes);
      counters_.bytes_read += bytes;
      return {};
    }
    std::unique_ptr<Reading> begin_reading(int, const RemoteBuffer&, uint64_t, uint64_t) override {
      return nullptr;
    }
    void revoke(const RemoteBuffer& buffer) override {
      network_.revoked_.insert(buffer.keys.as<Keys>().exposure);
    }
    bool revoked(int, const RemoteBuffer& target) override {
      return network_.revoked_.contains(target.keys.as<Keys>().exposure);
    }
    uint64_t ticket() const override { return 0; }
    bool flushed(uint64_t) override { return true; }
    Status flush(Deadline) override { return {}; }
    Result<int> poll(Sink& sink) override {
      int events = 0;
      for (; !arrivals.empty(); ++events) {
        const InFlight what = std::move(arrivals.front());
        arrivals.pop_front();
        if (void* const place = what.payload.empty() ? nullptr : sink.place(what.from, what.envelope)) {
          std::memcpy(place, what.payload.data(), what.payload.size());
          sink.arrived(what.from, what.envelope, nullptr);
        } else {
          sink.arrived(what.from, what.envelope, what.payload.empty() ? nullptr : what.payload.data());
        }
      }
      for (const auto& [peer, why] : std::exchange(losses, {})) sink.lost(peer, why);
      uint64_t rings;
      (void)!::read(doorbell_.get(), &rings, sizeof rings);
      return events;
    }
    bool prepare_sleep() override { return arrivals.empty() && losses.empty(); }
    void finish_sleep() override {}
    Status watch(int epoll_fd) override {
      doorbell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      epoll_event event{.events = EPOLLIN, .data = {}};
      const bool added = epoll_ctl(epoll_fd, EPOLL_CTL_ADD, doorbell_.get(), &event) == 0;
      return added ? Status() : fail_errno(errno, "epoll_ctl");
    }
    Counters counters() const override { return counters_; }

    void ring() const {
      const uint64_t one = 1;
      (void)!::write(doorbell_.get(), &one, sizeof one);
    }
    std::deque<InFlight> arrivals;
    std::vector<std::pair<int, Status>> losses;

   private:
    ScriptedNetwork& network_;
    const int rank_;
    UniqueFd doorbell_;
    Counters counters_;
  };

  Status attempt(int from, int to) {
    ++tried_[{from, to}];
    const auto found = broken.find({from, to});
    return found == broken.end() ? Status() : found->second;
  }
  void write_put(const InFlight& put) {
    const auto found = exposed_.find({put.to, put.target.address});
    const bool exposed = found != exposed_.end() && found->second > 0;
    stray_puts_ += !exposed;
    if (exposed && put.bytes > 0 && put.done)
      std::memcpy(reinterpret_cast<std::byte*>(put.target.address) + put.offset, put.source, put.bytes);
  }

  const Options options_;
  std::map<int, End*> ends_;
  std::deque<InFlight> flight_;
  std::deque<Completion*> incomplete_;               // of puts that were delivered
  std::map<std::pair<int, uint64_t>, int> exposed_;  // how often, by rank and address
  std::map<std::pair<int, int>, uint64_t> tried_;
  uint64_t stray_puts_ = 0;
  uint64_t exposures_ = 0;  // so far
  std::set<uint64_t> revoked_;
};

}  // namespace weft::transport
