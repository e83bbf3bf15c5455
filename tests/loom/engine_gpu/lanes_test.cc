// Lanes of a GPU: what waits for what, by the fake driver's vector clocks. No timing plays a part.
#include "engine/gpu_lanes.h"
#include "engine_gpu/on_fake_gpus.h"

namespace loom::testing {
namespace {

using program::Instruction;
using program::Op;

/// A buffer that is computed, offloaded on lane 1, and computed again.
class LanesOfAGpu : public OnFakeGpus {
 protected:
  static constexpr int64_t kBytes = 256;

  void SetUp() override {
    OnFakeGpus::SetUp();
    auto opened = engine::RankDevice::create({.gpu = 0}, false);
    LOOM_ASSERT_OK(opened);
    device = opened.take();
    buffer = device->device().allocate(kBytes).take();
    Instruction offload = {}, forward = {};
    offload.op = Op::offload;
    offload.lane = 1;
    offload.joins = true;
    forward.op = Op::forward;
    forward.after = forward.events = {0};
    program.instructions = {offload, forward};
    lanes = std::make_unique<engine::GpuLanes>(*device);
    LOOM_ASSERT_OK(lanes->create(program, kBytes));
    fake.follow_races(1);
  }
  void TearDown() override {
    lanes.reset();
    OnFakeGpus::TearDown();
  }
  void compute() { device->queue().fill(buffer.data(), std::byte(7), kBytes); }
  void wait_before(int index) {
    LOOM_ASSERT_OK(lanes->wait_before(program, program.instructions[static_cast<size_t>(index)]));
  }
  void offload() {
    lanes->move(0, program.instructions[0], 0, buffer.data(), kBytes);
    LOOM_ASSERT_OK(lanes->note_issued(0, program.instructions[0]));
  }

  std::unique_ptr<engine::RankDevice> device;
  device::Memory buffer;
  program::Program program;
  std::unique_ptr<engine::GpuLanes> lanes;
};

TEST_F(LanesOfAGpu, ALaneComesAfterWhatWasComputed) {
  compute();
  wait_before(0);
  offload();
  EXPECT_EQ(fake.race(), "");
}

TEST_F(LanesOfAGpu, ALaneThatDoesNotWaitIsFound) {
  compute();
  offload();
  EXPECT_NE(fake.race(), "");
}

TEST_F(LanesOfAGpu, WhatComesAfterALaneWaitsForIt) {
  wait_before(0);
  offload();
  wait_before(1);
  compute();
  EXPECT_EQ(fake.race(), "");
}

/// The queue of operators has waited for the lane already.
TEST_F(LanesOfAGpu, TheEndOfARunDoesNotWaitAgain) {
  wait_before(0);
  offload();
  wait_before(1);
  const uint64_t before = fake.calls("cuStreamWaitEvent");
  LOOM_ASSERT_OK(lanes->wait_all());
  EXPECT_EQ(fake.calls("cuStreamWaitEvent"), before);
  compute();
  EXPECT_EQ(fake.race(), "");
}

TEST_F(LanesOfAGpu, WhatDoesNotWaitForALaneIsFound) {
  wait_before(0);
  offload();
  compute();
  EXPECT_NE(fake.race(), "");
}

TEST_F(LanesOfAGpu, TheNextRunComesAfterAllLanes) {
  wait_before(0);
  offload();
  LOOM_ASSERT_OK(lanes->wait_all());
  compute();
  EXPECT_EQ(fake.race(), "");
}

TEST_F(LanesOfAGpu, TheTierKeepsBytes) {
  compute();
  wait_before(0);
  offload();
  wait_before(1);
  device->queue().fill(buffer.data(), std::byte(0), kBytes);
  program.instructions.push_back(program.instructions[0]);
  program.instructions[2].op = Op::load;
  wait_before(2);
  lanes->move(2, program.instructions[2], 0, buffer.data(), kBytes);
  LOOM_ASSERT_OK(lanes->note_issued(2, program.instructions[2]));
  LOOM_ASSERT_OK(lanes->wait_all());
  LOOM_ASSERT_OK(
      device->transfer().download(buffer.data(), kBytes, [](int64_t, std::span<const std::byte> all) {
        EXPECT_EQ(std::ranges::count(all, std::byte(7)), kBytes);
        return Status();
      }));
}

}  // namespace
}  // namespace loom::testing
