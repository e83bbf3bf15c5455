// What a rank has sent or put over libfabric arrives, although the rank polls no more, or has left.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "transport/ofi_pair.h"

namespace weft::transport::ofi_test {
namespace {

// The acknowledgement found nobody, and what had come together with that was taken for a lost peer's.
TEST_P(OfiPair, WhatARankHasSentBeforeItLeavesArrives) {
  options_.message_credit = 1 << 20;
  open();
  const std::vector<char> payload(4000, 'x');
  const uint32_t row = (1 << 20) / static_cast<uint32_t>(ofi::message_cost(payload.size()));
  uint32_t sent = 0, arrived = 0;
  b_sink_.on_arrived = [&](int, const Envelope&, const void*) { ++arrived; };
  const auto send = [&] {
    Result<Progress> outcome = a_->send(1, envelope_of(sent, payload.size()), payload.data());
    EXPECT_TRUE(outcome.ok()) << outcome.status().message();
    sent += outcome && *outcome == Progress::accepted;
  };
  ASSERT_TRUE(until([&] { return send(), sent > 0; }));  // they know each other
  std::atomic<bool> gone{false};
  std::thread leaves([&] {
    EXPECT_TRUE(poll_until(*a_, a_sink_, [&] { return sent == row || (send(), sent == row); }));
    EXPECT_TRUE(a_->flush(Deadline::in_seconds(kPatienceS)).ok());
    a_.reset();
    gone = true;
  });
  usleep(100'000);
  EXPECT_TRUE(poll_until(*b_, b_sink_, [&] { return gone && (arrived == row || !b_sink_.losses.empty()); }));
  leaves.join();
  EXPECT_EQ(arrived, row) << (b_sink_.losses.empty() ? "" : b_sink_.losses[0].second.message());
}

// An acknowledgement of puts found nobody, and what the leaving rank's kernel still had to send was dropped.
TEST_P(OfiPair, WhatARankHasPutBeforeItLeavesArrives) {
  if (GetParam() == "efa") GTEST_SKIP() << "EFA has no connections that an acknowledgement could break";
  options_.sequence_bits = 4;  // the peer acknowledges four puts at once
  open();
  constexpr uint32_t kPuts = 7;
  std::vector<char> source(256 << 10, 'x'), window(source.size());
  uint32_t arrived = 0;
  b_sink_.on_place = [&](int, const Envelope&) { return window.data(); };
  b_sink_.on_arrived = [&](int, const Envelope& e, const void*) { arrived += e.bytes > 0; };
  const Result<RemoteBuffer> target = b_->expose(window.data(), window.size());
  ASSERT_TRUE(target.ok());
  ASSERT_TRUE(until([&] { return *a_->send(1, envelope_of(0, 0), nullptr) == Progress::accepted; }));
  set_socket_buffers(SO_RCVBUF, 64 << 10);
  std::atomic<bool> gone{false};
  std::thread leaves([&] {
    std::vector<Completion> done(kPuts);
    for (uint32_t i = 0; i < kPuts; ++i)
      EXPECT_TRUE(
          put_all(*a_, a_sink_, 1, envelope_of(i, source.size()), source.data(), *target, 0, &done[i]));
    EXPECT_TRUE(poll_until(*a_, a_sink_, [&] { return std::ranges::all_of(done, &Completion::done); }));
    EXPECT_TRUE(a_->flush(Deadline::in_seconds(kPatienceS)).ok());
    a_.reset();
    gone = true;
  });
  usleep(100'000);  // a rank that waits for nobody has left by now, and its kernel has most of the puts
  EXPECT_TRUE(poll_until(*b_, b_sink_, [&] { return gone && arrived == kPuts; }));
  leaves.join();
  EXPECT_EQ(arrived, kPuts);
}

// Providers over TCP reported a message as sent that they kept in a buffer of their own. Nobody emptied the
// buffer until the sender called again, and a sender that left took its messages with it.
TEST_P(OfiPair, AMessageThatIsFlushedNeedsNoPollOfItsSender) {
  if (GetParam() == "efa") GTEST_SKIP() << "EFA has no sockets that could be full";
  open();
  uint32_t sent = 0, arrived = 0;
  b_sink_.on_arrived = [&](int, const Envelope&, const void*) { ++arrived; };
  const std::vector<char> payload(500, 'x');
  const auto send = [&] {
    const Result<Progress> outcome = a_->send(1, envelope_of(sent, payload.size()), payload.data());
    EXPECT_TRUE(outcome.ok()) << outcome.status().message();
    const bool accepted = outcome && *outcome == Progress::accepted;
    sent += accepted;
    return accepted;
  };
  ASSERT_TRUE(until([&] { return sent > 0 || send(); }));
  set_socket_buffers(SO_SNDBUF, 1);
  for (int round = 0; round < 3; ++round) {
    while (send()) {
    }
    const uint64_t ticket = a_->ticket();
    ASSERT_TRUE(until([&] { return a_->flushed(ticket); }));
    ASSERT_TRUE(poll_until(*b_, b_sink_, [&] { return arrived == sent; }))
        << sent - arrived << " of " << sent << " messages are still with their sender, in round " << round;
  }
}

}  // namespace
}  // namespace weft::transport::ofi_test
