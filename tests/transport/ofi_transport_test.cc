// What the libfabric transport does in a corner: large puts, back pressure, sleeping, forgetting, dead peers,
// wrong settings.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <thread>

#include "transport/ofi_pair.h"

namespace weft::transport::ofi_test {
namespace {

size_t resident_bytes() {
  std::ifstream numbers("/proc/self/statm");
  size_t pages = 0, resident = 0;
  numbers >> pages >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST_P(OfiPair, LargePutsComeWhole) {
  for (bool messages_only : {false, true}) {
    options_.messages_only = messages_only;
    options_.register_sources = !messages_only;
    open();
    std::vector<char> window(64 << 20);
    b_sink_.on_place = [&](int, const Envelope&) { return window.data(); };
    Result<RemoteBuffer> target = b_->expose(window.data(), window.size());
    ASSERT_TRUE(target.ok());
    for (size_t bytes : {size_t{64} << 20, (size_t{5} << 20) + 12'345}) {
      std::vector<char> source(bytes);
      fill(source.data(), bytes, 0, 1, 7);
      Completion done;
      int arrived = 0;
      b_sink_.on_arrived = [&](int from, const Envelope& e, const void* payload) {
        arrived += from == 0 && e.op == 7 && payload == nullptr;
      };
      ASSERT_TRUE(put_both(source, *target, 7, &done));
      ASSERT_TRUE(until([&] { return done.done && arrived > 0; }));
      EXPECT_EQ(arrived, 1);
      EXPECT_TRUE(holds(window.data(), bytes, 0, 1, 7));
    }
    b_->unexpose(*target);
    EXPECT_EQ(a_->rails().registrations().live, 0u);
    EXPECT_EQ(b_->rails().registrations().live, 0u);
    EXPECT_EQ(a_->rails().registrations().misses, messages_only ? 0u : 2u);
  }
}

// Two who begin to connect at once may lose the connection that one of them sends over (ofi_protocol.h).
TEST_P(OfiPair, NothingButAGreetingIsSentBeforeThePeerHasAnswered) {
  if (GetParam() == "efa") GTEST_SKIP() << "EFA has no connections, so nobody greets";
  open();
  const auto send = [&] { return a_->send(1, envelope_of(3, 0), nullptr); };
  const Deadline deadline = Deadline::in_seconds(0.05);
  while (!deadline.passed()) {
    Result<Progress> outcome = send();
    ASSERT_TRUE(outcome.ok()) << outcome.status().message();
    ASSERT_EQ(*outcome, Progress::busy);
    ASSERT_TRUE(a_->poll(a_sink_).ok());
  }
  int arrived = 0;
  b_sink_.on_arrived = [&](int from, const Envelope& e, const void*) { arrived += from == 0 && e.op == 3; };
  bool sent = false;
  ASSERT_TRUE(until([&] {
    if (!sent) sent = *send() == Progress::accepted;
    return arrived > 0;
  }));
  EXPECT_EQ(arrived, 1);
}

// Each takes one rail; its announcement must not take the other one every time.
TEST_P(OfiPair, RailsShareShortPuts) {
  if (GetParam() == "efa") GTEST_SKIP() << "there are no sockets to count";
  options_.interface = "lo,lo";
  open();
  std::vector<char> target(100'000), source(target.size());
  const Result<RemoteBuffer> window = b_->expose(target.data(), target.size());
  ASSERT_TRUE(window.ok()) << window.status().message();
  b_sink_.on_place = [&](int, const Envelope&) { return target.data(); };
  constexpr uint32_t kPuts = 64;
  for (uint32_t op = 0; op < kPuts; ++op) {
    int arrived = 0;
    b_sink_.on_arrived = [&](int, const Envelope&, const void*) { ++arrived; };
    Completion done;
    ASSERT_TRUE(put_both(source, *window, op, &done));
    ASSERT_TRUE(until([&] { return done.done && arrived == 1; }));
  }
  EXPECT_EQ(busy_sockets(kPuts * source.size() / 4), 2);
  b_->unexpose(*window);
}

TEST_P(OfiPair, PutsWithoutAPlaceAreDropped) {
  options_.messages_only = true;
  open();
  std::vector<char> source(1 << 20, 'x'), window(1 << 20);
  int arrived = 0, payloads = 0;
  b_sink_.on_arrived = [&](int, const Envelope& e, const void* payload) {
    arrived += e.op == 3 && e.bytes == source.size();
    payloads += payload != nullptr;
  };
  Result<RemoteBuffer> target = b_->expose(window.data(), window.size());
  ASSERT_TRUE(target.ok());
  Completion done;
  ASSERT_TRUE(put_both(source, *target, 3, &done));
  EXPECT_TRUE(until([&] { return arrived > 0 && done.done; }));
  EXPECT_EQ(arrived, 1);
  EXPECT_EQ(payloads, 0);
  EXPECT_TRUE(std::ranges::all_of(window, [](char c) { return c == 0; }));
}

// The receiver has only the peer's word for the length.
TEST_P(OfiPair, APutWithoutAPlaceTakesNoMemory) {
  options_.messages_only = true;
  open();
  constexpr size_t kBytes = size_t{1} << 30;
  // Pages that nobody writes: what is read of them is one page of zeros.
  const auto unused = [](void* pages) { munmap(pages, kBytes); };
  const auto map = [&] {
    void* const pages = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return std::unique_ptr<void, decltype(unused)>(pages == MAP_FAILED ? nullptr : pages, unused);
  };
  const auto source = map(), window = map();
  ASSERT_TRUE(source && window);
  int segments = 0;
  b_sink_.on_place = [&](int, const Envelope&) { return ++segments, nullptr; };
  Result<RemoteBuffer> target = b_->expose(window.get(), kBytes);
  ASSERT_TRUE(target.ok());
  const size_t before = resident_bytes();
  Completion done;
  ASSERT_TRUE(until([&] {
    (void)a_->put(1, envelope_of(3, kBytes), source.get(), kBytes, *target, 0, &done);
    return segments > 0;
  }));
  EXPECT_LT(resident_bytes(), before + kBytes / 2);
  a_->forget(&done, &done + 1);
}

TEST_P(OfiPair, TellsWhetherAPutMayBeComingIn) {
  if (GetParam() == "efa") GTEST_SKIP() << "EFA keeps no order, so nothing tells";
  open();
  std::vector<char> source(64 << 20, 'x'), window(source.size());
  const volatile char* const first = window.data();
  int arrived = 0;
  b_sink_.on_arrived = [&](int, const Envelope&, const void*) { ++arrived; };
  Result<RemoteBuffer> target = b_->expose(window.data(), window.size());
  ASSERT_TRUE(target.ok());
  EXPECT_FALSE(b_->incoming().may_be_writing(0, 0));
  Completion done, never;
  ASSERT_TRUE(put_both(source, *target, 1, &done));
  ASSERT_TRUE(until([&] { return *first == 'x'; }));
  EXPECT_EQ(b_->incoming().may_be_writing(0, 0), arrived == 0);
  EXPECT_FALSE(b_->incoming().may_be_writing(0, 1))
      << "puts of another communicator are no concern of this one's";
  ASSERT_TRUE(until([&] { return arrived == 1 && done.done; }));
  EXPECT_FALSE(b_->incoming().may_be_writing(0, 0));

  // ofi_rxm says nothing of writes that it gives up.
  if (b_->describe().find("ofi_rxm") != std::string::npos) return;
  source.assign(source.size(), 'y');
  ASSERT_TRUE(put_both(source, *target, 2, &never));
  ASSERT_TRUE(until([&] { return *first == 'y'; }));
  a_.reset();  // in the middle of it
  const Deadline deadline = Deadline::in_seconds(kPatienceS);
  while (b_->incoming().may_be_writing(0, 0) && !deadline.passed()) ASSERT_TRUE(b_->poll(b_sink_).ok());
  EXPECT_FALSE(b_->incoming().may_be_writing(0, 0)) << "nobody is left who could";
}

// No put has been begun, and only the sender knows that.
TEST_P(OfiPair, APutMayBeComingInWhereStripesOvertakeTheirAnnouncement) {
  if (GetParam() != "efa") options_.interface = "lo,lo";
  open();
  EXPECT_FALSE(b_->rails().announcements_come_first());
  EXPECT_TRUE(b_->incoming().may_be_writing(0, 0));
}

TEST_P(OfiPair, TellsWhetherPagesAreExposedTwice) {
  open();
  std::vector<char> window(1 << 20);
  Result<RemoteBuffer> one = b_->expose(window.data(), window.size());
  ASSERT_TRUE(one.ok());
  EXPECT_FALSE(b_->rails().exposed_elsewhere(*one));
  Result<RemoteBuffer> other = b_->expose(window.data() + 1000, 1000);
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(b_->rails().exposed_elsewhere(*one));
  b_->unexpose(*other);
  EXPECT_FALSE(b_->rails().exposed_elsewhere(*one));
}

TEST_P(OfiPair, TakesMessagesAsLongAsPlannersExpect) {
  open();
  EXPECT_EQ(a_->net(), net_of_provider(GetParam()));
  EXPECT_EQ(a_->eager_bytes(), net_eager_bytes(a_->net()));
  options_.eager_bytes = 5000;
  open();
  EXPECT_EQ(a_->eager_bytes(), 5000u);
}

TEST_P(OfiPair, IsBusyWhenNobodyReceivesAndLosesNothing) {
  open();
  const std::vector<char> payload(a_->eager_bytes(), 'x');
  uint32_t sent = 0, arrived = 0;
  FunctionSink nothing;
  bool busy = false;
  for (; !busy && sent < 1'000'000; sent += !busy) {
    Result<Progress> outcome = a_->send(1, envelope_of(sent, payload.size()), payload.data());
    ASSERT_TRUE(outcome.ok()) << outcome.status().message();
    busy = *outcome == Progress::busy;
  }
  EXPECT_TRUE(busy);
  std::vector<bool> seen(sent);
  b_sink_.on_arrived = [&](int, const Envelope& e, const void*) { seen[e.op] = true, ++arrived; };
  EXPECT_TRUE(until([&] { return arrived == sent; }));
  EXPECT_EQ(std::ranges::count(seen, true), sent);
  EXPECT_EQ(a_->counters().messages_sent, sent);
}

// All senders share a rank's receives: one that is not to send more has to be kept from it.
TEST_P(OfiPair, MessagesWaitForAPeerThatTakesNoMore) {
  constexpr size_t kMost = 100'000;
  options_.message_credit = kMost;
  for (const size_t bytes : {size_t{8}, size_t{8000}}) {
    open();
    const std::vector<char> payload(bytes, 'x');
    uint32_t sent = 0, arrived = 0;
    b_sink_.on_arrived = [&](int, const Envelope&, const void*) { ++arrived; };
    const auto send = [&] {
      Result<Progress> outcome = a_->send(1, envelope_of(sent, bytes), payload.data());
      EXPECT_TRUE(outcome.ok()) << outcome.status().message();
      const bool accepted = outcome && *outcome == Progress::accepted;
      sent += accepted;
      return accepted;
    };
    // Never more than what is allowed and one message, however long it tries.
    bool takes = false;
    b_sink_.on_takes_early = [&](int) { return takes; };
    const uint32_t row = static_cast<uint32_t>(kMost / ofi::message_cost(bytes)) + 1;
    ASSERT_TRUE(until([&] { return send(), arrived == row; }));
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(a_->poll(a_sink_).ok() && b_->poll(b_sink_).ok());
      EXPECT_FALSE(send());
    }
    // Then as much as anybody likes.
    takes = true;
    ASSERT_TRUE(until([&] { return (sent < 5 * row && send()), arrived == 5 * row; }));
  }
}

TEST_P(OfiPair, AMessageThatIsLongerThanWhatMayWaitGoesAlone) {
  options_.message_credit = 100;
  open();
  const std::vector<char> payload(8000, 'x');
  uint32_t sent = 0, arrived = 0;
  b_sink_.on_arrived = [&](int, const Envelope&, const void*) { ++arrived; };
  ASSERT_TRUE(until([&] {
    Result<Progress> outcome = a_->send(1, envelope_of(sent, payload.size()), payload.data());
    sent += outcome && *outcome == Progress::accepted;
    EXPECT_LE(sent - arrived, 1u);
    return arrived >= 100;
  }));
}

// Whoever may not send more messages hears of puts nevertheless.
TEST_P(OfiPair, PutsGoOnWhileMessagesWait) {
  options_.message_credit = 1000;
  options_.sequence_bits = 2;
  open();
  uint32_t messages = 0, puts = 0;
  constexpr uint32_t kPuts = 50, kMessage = 1000;
  b_sink_.on_arrived = [&](int, const Envelope& e, const void*) { ++(e.op < kMessage ? puts : messages); };
  b_sink_.on_takes_early = [](int) { return false; };
  const std::vector<char> payload(500, 'x');
  uint32_t sent = 0;
  ASSERT_TRUE(until([&] {
    Result<Progress> outcome = a_->send(1, envelope_of(kMessage + sent, payload.size()), payload.data());
    sent += outcome && *outcome == Progress::accepted;
    return messages == 2;
  }));
  std::vector<char> source(1000), window(1000);
  Result<RemoteBuffer> target = b_->expose(window.data(), window.size());
  ASSERT_TRUE(target.ok());
  std::vector<Completion> done(kPuts);
  for (uint32_t i = 0; i < kPuts; ++i) ASSERT_TRUE(put_both(source, *target, i, &done[i]));
  EXPECT_TRUE(until([&] { return puts == kPuts; }));
  EXPECT_EQ(messages, sent);
}

TEST_P(OfiPair, ASmallWindowOfPutsIsEnough) {
  options_.sequence_bits = 2;  // four puts under way, then an acknowledgement is needed
  open();
  std::vector<char> source(1000), window(1000);
  uint32_t arrived = 0, order = 0;
  b_sink_.on_arrived = [&](int, const Envelope& e, const void*) { ++arrived, order += e.op; };
  Result<RemoteBuffer> target = b_->expose(window.data(), window.size());
  ASSERT_TRUE(target.ok());
  std::vector<Completion> done(100);
  uint32_t started = 0;
  ASSERT_TRUE(until([&] {
    Result<Progress> outcome =
        started < done.size() ? put(source, *target, started, &done[started]) : Progress::busy;
    if (outcome && *outcome == Progress::accepted) ++started;
    EXPECT_LE(started - arrived, 4u);
    return arrived == done.size();
  }));
  EXPECT_EQ(order, 99u * 100 / 2);
  EXPECT_TRUE(until([&] { return std::ranges::all_of(done, &Completion::done); }));
}

TEST_P(OfiPair, ForgottenPutsEndAndLaterOnesArrive) {
  for (bool messages_only : {false, true}) {
    options_.messages_only = messages_only;
    options_.sequence_bits = 3;
    open();
    std::vector<char> window(16 << 20);
    uint32_t last = 0;
    b_sink_.on_place = [&](int, const Envelope&) { return window.data(); };
    b_sink_.on_arrived = [&](int, const Envelope& e, const void*) { last = std::max(last, e.op); };
    Result<RemoteBuffer> target = b_->expose(window.data(), window.size());
    ASSERT_TRUE(target.ok());
    for (uint32_t round = 1; round <= 6; ++round) {
      std::vector<char> source(window.size()), small(100);
      std::vector<Completion> forgotten(2);
      Completion kept;
      ASSERT_TRUE(put_both(small, *target, 0, &kept));
      ASSERT_TRUE(put_both(source, *target, 0, &forgotten[0]));
      a_->forget(forgotten.data(), forgotten.data() + forgotten.size());
      const bool was_done = forgotten[0].done;
      ASSERT_TRUE(put_both(small, *target, round, &kept));
      ASSERT_TRUE(until([&] { return last == round; })) << "round " << round;
      EXPECT_EQ(forgotten[0].done, was_done);
      // What has gone to libfabric may still be read: see forget().
      EXPECT_TRUE(until([&] { return a_->flush(Deadline::in_seconds(0)).ok(); }));
    }
  }
}

TEST_P(OfiPair, SaysWhetherForgottenSourcesAreStillRead) {
  open();
  std::vector<char> window(8 << 20), source(window.size());
  auto target = b_->expose(window.data(), window.size());
  ASSERT_TRUE(target.ok());
  Completion done[2];
  ASSERT_TRUE(put_both(source, *target, 0, &done[0]));
  ASSERT_TRUE(until([&] { return done[0].done; }));
  ASSERT_TRUE(put_all(*a_, a_sink_, 1, envelope_of(1, source.size()), source.data(), *target, 0, &done[1]));
  EXPECT_FALSE(a_->reads_forgotten()) << "nothing is forgotten yet";
  EXPECT_TRUE(a_->puts().carries(done[1]));
  EXPECT_FALSE(a_->puts().carries(done[0])) << "it is over";
  a_->forget(&done[1], &done[1] + 1);
  EXPECT_FALSE(a_->puts().carries(done[1])) << "nothing will set it";
  EXPECT_TRUE(a_->reads_forgotten());
  EXPECT_TRUE(a_->puts().reads_forgotten(1));
  EXPECT_FALSE(a_->puts().reads_forgotten(0)) << "that is this rank itself";
  ASSERT_TRUE(until([&] { return a_->idle(); }));
  EXPECT_FALSE(a_->reads_forgotten());
}

TEST_P(OfiPair, SleepsUntilSomethingComes) {
  open();
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  ASSERT_TRUE(b_->watch(epoll).ok());
  int arrived = 0;
  b_sink_.on_arrived = [&](int, const Envelope&, const void*) { ++arrived; };
  // Once connected, the rank that receives sleeps and the other one sends.
  for (int round = 1; round <= 5; ++round) {
    std::thread sender([&] {
      usleep(20'000);
      EXPECT_TRUE(send_all(*a_, a_sink_, 1, envelope_of(0, 0), nullptr));
      EXPECT_TRUE(a_->flush(Deadline::in_seconds(kPatienceS)).ok());
    });
    const Deadline deadline = Deadline::in_seconds(kPatienceS);
    int sleeps = 0;
    while (arrived < round && !deadline.passed()) {
      Result<int> events = b_->poll(b_sink_);
      ASSERT_TRUE(events.ok());
      if (*events > 0 || arrived == round) continue;
      if (b_->prepare_sleep()) {
        epoll_event event;
        ++sleeps;
        EXPECT_EQ(epoll_wait(epoll, &event, 1, deadline.remaining_ms()), 1) << "nothing woke the sleeper";
      }
      b_->finish_sleep();
    }
    sender.join();
    EXPECT_EQ(arrived, round);
    EXPECT_GT(sleeps, 0);
    EXPECT_LT(sleeps, 1000) << "that was no sleep";
  }
  close(epoll);
}

TEST_P(OfiPair, DestroysWithThingsInFlight) {
  for (int victim : {0, 1}) {
    open();
    std::vector<char> source(64 << 20), window(64 << 20);
    Completion done;
    Result<RemoteBuffer> target = b_->expose(window.data(), window.size());
    ASSERT_TRUE(target.ok());
    EXPECT_TRUE(put_both(source, *target, 1, &done));
    for (int i = 0; i < 200; ++i) {
      (void)a_->send(1, envelope_of(2, 0), nullptr);
      (void)a_->poll(a_sink_), (void)b_->poll(b_sink_);
    }
    (victim == 0 ? a_ : b_).reset();
    for (int i = 0; i < 200; ++i) (void)(victim == 0 ? b_ : a_)->poll(victim == 0 ? b_sink_ : a_sink_);
    a_.reset(), b_.reset();
  }
}

TEST_P(OfiPair, AKilledPeerIsLostOnce) {
  const bool ran = run_processes(2, options_, [&](OfiTransport& transport, int rank) -> std::string {
    FunctionSink sink;
    std::vector<char> memory(64 << 20);
    RemoteBuffer target;
    sink.on_arrived = [&](int, const Envelope& e, const void* payload) {
      if (e.bytes == sizeof(target) && payload) std::memcpy(&target, payload, sizeof(target));
    };
    if (rank == 1) {
      target = *transport.expose(memory.data(), memory.size());
      if (!send_all(transport, sink, 0, envelope_of(0, sizeof(target)), &target)) return "cannot send";
      for (int i = 0; i < 1000; ++i) (void)transport.poll(sink);
      usleep(50'000);
      kill(getpid(), SIGKILL);
    }
    if (!poll_until(transport, sink, [&] { return target.bytes > 0; })) return "no window came";
    Completion done;
    auto lost = poll_until(transport, sink, [&] {
      (void)transport.put(1, envelope_of(1, memory.size()), memory.data(), memory.size(), target, 0, &done);
      return !sink.losses.empty();
    });
    if (!lost) return "the loss was not noticed";
    for (int i = 0; i < 1000; ++i) (void)transport.poll(sink);
    if (sink.losses.size() != 1 || sink.losses[0].first != 1) return "not lost exactly once";
    if (sink.losses[0].second.message().find("rank 1") == std::string::npos) return "the rank is not named";
    Result<Progress> after = transport.send(1, envelope_of(0, 0), nullptr);
    return after || after.status().code() != Code::remote_error ? "still sends" : "";
  });
  EXPECT_TRUE(ran);
}

TEST_P(OfiPair, RefusesWhatMakesNoSense) {
  open();
  std::vector<char> memory(100);
  Result<RemoteBuffer> target = b_->expose(memory.data(), memory.size());
  ASSERT_TRUE(target.ok());
  Completion done;
  auto code = [](const Result<Progress>& outcome) { return outcome.status().code(); };
  EXPECT_EQ(code(a_->send(0, Envelope{}, nullptr)), Code::invalid_argument) << "to itself";
  EXPECT_EQ(code(a_->send(2, Envelope{}, nullptr)), Code::invalid_argument);
  EXPECT_EQ(code(a_->send(1, envelope_of(0, a_->eager_bytes() + 1), nullptr)), Code::invalid_argument);
  EXPECT_EQ(code(a_->put(1, envelope_of(0, 100), memory.data(), 100, *target, 1, &done)),
            Code::invalid_argument);
  EXPECT_EQ(code(a_->put(1, envelope_of(0, 99), memory.data(), 100, *target, 0, &done)),
            Code::invalid_argument);
  // Nothing is read or written of those that are refused.
  const size_t longer = (size_t{1} << 32) + 5;
  const RemoteBuffer vast{.address = 0, .bytes = longer};
  EXPECT_EQ(code(a_->put(1, envelope_of(0, 5), memory.data(), longer, vast, 0, &done)),
            Code::invalid_argument)
      << "its length was cut off";
  EXPECT_EQ(code(a_->put(1, envelope_of(0, UINT32_MAX), memory.data(), longer, vast, 0, &done)),
            Code::unsupported)
      << "in messages";
  EXPECT_EQ(a_->connect({a_->address()}).code(), Code::invalid_argument);
  EXPECT_EQ(a_->connect({a_->address(), {}}).code(), Code::protocol_error);
  auto lonely = OfiTransport::create(0, 2, options_);
  ASSERT_TRUE(lonely.ok());
  EXPECT_EQ(code((*lonely)->send(1, Envelope{}, nullptr)), Code::invalid_usage);
}

INSTANTIATE_TEST_SUITE_P(Tcp, OfiPair, ::testing::ValuesIn(providers_under_test()),
                         [](const auto& info) { return info.param; });

TEST(OfiProviders, AWrongNameIsToldWhatThereIs) {
  auto transport = OfiTransport::create(0, 2, named("nonesuch"));
  ASSERT_FALSE(transport.ok());
  EXPECT_EQ(transport.status().code(), Code::invalid_setting);
  EXPECT_NE(transport.status().message().find("nonesuch"), std::string::npos);
  for (const ProviderInfo& row : list_providers())
    if (row.usable) {
      EXPECT_NE(transport.status().message().find(row.name), std::string::npos) << row.name;
    }
}

// Before Linux 5.13 EFA's provider ends a process that forks, unless it was told to expect that.
TEST(OfiProviders, EfaIsToldThatTheProgramMayFork) {
  ASSERT_TRUE(ofi::open_library().ok());
  EXPECT_STREQ(std::getenv("FI_EFA_FORK_SAFE"), "1");
}

TEST(OfiProviders, RanksOfDifferentProvidersAreToldSo) {
  if (!is_offered("net") || !is_offered("tcp")) GTEST_SKIP() << "libfabric does not offer two providers here";
  auto a = OfiTransport::create(0, 2, named("net"));
  auto b = OfiTransport::create(1, 2, named("tcp;ofi_rxm"));
  if (!a || !b) GTEST_SKIP() << "this libfabric's tcp needs no ofi_rxm";
  const Status connected = (*a)->connect({(*a)->address(), (*b)->address()});
  EXPECT_EQ(connected.code(), Code::protocol_error);
  EXPECT_NE(connected.message().find("rank 1"), std::string::npos) << connected.message();
}

// The first was a bridge of containers, which leads nowhere, or which somebody removed under the job.
TEST(OfiProviders, APlainNetworkIsTheInterfaceOverWhichTheRanksMeet) {
  for (const std::string& provider : providers_under_test()) {
    if (provider == "efa" || !is_offered(provider)) continue;
    OfiOptions options = named(provider);
    options.met_over = "lo";
    const auto transport = OfiTransport::create(0, 2, options);
    ASSERT_TRUE(transport.ok()) << transport.status().message();
    EXPECT_TRUE((*transport)->describe().ends_with(" over lo")) << (*transport)->describe();
  }
}

TEST(OfiProviders, DomainsAreThoseOfTheSetting) {
  const std::vector<ProviderInfo> rows = list_providers();
  const auto rails_of = [](const std::string& provider, const std::string& domains) {
    OfiOptions options = named(provider);
    options.domains = domains;
    const auto infos = ofi::choose_rails(options);
    EXPECT_TRUE(infos.ok()) << infos.status().message();
    std::vector<std::string> rails;
    for (size_t rail = 0; infos.ok() && rail < infos->size(); ++rail)
      rails.emplace_back((*infos)[rail]->domain_attr->name);
    return rails;
  };
  for (const std::string& provider : providers_under_test()) {
    if (!is_offered(provider)) continue;
    std::vector<std::string> all;
    for (const ProviderInfo& row : rows)
      if (row.usable && row.name == provider && std::ranges::count(all, row.domain) == 0)
        all.push_back(row.domain);
    using Rails = std::vector<std::string>;
    for (const std::string& domain : all) {
      EXPECT_EQ(rails_of(provider, "=" + domain), Rails{domain});
      if (domain.ends_with("-rdm")) {
        EXPECT_EQ(rails_of(provider, "=" + domain.substr(0, domain.size() - 4)), Rails{domain});
      }
      if (all.size() > 1) {
        EXPECT_EQ(std::ranges::count(rails_of(provider, "^=" + domain), domain), 0);
      }
    }
    if (all.size() > 1) {
      EXPECT_EQ(rails_of(provider, "=" + all[1] + "," + all[0]), (Rails{all[1], all[0]}));
    }
    OfiOptions none = named(provider);
    none.domains = "=nonesuch";
    const auto infos = ofi::choose_rails(none);
    EXPECT_EQ(infos.status().code(), Code::invalid_setting);
    EXPECT_NE(
        infos.status().message().find("WEFT_OFI_DOMAINS is '=nonesuch', which leaves no domain; libfabric "
                                      "offers "),
        std::string::npos)
        << infos.status().message();
    EXPECT_NE(infos.status().message().find(all.empty() ? "" : all[0]), std::string::npos);
  }
}

TEST(OfiProviders, EveryRowSaysWhyItIsNotUsable) {
  for (const ProviderInfo& row : list_providers()) {
    EXPECT_FALSE(row.name.empty());
    EXPECT_EQ(row.usable, row.why_not.empty()) << row.name;
    EXPECT_TRUE(row.usable || !row.automatic) << row.name;
  }
}

}  // namespace
}  // namespace weft::transport::ofi_test
