#include "device/transfer.h"

#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "device/host.h"
#include "loom/device/fakes.h"
#include "support.h"

namespace loom::testing {
namespace {

using device::Transfer;

class Transfers : public OnFakeDevice {
 protected:
  static std::vector<uint8_t> numbered(int64_t bytes) {
    std::vector<uint8_t> values(static_cast<size_t>(bytes));
    std::iota(values.begin(), values.end(), uint8_t{1});
    return values;
  }
  static Transfer::Source from(const std::vector<uint8_t>& values) {
    return [&values](int64_t offset, std::span<std::byte> piece) {
      std::memcpy(piece.data(), values.data() + offset, piece.size());
      return Status();
    };
  }
  static Transfer::Sink into(std::vector<uint8_t>& values) {
    return [&values](int64_t offset, std::span<const std::byte> piece) {
      std::memcpy(values.data() + offset, piece.data(), piece.size());
      return Status();
    };
  }
};

TEST_F(Transfers, ThereAndBackInPieces) {
  for (const int64_t bytes : {1, 63, 64, 65, 128, 1000}) {
    const std::vector<uint8_t> values = numbered(bytes);
    const device::Memory memory = device->allocate(bytes).take();
    Transfer transfer = Transfer::create(*device, *queue, 64).take();
    ASSERT_TRUE(transfer.upload(memory.data(), bytes, from(values)).ok());
    std::vector<uint8_t> back(values.size());
    ASSERT_TRUE(transfer.download(memory.data(), bytes, into(back)).ok());
    EXPECT_EQ(back, values) << bytes;
  }
}

TEST_F(Transfers, OfTheHostToo) {
  device::Host host(device::Host::Queues::on_threads);
  const auto host_queue = host.make_queue().take();
  const std::vector<uint8_t> values = numbered(1000);
  const device::Memory memory = host.allocate(1000).take();
  Transfer transfer = Transfer::create(host, *host_queue, 64).take();
  ASSERT_TRUE(transfer.upload(memory.data(), 1000, from(values)).ok());
  std::vector<uint8_t> back(values.size());
  ASSERT_TRUE(transfer.download(memory.data(), 1000, into(back)).ok());
  EXPECT_EQ(back, values);
}

TEST_F(Transfers, ABufferIsNotFilledWhileItIsCopied) {
  const std::vector<uint8_t> values = numbered(256);
  const device::Memory memory = device->allocate(256).take();
  Transfer transfer = Transfer::create(*device, *queue, 64).take();
  std::atomic<int> given{0};
  fake.hold_stream(cuda_queue(*queue).stream(), 1);
  std::thread uploading([&] {
    const Status done = transfer.upload(memory.data(), 256, [&](int64_t offset, std::span<std::byte> piece) {
      // The piece that had this buffer before is on the device.
      if (++given > 2) {
        const int64_t before = offset - 128;
        EXPECT_EQ(std::memcmp(fake.bytes_behind(memory.data() + before), values.data() + before, 64), 0);
      }
      return from(values)(offset, piece);
    });
    EXPECT_TRUE(done.ok()) << done.message();
  });
  while (given.load() < 2) std::this_thread::yield();
  fake.hold_stream(cuda_queue(*queue).stream(), 0);
  uploading.join();
  EXPECT_EQ(download(memory.as<uint8_t>(), 256), values);
}

/// Ends a transfer whose copies stand still until `let_go` is called. Whether they went on before its end.
bool ends_after_its_copies(device::Device& device, device::Queue& queue, const device::Memory& memory,
                           const std::function<void()>& let_go) {
  std::atomic<bool> is_queued{false}, goes_on{false};
  std::thread letting_go([&] {
    while (!is_queued.load()) std::this_thread::yield();
    for (int turn = 0; turn < 1000; ++turn) std::this_thread::yield();
    goes_on.store(true);
    let_go();
  });
  {
    Transfer transfer = Transfer::create(device, queue, 64).take();
    EXPECT_TRUE(transfer.upload(memory.data(), 128, [](auto...) { return Status(); }).ok());
    is_queued.store(true);
  }
  const bool went_on = goes_on.load();
  letting_go.join();
  return went_on;
}

TEST_F(Transfers, EndAfterTheirCopies) {
  const device::Memory memory = device->allocate(128).take();
  fake.hold_stream(cuda_queue(*queue).stream(), 1);
  EXPECT_TRUE(ends_after_its_copies(*device, *queue, memory,
                                    [&] { fake.hold_stream(cuda_queue(*queue).stream(), 0); }));
  EXPECT_TRUE(queue->drain().ok());
}

TEST_F(Transfers, OnTheHostGiveTheMemoryItselfWhenTheQueueIsDone) {
  device::Host host(device::Host::Queues::on_threads);
  const auto host_queue = host.make_queue().take();
  const device::Memory memory = host.allocate(128).take();
  Transfer transfer = Transfer::create(host, *host_queue, 64).take();
  std::atomic<bool> is_done{false};
  const auto begin_work = [&] {
    is_done.store(false);
    static_cast<device::HostQueue&>(*host_queue).run([&] {
      std::this_thread::yield();
      is_done.store(true);
      return Status();
    });
  };
  const auto is_all = [&](int64_t offset, auto piece) {
    EXPECT_TRUE(is_done.load());
    EXPECT_EQ(offset, 0);
    EXPECT_EQ(piece.data(), memory.data());
    EXPECT_EQ(piece.size(), 128u);
    return Status();
  };
  begin_work();
  EXPECT_TRUE(transfer.upload(memory.data(), 128, is_all).ok());
  begin_work();
  EXPECT_TRUE(transfer.download(memory.data(), 128, is_all).ok());
}

TEST_F(Transfers, WhatASourceOrASinkSaysEndsThem) {
  const device::Memory memory = device->allocate(256).take();
  Transfer transfer = Transfer::create(*device, *queue, 64).take();
  const auto refuse = [](int64_t, auto) { return fail(Code::disk_full, "no more"); };
  EXPECT_TRUE(fails_with(transfer.upload(memory.data(), 256, refuse), Code::disk_full, "no more"));
  EXPECT_TRUE(fails_with(transfer.download(memory.data(), 256, refuse), Code::disk_full, "no more"));
}

}  // namespace
}  // namespace loom::testing
