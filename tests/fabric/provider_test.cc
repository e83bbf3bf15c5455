// The provider by itself: that it does what EFA may do, and refuses what EFA refuses.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "fabric/fake_efa.h"
#include "transport/ofi_rail.h"

namespace weft::fabric_test {
namespace {

using namespace transport::ofi;
using transport::Progress;

constexpr size_t kPacketBytes = 8192;

/// Two rails of this process.
class TwoRails {
 public:
  static constexpr int kPolls = 100'000;  // then nothing comes any more

  explicit TwoRails(size_t message_bytes = 8192) {
    transport::OfiOptions options;
    options.provider = "efa";
    for (auto* rail : {&near_, &far_}) {
      auto infos = choose_rails(options);
      EXPECT_TRUE(infos.ok()) << infos.status().message();
      auto opened = Rail::open(std::move(infos->front()), 2, message_bytes, 2 << 20);
      EXPECT_TRUE(opened.ok()) << opened.status().message();
      *rail = opened.take();
    }
    to_far_ = *near_->insert(far_->name());
  }

  Rail& near() { return *near_; }
  Rail& far() { return *far_; }
  fi_addr_t to_far() const { return to_far_; }
  int times_busy() const { return times_busy_; }

  /// Polls both, and calls for each event of either, until `over`.
  void until(const std::function<bool()>& over, const std::function<void(Event&)>& at_near,
             const std::function<void(Event&)>& at_far) {
    for (int poll = 0; !over(); ++poll) {
      ASSERT_LT(poll, kPolls);
      reap(*near_, at_near);
      reap(*far_, at_far);
    }
  }
  /// False while there is no room.
  bool send(uint32_t number) {
    Operation* const send = near_->take_send();
    if (!send) return false;
    std::memcpy(send->buffer, &number, sizeof number);
    send->number = number + 1;
    const Result<Progress> outcome = near_->post_send(send, 1, to_far_, sizeof number);
    EXPECT_TRUE(outcome.ok()) << outcome.status().message();
    const bool sent = outcome.ok() && *outcome == Progress::accepted;
    times_busy_ += !sent;
    return sent;
  }

 private:
  static void reap(Rail& rail, const std::function<void(Event&)>& call) {
    std::vector<Event> events;
    const Result<int> count = rail.reap(events);
    EXPECT_TRUE(count.ok()) << count.status().message();
    for (Event& event : events) call(event);
  }

  std::unique_ptr<Rail> near_, far_;
  fi_addr_t to_far_ = FI_ADDR_UNSPEC;
  int times_busy_ = 0;
};

struct Orders {
  std::vector<uint32_t> came, left;  // numbers of messages
  int times_busy = 0;
};

Orders exchange(uint32_t messages) {
  TwoRails rails;
  Orders orders;
  uint32_t next = 0;
  rails.until(
      [&] {
        if (next < messages) next += rails.send(next);
        return orders.came.size() == messages && orders.left.size() == messages;
      },
      [&](Event& event) { orders.left.push_back(static_cast<uint32_t>(event.number - 1)); },
      [&](Event& event) {
        ASSERT_EQ(event.kind, Event::Kind::received);
        uint32_t number = 0;
        std::memcpy(&number, event.operation->buffer, sizeof number);
        orders.came.push_back(number);
        EXPECT_TRUE(rails.far().post_receive(event.operation).ok());
      });
  orders.times_busy = rails.times_busy();
  return orders;
}

/// The order in which messages come in a process with this seed.
std::vector<uint32_t> order_with_seed(const std::string& seed) {
  constexpr uint32_t kMessages = 200;
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    use_fake_efa({{"FAKE_EFA_SEED", seed}, {"FAKE_EFA_HOLD_US", "0"}});
    const Orders orders = exchange(kMessages);
    const auto bytes = static_cast<ssize_t>(orders.came.size() * sizeof(uint32_t));
    _exit(write(ends[1], orders.came.data(), static_cast<size_t>(bytes)) == bytes ? 0 : 1);
  }
  close(ends[1]);
  std::vector<uint32_t> came(kMessages);
  EXPECT_EQ(read(ends[0], came.data(), came.size() * sizeof(uint32_t)),
            static_cast<ssize_t>(came.size() * sizeof(uint32_t)));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return came;
}

void expect_each_once(std::vector<uint32_t> numbers) {
  std::ranges::sort(numbers);
  for (uint32_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], i);
}

TEST(Provider, MessagesAndCompletionsComeInAnyOrder) {
  use_fake_efa();
  const Orders orders = exchange(500);
  EXPECT_FALSE(std::ranges::is_sorted(orders.came));
  EXPECT_FALSE(std::ranges::is_sorted(orders.left));
  EXPECT_GT(orders.times_busy, 0);
  expect_each_once(orders.came);
  expect_each_once(orders.left);
}

TEST(Provider, KeepsOrderWhenItIsTold) {
  use_fake_efa({{"FAKE_EFA_IN_ORDER", "1"}});
  const Orders orders = exchange(500);
  EXPECT_TRUE(std::ranges::is_sorted(orders.came));
  EXPECT_TRUE(std::ranges::is_sorted(orders.left));
  EXPECT_EQ(orders.times_busy, 0);
}

TEST(Provider, ASeedDecidesTheOrder) {
  const std::vector<uint32_t> order = order_with_seed("3");
  EXPECT_EQ(order_with_seed("3"), order);
  EXPECT_NE(order_with_seed("4"), order);
}

/// Memory of both rails for a write, and the write.
struct RegisteredWrite {
  std::vector<std::byte> source, target;
  Fid<fid_mr> at_near, at_far;
  Rail::Write write;

  RegisteredWrite(TwoRails& rails, size_t bytes) : source(bytes, std::byte{'x'}), target(bytes) {
    at_near = register_in(rails.near(), source);
    at_far = register_in(rails.far(), target);
    write.peer = 1;
    write.to = rails.to_far();
    write.source = source.data();
    write.bytes = bytes;
    write.descriptor = fi_mr_desc(at_near.get());
    write.address = reinterpret_cast<uint64_t>(target.data());
    write.key = fi_mr_key(at_far.get());
    write.immediate = 7;
  }
  static Fid<fid_mr> register_in(Rail& rail, std::vector<std::byte>& memory) {
    auto made = register_memory(rail.registration_domain(), memory.data(), memory.size(), 1);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.take();
  }
};

/// Posts until there is room.
void post(TwoRails& rails, const Rail::Write& write) {
  for (bool posted = false; !posted;) {
    const Result<Progress> outcome = rails.near().post_write(write);
    ASSERT_TRUE(outcome.ok()) << outcome.status().message();
    posted = *outcome == Progress::accepted;
  }
}

TEST(Provider, ThePacketsOfAWriteComeInAnyOrderAndItsDataAfterAll) {
  use_fake_efa();
  TwoRails rails;
  RegisteredWrite memory(rails, 64 * kPacketBytes);
  post(rails, memory.write);
  bool later_before_earlier = false, whole = false, wrote = false;
  const volatile std::byte* const seen = memory.target.data();
  const auto is_there = [&](size_t packet) { return seen[packet * kPacketBytes] == std::byte{'x'}; };
  rails.until(
      [&] {
        for (size_t packet = 1; packet < 64; ++packet)
          later_before_earlier |= is_there(packet) && !is_there(packet - 1);
        return whole && wrote;
      },
      [&](Event& event) { wrote |= event.kind == Event::Kind::wrote; },
      [&](Event& event) {
        EXPECT_EQ(event.kind, Event::Kind::remotely_written);
        EXPECT_EQ(event.immediate, 7u);
        EXPECT_EQ(memory.target, memory.source);
        whole = true;
      });
  EXPECT_TRUE(later_before_earlier);
}

TEST(Provider, AWriteWithAKeyThatIsNotValidFailsAndWritesNothing) {
  use_fake_efa();
  TwoRails rails;
  RegisteredWrite memory(rails, 3 * kPacketBytes);
  memory.at_far.reset();
  post(rails, memory.write);
  Status why;
  rails.until([&] { return !why.ok(); },
              [&](Event& event) {
                EXPECT_EQ(event.kind, Event::Kind::failed);
                why = event.why;
              },
              [](Event&) { ADD_FAILURE() << "the target was told of it"; });
  EXPECT_NE(why.message().find("not registered the target"), std::string::npos) << why.message();
  EXPECT_EQ(memory.target, std::vector<std::byte>(3 * kPacketBytes));
}

TEST(Provider, LocalMemoryHasToBeRegistered) {
  use_fake_efa();
  TwoRails rails;
  RegisteredWrite memory(rails, kPacketBytes);
  memory.write.descriptor = nullptr;
  EXPECT_FALSE(rails.near().post_write(memory.write).ok());
  memory.write.descriptor = fi_mr_desc(memory.at_near.get());
  memory.write.source = memory.target.data();
  EXPECT_FALSE(rails.near().post_write(memory.write).ok()) << "the registration is of other memory";
}

TEST(Provider, LongMessagesAreRefused) {
  use_fake_efa();
  TwoRails rails(16 << 10);
  Operation* const send = rails.near().take_send();
  EXPECT_FALSE(rails.near().post_send(send, 1, rails.to_far(), 16 << 10).ok());
}

TEST(Provider, OffersWhatEfaOffers) {
  use_fake_efa({{"FAKE_EFA_RAILS", "3"}});
  transport::OfiOptions options;
  options.provider = "efa";
  const auto infos = choose_rails(options);
  ASSERT_TRUE(infos.ok()) << infos.status().message();
  EXPECT_EQ(infos->size(), 3u);
  const fi_info& info = *infos->front();
  EXPECT_STREQ(info.fabric_attr->prov_name, "efa");
  EXPECT_EQ(info.tx_attr->msg_order, 0u);
  EXPECT_EQ(info.caps & (FI_TAGGED | FI_ATOMIC), 0u);
  EXPECT_TRUE(info.domain_attr->mr_mode & FI_MR_LOCAL);
  EXPECT_TRUE(info.domain_attr->mr_mode & FI_MR_PROV_KEY);
}

}  // namespace
}  // namespace weft::fabric_test
