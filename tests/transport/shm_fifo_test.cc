// The FIFO of one pair of ranks, without transport or system calls around it.
#include "transport/shm_fifo.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

namespace weft::transport::shm {
namespace {

constexpr uint64_t kRingBytes = 64 << 10;

/// Private memory that plays the shared one.
struct Memory {
  std::vector<Slot> slots = std::vector<Slot>(kSlots);
  std::vector<std::byte> ring = std::vector<std::byte>(kRingBytes);
  Consumed consumed;
  FifoMemory fifo() {
    return {.slots = slots.data(), .ring = ring.data(), .consumed = &consumed, .ring_bytes = kRingBytes};
  }
};

/// The content of message `number`: nothing that two messages share by chance.
std::byte content(uint64_t number, size_t at) {
  return static_cast<std::byte>((number * 131 + at * 7 + at / 251) & 0xff);
}

std::vector<std::byte> payload(uint64_t number, size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = content(number, i);
  return made;
}

bool matches(uint64_t number, const std::byte* payload, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (payload[i] != content(number, i)) return false;
  }
  return true;
}

Envelope envelope(uint64_t number, size_t bytes) {
  Envelope made;
  made.comm = 0xffffffff;  // a stamp must not be found in it
  made.offset = number;
  made.bytes = static_cast<uint32_t>(bytes);
  made.set_tag(static_cast<uint32_t>(number));
  return made;
}

TEST(ShmFifo, EverySizeArrivesAsItWasSent) {
  Memory memory;
  FifoSender sender(memory.fifo());
  FifoReceiver receiver(memory.fifo());
  std::vector<size_t> sizes;
  for (size_t bytes = 0; bytes <= 200; ++bytes) sizes.push_back(bytes);
  for (size_t bytes : {511, 512, 513, 4095, 4096, 10000, 16383, 16384}) sizes.push_back(bytes);
  for (const size_t bytes : sizes) {
    const auto sent = payload(bytes, bytes);
    ASSERT_TRUE(sender.send(envelope(bytes, bytes), sent.data()));
    int arrived = 0;
    receiver.receive([&](const Envelope& e, Payload where, const std::byte* data) {
      ++arrived;
      EXPECT_EQ(where, bytes <= kInlineBytes ? Payload::in_slot : Payload::in_ring);
      EXPECT_EQ(e.offset, bytes);
      EXPECT_EQ(e.comm, 0xffffffff);
      EXPECT_EQ(e.tag(), bytes);
      ASSERT_EQ(e.bytes, bytes);
      EXPECT_TRUE(matches(bytes, data, bytes)) << bytes;
    });
    ASSERT_EQ(arrived, 1) << bytes;
    EXPECT_FALSE(receiver.ready());
  }
}

TEST(ShmFifo, PutsAndRelaysSayWhatTheyAre) {
  Memory memory;
  FifoSender sender(memory.fifo());
  FifoReceiver receiver(memory.fifo());
  ASSERT_TRUE(sender.notify(envelope(1, 1 << 30)));
  receiver.receive([](const Envelope& e, Payload where, const std::byte* data) {
    EXPECT_EQ(where, Payload::at_target);
    EXPECT_EQ(data, nullptr);
    EXPECT_EQ(e.bytes, 1u << 30);
  });
  const auto sent = payload(5, 10);  // would fit the slot, but goes where relays go
  Envelope aside;
  aside.offset = 0x1234;
  aside.bytes = 10;
  ASSERT_TRUE(sender.tell(aside, sent.data()));
  receiver.receive([](const Envelope& e, Payload where, const std::byte* data) {
    EXPECT_EQ(where, Payload::for_transport);
    EXPECT_EQ(e.offset, 0x1234u);
    EXPECT_TRUE(matches(5, data, 10));
  });
}

TEST(ShmFifo, FullIsSaidAndNothingIsLost) {
  for (const size_t bytes : {size_t{8}, size_t{5000}, size_t{16384}}) {
    Memory memory;
    FifoSender sender(memory.fifo());
    FifoReceiver receiver(memory.fifo());
    uint64_t sent = 0, received = 0;
    while (sender.send(envelope(sent, bytes), payload(sent, bytes).data())) ++sent;
    EXPECT_EQ(sent, bytes == 8 ? kSlots : kRingBytes / detail::round_to_lines(bytes));
    EXPECT_FALSE(sender.room_again());
    while (receiver.ready()) {
      receiver.receive([&](const Envelope& e, Payload, const std::byte* data) {
        EXPECT_EQ(e.offset, received);
        EXPECT_TRUE(matches(received, data, bytes));
        ++received;
      });
    }
    EXPECT_EQ(received, sent);
    EXPECT_TRUE(sender.room_again());
    EXPECT_FALSE(sender.room_again()) << "said once";
    EXPECT_TRUE(sender.send(envelope(sent, bytes), payload(sent, bytes).data()));
  }
}

// Whatever came before, a receiver that has read everything has published enough for a message of the largest
// size.
TEST(ShmFifo, AnEmptyFifoAlwaysHasRoomForTheLargest) {
  std::mt19937 random(7);
  Memory memory;
  FifoSender sender(memory.fifo());
  FifoReceiver receiver(memory.fifo());
  const auto largest = payload(0, memory.fifo().largest_payload());
  for (int round = 0; round < 20000; ++round) {
    const size_t bytes = round % 3 == 0 ? largest.size() : random() % largest.size();
    ASSERT_TRUE(sender.send(envelope(0, bytes), largest.data())) << round;
    while (receiver.ready()) receiver.receive([](const Envelope&, Payload, const std::byte*) {});
  }
}

TEST(ShmFifo, OneCallIsBoundedAndTakesManyOnlyInAStream) {
  Memory memory;
  FifoSender sender(memory.fifo());
  FifoReceiver receiver(memory.fifo());
  const auto ignore = [](const Envelope&, Payload, const std::byte*) {};
  for (uint64_t i = 0; i < kSlots; ++i) ASSERT_TRUE(sender.send(envelope(i, 8), payload(i, 64).data()));
  EXPECT_EQ(receiver.receive(ignore).messages, 1);
  EXPECT_EQ(receiver.receive(ignore).messages, 1);
  EXPECT_EQ(receiver.receive(ignore).messages, FifoReceiver::kBurst);
  while (receiver.ready()) receiver.receive(ignore);
  EXPECT_EQ(receiver.receive(ignore).messages, 0);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(sender.send(envelope(i, 8), payload(i, 64).data()));
  EXPECT_EQ(receiver.receive(ignore).messages, 1) << "the stream is over";
}

// The 14 bits of a stamp that count laps wrap after 2^20 messages.
TEST(ShmFifo, TheNextOneAloneMakesRoomToo) {
  Memory memory;
  FifoSender sender(memory.fifo());
  FifoReceiver receiver(memory.fifo());
  uint64_t received = 0;
  const auto next = [&] {
    return receiver.receive_next([&](const Envelope& e, Payload where, const std::byte* bytes) {
      EXPECT_EQ(e.offset, received);
      EXPECT_EQ(where, e.bytes > kInlineBytes ? Payload::in_ring : Payload::in_slot);
      EXPECT_TRUE(matches(received, bytes, e.bytes));
      ++received;
    });
  };
  EXPECT_EQ(next().messages, 0);
  int made_room = 0;
  for (uint64_t number = 0; number < 4 * kSlots; number += 2) {
    for (const uint64_t sent : {number, number + 1}) {
      const size_t bytes = sent % 3 * kInlineBytes / 2 + sent % 2;
      ASSERT_TRUE(sender.send(envelope(sent, bytes), payload(sent, bytes).data()));
    }
    for (int i = 0; i < 2; ++i) {
      const FifoReceiver::Received one = next();
      EXPECT_EQ(one.messages, 1);
      made_room += one.made_room;
    }
    EXPECT_EQ(next().messages, 0);
  }
  EXPECT_EQ(made_room, 16);
}

TEST(ShmFifo, StampsWrapAround) {
  Memory memory;
  FifoSender sender(memory.fifo());
  FifoReceiver receiver(memory.fifo());
  uint64_t received = 0;
  for (uint64_t i = 0; i < (1 << 20) + 3 * kSlots; ++i) {
    ASSERT_TRUE(sender.send(envelope(i, 8), payload(i, 64).data()));
    receiver.receive([&](const Envelope& e, Payload, const std::byte*) { received += e.offset == i; });
    ASSERT_EQ(received, i + 1);
    ASSERT_FALSE(receiver.ready());
  }
}

TEST(ShmFifo, TwoThreadsManyMessagesOfRandomSizes) {
  constexpr uint64_t kMessages = 200'000;
  Memory memory;
  const auto size_of = [](uint64_t number) -> size_t {
    const uint64_t hash = number * 0x9e3779b97f4a7c15 >> 40;
    return hash % 50 == 0 ? hash % 16385 : hash % 3 == 0 ? hash % 700 : hash % 33;
  };
  std::thread sending([&] {
    FifoSender sender(memory.fifo());
    for (uint64_t i = 0; i < kMessages; ++i) {
      const auto sent = payload(i, size_of(i));
      while (!sender.send(envelope(i, sent.size()), sent.data())) std::this_thread::yield();
    }
  });
  FifoReceiver receiver(memory.fifo());
  uint64_t received = 0, wrong = 0;
  while (received < kMessages) {
    const auto got = receiver.receive([&](const Envelope& e, Payload, const std::byte* data) {
      wrong += e.offset != received || e.bytes != size_of(received) || !matches(received, data, e.bytes);
      ++received;
    });
    if (got.messages == 0) std::this_thread::yield();
  }
  sending.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace weft::transport::shm
