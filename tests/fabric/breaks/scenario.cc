// The libfabric transport's work over a network without order, in one thread. Random messages and puts go in
// both directions, with small windows, credits and stripes. Sources are used again as soon as they are free.
// Puts are forgotten, and a transport ends right after its last message. The program is linked with a
// transport that has breaks (breaks.py).
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "transport/ofi.h"
#include "transport/ofi_ranks.h"

namespace weft::transport::ofi_test {
namespace {

constexpr size_t kSlotBytes = 200'000;
constexpr uint32_t kWindow = 1u << 31;  // of Envelope::op: it carries a window

/// One of two ranks.
class Side {
 public:
  Side(int rank, std::unique_ptr<OfiTransport> transport, uint32_t items)
      : rank_(rank), transport_(std::move(transport)), window_(items * kSlotBytes), seen_(items) {
    sink_.on_place = [this](int, const Envelope& e) -> void* { return e.kind == 1 ? slot(e.op) : nullptr; };
    sink_.on_arrived = [this](int, const Envelope& e, const void* payload) { arrived(e, payload); };
    sink_.on_takes_early = [this](int) { return takes_early_; };
  }

  OfiTransport& transport() { return *transport_; }
  const std::string& wrong() const { return wrong_; }
  uint32_t came() const { return came_; }
  void pause(bool paused) { takes_early_ = !paused; }
  void leave() { transport_.reset(); }

  void expose() {
    Result<RemoteBuffer> made = transport_->expose(window_.data(), window_.size());
    if (!made) return fail(made.status().message());
    exposed_ = *made;
  }
  void unexpose() { transport_->unexpose(exposed_); }

  /// The number of events; -1 after a failure.
  int poll() {
    if (!transport_) return 0;
    Result<int> events = transport_->poll(sink_);
    if (!events) fail(events.status().message());
    for (const auto& [peer, why] : sink_.losses) fail(why.message());
    reuse_sources();
    return events ? *events : -1;
  }

  /// False while there is no room.
  bool send_window() {
    Envelope e;
    e.op = kWindow, e.bytes = sizeof exposed_;
    return accepted(transport_->send(1 - rank_, e, &exposed_));
  }
  bool knows_window() const { return target_.bytes > 0; }
  bool send(uint32_t item, size_t bytes) {
    std::vector<char> payload(bytes);
    fill(payload.data(), bytes, rank_, 1 - rank_, item);
    Envelope e;
    e.op = item, e.bytes = static_cast<uint32_t>(bytes);
    const bool sent = accepted(transport_->send(1 - rank_, e, payload.data()));
    std::memset(payload.data(), 'x', bytes);
    return sent;
  }
  bool put(uint32_t item, size_t bytes) {
    auto source = std::make_unique<Source>();
    source->bytes.resize(bytes);
    fill(source->bytes.data(), bytes, rank_, 1 - rank_, item);
    Envelope e;
    e.kind = 1, e.op = item, e.bytes = static_cast<uint32_t>(bytes);
    const bool put = accepted(transport_->put(1 - rank_, e, source->bytes.data(), bytes, target_,
                                              item * kSlotBytes, &source->done));
    if (put) sources_.push_back(std::move(source));
    return put;
  }
  /// Gives up the youngest put, unless it is over.
  void forget() {
    Source& youngest = *sources_.back();
    if (youngest.done.done) return;
    transport_->forget(&youngest.done, &youngest.done + 1);
    youngest.forgotten = true;
    ++forgotten_;
  }
  uint32_t forgotten() const { return forgotten_; }
  bool all_sources_free() const {
    return std::ranges::all_of(sources_, [](const auto& s) { return s->done.done || s->forgotten; });
  }

 private:
  struct Source {
    std::vector<char> bytes;
    Completion done;
    bool reused = false, forgotten = false;
  };

  char* slot(uint32_t item) { return window_.data() + item * kSlotBytes; }
  void fail(const std::string& why) {
    if (wrong_.empty()) wrong_ = fmt::format("rank {}: {}", rank_, why);
  }
  bool accepted(const Result<Progress>& outcome) {
    if (!outcome) fail(outcome.status().message());
    return outcome && *outcome == Progress::accepted;
  }
  void reuse_sources() {
    for (auto& source : sources_)
      if (source->done.done && !std::exchange(source->reused, true))
        std::memset(source->bytes.data(), 'x', source->bytes.size());
  }
  void arrived(const Envelope& e, const void* payload) {
    if (e.op == kWindow) return void(std::memcpy(&target_, payload, sizeof target_));
    if (e.op >= seen_.size() || seen_[e.op])
      return fail(fmt::format("item {} came twice, or never was", e.op));
    seen_[e.op] = true;
    ++came_;
    if (!holds(payload ? payload : slot(e.op), e.bytes, 1 - rank_, rank_, e.op))
      fail(fmt::format("item {} of {} bytes is damaged", e.op, e.bytes));
  }

  const int rank_;
  std::unique_ptr<OfiTransport> transport_;
  FunctionSink sink_;
  std::vector<char> window_;
  std::vector<bool> seen_;
  RemoteBuffer exposed_, target_;
  std::vector<std::unique_ptr<Source>> sources_;
  uint32_t came_ = 0, forgotten_ = 0;
  bool takes_early_ = true;
  std::string wrong_;
};

class Scenario : public ::testing::Test {
 protected:
  void open(uint32_t items) {
    options_.provider = "efa";
    auto pair = introduced(2, options_);
    ASSERT_TRUE(pair.ok()) << pair.status().message();
    for (int rank = 0; rank < 2; ++rank)
      sides_.push_back(std::make_unique<Side>(rank, std::move((*pair)[static_cast<size_t>(rank)]), items));
    for (auto& side : sides_) side->expose();
    bool told[2] = {};
    ASSERT_TRUE(until([&] {
      for (int rank = 0; rank < 2; ++rank) told[rank] = told[rank] || this->side(rank).send_window();
      return side(0).knows_window() && side(1).knows_window();
    }));
  }
  Side& side(int rank) { return *sides_[static_cast<size_t>(rank)]; }

  /// Polls both until `over`, which is asked after each poll. Counts polls, and no time.
  ::testing::AssertionResult until(const std::function<bool()>& over) {
    constexpr int kQuietPolls = 20'000;
    for (int quiet = 0; quiet < kQuietPolls; ++quiet) {
      if (over()) return ::testing::AssertionSuccess();
      for (auto& side : sides_) {
        if (side->poll() > 0) quiet = 0;
        if (!side->wrong().empty()) return ::testing::AssertionFailure() << side->wrong();
      }
    }
    return ::testing::AssertionFailure()
           << "nothing happens any more: " << side(0).came() << " and " << side(1).came() << " items came";
  }

  /// Random messages and puts in both directions.
  void exchange(uint32_t items) {
    ASSERT_NO_FATAL_FAILURE(open(items));
    uint32_t next[2] = {};
    std::mt19937_64 random(7);
    const auto size_of = [&](uint32_t item, bool message) {
      const size_t most = message ? side(0).transport().eager_bytes() : kSlotBytes;
      return item < 2 ? item * most : random() % (most + 1);
    };
    EXPECT_TRUE(until([&] {
      for (int rank = 0; rank < 2; ++rank) {
        uint32_t& item = next[rank];
        if (item >= items) continue;
        const bool message = item % 3 == 2;
        const size_t bytes = size_of(item, message);
        item += message ? side(rank).send(item, bytes) : side(rank).put(item, bytes);
      }
      return side(0).came() == items && side(1).came() == items && side(0).all_sources_free() &&
             side(1).all_sources_free();
    }));
  }

  OfiOptions options_;
  std::vector<std::unique_ptr<Side>> sides_;
};

TEST_F(Scenario, MessagesAndPuts) {
  options_.stripe_bytes = 30'000;
  exchange(60);
}

TEST_F(Scenario, PutsInMessages) {
  options_.messages_only = true;
  exchange(40);
}

TEST_F(Scenario, FewPutsUnderWay) {
  options_.sequence_bits = 3;
  options_.stripe_bytes = 50'000;
  exchange(120);
}

TEST_F(Scenario, FewMessagesUnderWay) {
  options_.message_credit = 20'000;
  exchange(300);
}

TEST_F(Scenario, PutsThatAreForgotten) {
  constexpr uint32_t kItems = 200;
  options_.sequence_bits = 3;
  options_.stripe_bytes = 1 << 10;  // so that stripes wait for room
  ASSERT_NO_FATAL_FAILURE(open(kItems));
  uint32_t next = 0;
  EXPECT_TRUE(until([&] {
    if (next < kItems && side(0).put(next, 100'000) && ++next % 2 == 0 && next < kItems) side(0).forget();
    return next == kItems && side(1).came() + side(0).forgotten() >= kItems && side(0).transport().idle();
  }));
  EXPECT_GT(side(0).forgotten(), 0u);
}

// A late acknowledgement must not undo a newer one.
TEST_F(Scenario, PutsNowAndThen) {
  constexpr uint32_t kItems = 300;
  constexpr int kPollsBetween = 40;
  options_.sequence_bits = 2;
  ASSERT_NO_FATAL_FAILURE(open(kItems));
  uint32_t next = 0;
  int polls = 0;
  EXPECT_TRUE(until([&] {
    if (next < kItems && polls++ >= kPollsBetween && side(0).put(next, 100)) ++next, polls = 0;
    return side(1).came() == kItems;
  }));
}

class LastMessages : public Scenario {
 protected:
  /// Sends some, waits until all have left by what `left` says, and leaves.
  void send_and_leave(const std::function<bool(OfiTransport&)>& left) {
    constexpr uint32_t kItems = 24;  // more than fit into the network while nobody receives
    ASSERT_NO_FATAL_FAILURE(open(kItems));
    for (uint32_t next = 0; next < kItems;) next += side(0).send(next, 5000);
    ASSERT_TRUE(until([&] { return left(side(0).transport()); }));
    side(0).leave();
    EXPECT_TRUE(until([&] { return side(1).came() == kItems; }));
  }
};

TEST_F(LastMessages, HaveLeftWhenATransportIsIdle) {
  send_and_leave([](OfiTransport& transport) { return transport.idle(); });
}

TEST_F(LastMessages, HaveLeftWhenTheirTicketIsFlushed) {
  send_and_leave([](OfiTransport& transport) { return transport.flushed(transport.ticket()); });
}

}  // namespace
}  // namespace weft::transport::ofi_test
