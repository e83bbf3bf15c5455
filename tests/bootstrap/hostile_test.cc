// Listeners on a hostile network: garbage neither gets in nor keeps good ranks out, and garbage that answers
// where a root or a rank should be is told from silence.
#include <cstring>
#include <functional>

#include "bootstrap/guests.h"
#include "bootstrap/ranks.h"
#include "bootstrap/wire.h"

namespace weft::bootstrap {
namespace {

using namespace std::chrono_literals;

SocketAddress root_of(const UniqueId& id) { return read_unique_id(id)->root; }

/// A server that answers every connection with what `answer` sends.
class FakeServer {
 public:
  explicit FakeServer(std::function<void(UniqueFd)> answer) {
    listener_ = listen_on(*SocketAddress::parse("127.0.0.1:0")).take();
    address = *local_address(listener_.get());
    thread_ = std::thread([this, answer] {
      while (!stop_) {
        int error;
        if (UniqueFd fd = accept_from(listener_.get(), &error); fd.valid()) answer(std::move(fd));
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  ~FakeServer() {
    stop_ = true;
    thread_.join();
  }
  UniqueId id() const { return write_unique_id(address, derive_secret("whatever")); }
  SocketAddress address;

 private:
  UniqueFd listener_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(Hostile, FloodedRootStillLetsTheJobMeet) {
  const UniqueId id = make_id();
  const Flood first(root_of(id)), second(root_of(id));
  std::this_thread::sleep_for(200ms);  // let it build up
  EXPECT_EQ(join_all(id, 8).size(), 8u);
}

TEST(Hostile, FloodedRankStillJoinsAndServes) {
  const UniqueId id = make_id();
  auto members = join_all(id, 3);
  ASSERT_EQ(members.size(), 3u);
  const Flood flood(*SocketAddress::parse(members[1]->addresses(1).front()));
  std::this_thread::sleep_for(200ms);
  on_each_rank(
      3, [&](int rank) { EXPECT_TRUE(members[static_cast<size_t>(rank)]->all_gather({}, soon()).ok()); });
  Events events;
  ASSERT_TRUE(members[1]->start(events.callbacks()).ok());
  Result<UniqueFd> data = members[0]->connect(1, 0, 42, soon());
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_TRUE(events.wait([&] { return events.data.size() == 1; }));
}

TEST(Hostile, WrongSecretIsShutOutUnheard) {
  const UniqueId id = make_id();
  const UniqueFd guest = dial(root_of(id));
  say(guest, std::string(32, 'x'));
  EXPECT_TRUE(is_closed_within(guest, 10));
  const UniqueFd talker = dial(root_of(id));
  say(talker, std::string(100'000, 'x'));
  EXPECT_TRUE(is_closed_within(talker, 10));
}

TEST(Hostile, SilentGuestsAreShutOutInTime) {
  const UniqueId id = make_id();
  const UniqueFd guest = dial(root_of(id));
  say(guest, as_text(read_unique_id(id)->secret).substr(0, 31));
  EXPECT_TRUE(is_closed_within(guest, 10));
}

TEST(Hostile, OversizedHelloIsShutOut) {
  const UniqueId id = make_id();
  const UniqueFd guest = dial(root_of(id));
  say(guest, as_text(read_unique_id(id)->secret));
  const uint32_t header[2] = {static_cast<uint32_t>(FrameKind::join), 0x7fffffff};
  say(guest, as_text(std::as_bytes(std::span(header))));
  EXPECT_TRUE(is_closed_within(guest, 3));
}

TEST(Hostile, MalformedHellosOfTheRightSecretDoNoHarm) {
  const UniqueId id = make_id();
  const Job job = *read_unique_id(id);
  std::vector<UniqueFd> guests;
  for (const FrameKind kind :
       {FrameKind::join, FrameKind::child, FrameKind::link, FrameKind::data, FrameKind{999}}) {
    guests.push_back(dial(job.root));
    say(guests.back(), as_text(greeting(job.secret, FrameWriter(kind).u8(7).take())));
  }
  auto members = join_all(id, 2);
  ASSERT_EQ(members.size(), 2u);
  const SocketAddress rank_1 = *SocketAddress::parse(members[0]->addresses(1).front());
  for (const uint32_t rank : {0u, 1u, 2u, 0xffffffffu}) {
    for (const FrameKind kind : {FrameKind::child, FrameKind::link, FrameKind::questions, FrameKind::data}) {
      guests.push_back(dial(rank_1));
      say(guests.back(), as_text(greeting(job.secret, FrameWriter(kind).u32(rank).take())));
    }
  }
  std::this_thread::sleep_for(50ms);
  on_each_rank(
      2, [&](int rank) { EXPECT_TRUE(members[static_cast<size_t>(rank)]->all_gather({}, soon()).ok()); });
}

// Where hosts have one address several times, a connection may come out at a rank that it is not for.
TEST(Hostile, ADataConnectionForAnotherRankIsShutOut) {
  const UniqueId id = make_id();
  auto members = join_all(id, 2);
  ASSERT_EQ(members.size(), 2u);
  Events events;
  ASSERT_TRUE(members[1]->start(events.callbacks()).ok());
  const Secret secret = read_unique_id(id)->secret;
  const auto open = [&](uint32_t target, uint32_t purpose) {
    UniqueFd fd = dial(*SocketAddress::parse(members[1]->addresses(1).front()));
    const auto hello = FrameWriter(FrameKind::data).u32(0).u32(purpose).u32(target).take();
    EXPECT_TRUE(send_all(fd.get(), greeting(secret, hello), soon()).ok());
    return fd;
  };
  EXPECT_TRUE(is_closed_within(open(0, 1), 5));
  const UniqueFd right = open(1, 2);
  ASSERT_TRUE(events.wait([&] { return !events.data.empty(); }));
  EXPECT_EQ(events.locked([&] { return events.data.front().purpose; }), 2u);
}

TEST(Hostile, AWebServerWhereTheRootShouldBeIsNamed) {
  const FakeServer server([](UniqueFd fd) {
    say(fd, "HTTP/1.1 400 Bad Request\r\n\r\n");
    std::this_thread::sleep_for(20ms);
  });
  const Joined joined = Bootstrap::join(server.id(), 0, 2, Deadline::in_seconds(10));
  EXPECT_EQ(joined.status().code(), Code::protocol_error);
  EXPECT_NE(joined.status().message().find("HTTP/1.1 400 Ba"), std::string::npos)
      << joined.status().message();
  EXPECT_NE(joined.status().message().find(server.address.to_string()), std::string::npos);
}

TEST(Hostile, AShortWrongAnswerIsNotWaitedFor) {
  const FakeServer server([](UniqueFd fd) {
    say(fd, "no");
    std::byte scrap[256];
    while (::recv(fd.get(), scrap, sizeof scrap, 0) > 0) {
    }
    std::this_thread::sleep_for(20ms);
  });
  const Joined joined = Bootstrap::join(server.id(), 0, 2, Deadline::in_seconds(10));
  EXPECT_EQ(joined.status().code(), Code::protocol_error) << joined.status().message();
}

TEST(Hostile, AServerThatSaysNothingEndsInATimeout) {
  std::vector<UniqueFd> held;
  const FakeServer server([&](UniqueFd fd) { held.push_back(std::move(fd)); });
  const Joined joined = Bootstrap::join(server.id(), 0, 2, Deadline::in_seconds(0.5));
  EXPECT_EQ(joined.status().code(), Code::timeout);
  EXPECT_NE(joined.status().message().find("took the connection"), std::string::npos)
      << joined.status().message();
}

TEST(Hostile, ASecretOfAnotherJobIsNamed) {
  const UniqueId id = make_id();
  const UniqueId forged = write_unique_id(root_of(id), derive_secret("another job"));
  const Joined joined = Bootstrap::join(forged, 0, 2, Deadline::in_seconds(20));
  EXPECT_EQ(joined.status().code(), Code::protocol_error);
  EXPECT_NE(joined.status().message().find("another job"), std::string::npos) << joined.status().message();
}

}  // namespace
}  // namespace weft::bootstrap
