// A CUDA device on the fake driver: memory, streams, events, and what is said when something is missing. A
// device with its limits or without a driver is a process of its own, since settings are read once.
#include <span>

#include "device/cuda/kernels.h"
#include "loom/device/fakes.h"
#include "support.h"

namespace loom::testing {
namespace {

class CudaDevice : public OnFakeDevice {};
using CudaDeviceDeathTest = CudaDevice;

TEST_F(CudaDevice, CopiesAndFillsInOrder) {
  const std::vector<int32_t> values{3, 1, 4, 1, 5, 9};
  const device::Memory a = upload(values), b = device->allocate(24).take();
  queue->fill(b.data(), std::byte(0), 24);
  queue->copy(b.data() + 8, a.data(), 16);
  EXPECT_EQ(download(b.as<int32_t>(), 6), (std::vector<int32_t>{0, 0, 3, 1, 4, 1}));
}

TEST_F(CudaDevice, SaysWhatItIs) {
  EXPECT_EQ(device->describe(), "CUDA device 0 (fake device, compute capability 9.0)");
  EXPECT_EQ(device->capability(), 90);
  EXPECT_EQ(device->shared_bytes(), 227 << 10);
  EXPECT_EQ(device->memory()->all, int64_t{16384} << 20);
}

TEST_F(CudaDevice, TooLittleMemoryNamesTheDeviceAndWhatIsFree) {
  const auto much = device->allocate(int64_t{1} << 40);
  EXPECT_TRUE(fails_with(much, Code::out_of_memory, "CUDA device 0 (fake device"));
  EXPECT_TRUE(
      fails_with(much, Code::out_of_memory, "1024.00 GiB are needed, and 16.00 GiB of 16.00 are free"));
}

TEST_F(CudaDevice, MemoryIsGivenBack) {
  const int64_t before = device->memory()->free;
  {
    const device::Memory memory = device->allocate(1 << 20).take();
    EXPECT_EQ(device->memory()->free, before - (1 << 20));
  }
  EXPECT_EQ(device->memory()->free, before);
}

TEST_F(CudaDevice, AnOrdinalThatDoesNotExistIsRefused) {
  EXPECT_TRUE(
      fails_with(cuda::Device::open(7), Code::invalid_argument, "this process sees 2, numbered from 0"));
}

TEST_F(CudaDeviceDeathTest, TheHostCannotTouchItsMemory) {
  const device::Memory memory = device->allocate(64).take();
  EXPECT_DEATH(*memory.as<volatile int>() = 1, "");
}

// ---- Order between streams

/// A copy on one stream and a copy of its result on another.
class TwoStreams : public OnFakeDevice {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    source = upload(std::vector<int>(256, 7));
    middle = upload(std::vector<int>(256, 1));
    result = upload(std::vector<int>(256, 2));
    other = new_queue();
    event = new_event();
  }
  void TearDown() override {
    other.reset();
    OnFakeDevice::TearDown();
  }
  void produce() {
    queue->copy(middle.data(), source.data(), middle.bytes());
    queue->record(*event);
  }
  void consume() { other->copy(result.data(), middle.data(), result.bytes()); }

  device::Memory source, middle, result;
  std::unique_ptr<device::Queue> other;
  std::unique_ptr<device::Event> event;
};

TEST_F(TwoStreams, AWaitOrdersThem) {
  fake.hold_stream(cuda_queue(*queue).stream(), 1);
  produce();
  other->wait(*event);
  consume();
  fake.hold_stream(cuda_queue(*queue).stream(), 0);
  ASSERT_TRUE(other->drain().ok());
  EXPECT_EQ(download(result.as<int>(), 256), std::vector<int>(256, 7));
}

TEST_F(TwoStreams, AMissingWaitIsFound) {
  produce();
  consume();
  EXPECT_EQ(fake.race(),
            "a copy reads memory that a copy writes on another stream, and does not wait for it");
}

TEST_F(TwoStreams, AMissingWaitGivesOldBytes) {
  fake.hold_stream(cuda_queue(*queue).stream(), 1);
  produce();
  consume();
  ASSERT_TRUE(other->drain().ok());
  fake.hold_stream(cuda_queue(*queue).stream(), 0);
  EXPECT_EQ(download(result.as<int>(), 256), std::vector<int>(256, 1));
  EXPECT_NE(fake.race(), "");
}

TEST_F(TwoStreams, AWaitOfTheHostOrdersThem) {
  produce();
  ASSERT_TRUE(event->wait().ok());
  consume();
  EXPECT_TRUE(other->drain().ok());
}

TEST_F(TwoStreams, AnEventOrdersOnlyWhatCameBeforeIt) {
  queue->record(*event);
  produce();
  const auto late = new_event();
  queue->record(*late);
  queue->fill(middle.data(), std::byte(0), middle.bytes());
  other->wait(*late);
  consume();
  EXPECT_EQ(fake.race(),
            "a copy reads memory that a fill writes on another stream, and does not wait for it");
}

TEST_F(TwoStreams, ReusingMemoryThatIsStillReadIsFound) {
  produce();
  other->wait(*event);
  consume();
  queue->fill(middle.data(), std::byte(0), middle.bytes());
  EXPECT_EQ(fake.race(),
            "a fill writes memory that a copy reads on another stream, and does not wait for it");
}

// ---- Failures

TEST_F(CudaDevice, AFailedCallStaysWithTheQueueAndNamesTheDevice) {
  const device::Memory memory = device->allocate(64).take();
  fake.fail_after("cuMemsetD8Async", 0, cuda::kOutOfMemory);
  queue->fill(memory.data(), std::byte(0), 64);
  queue->fill(memory.data(), std::byte(1), 64);
  EXPECT_TRUE(fails_with(queue->status(), Code::out_of_memory, "a fill of 64 bytes on CUDA device 0"));
  EXPECT_TRUE(fails_with(queue->drain(), Code::out_of_memory, "out of memory (CUDA error 2"));
}

TEST_F(CudaDevice, KeepsTheFirstFailureAndDropsTheRest) {
  const device::Memory memory = upload(std::vector<uint8_t>(64, 3));
  const auto before = new_event(), event = new_event();
  queue->record(*before);
  fake.fail_after("cuMemsetD8Async", 0, cuda::kOutOfMemory);
  queue->fill(memory.data(), std::byte(0), 64);  // the first
  queue->fill(memory.data(), std::byte(1), 64);
  queue->record(*event);
  EXPECT_TRUE(fails_with(event->wait(), Code::out_of_memory, "a fill of 64 bytes on CUDA device 0"));
  EXPECT_TRUE(fails_with(queue->drain(), Code::out_of_memory, "a fill of 64 bytes on CUDA device 0"));
  EXPECT_TRUE(before->wait().ok());
  queue = new_queue();
  EXPECT_EQ(download(memory.as<uint8_t>(), 64), std::vector<uint8_t>(64, 3));
  queue->record(*event);
  EXPECT_TRUE(event->wait().ok());
}

// ---- Kernels

struct ScaleArguments {
  const float* from;
  float* to;
  int64_t count;
  float factor;
};

const FakeCudaKernel kScale{
    "test_scale", sizeof(ScaleArguments),
    [](const FakeCudaKernel*, void* arguments, void (*visit)(void*, void**, uint64_t, int), void* data) {
      auto& own = *static_cast<ScaleArguments*>(arguments);
      const uint64_t bytes = static_cast<uint64_t>(own.count) * sizeof(float);
      visit(data, reinterpret_cast<void**>(const_cast<float**>(&own.from)), bytes, 0);
      visit(data, reinterpret_cast<void**>(&own.to), bytes, 1);
    },
    [](const FakeCudaKernel*, const FakeCudaLaunch* launch) {
      const auto& own = *static_cast<const ScaleArguments*>(launch->arguments);
      for (int64_t i = 0; i < own.count; ++i) own.to[i] = own.factor * own.from[i];
    },
    nullptr};

/// The beginning of a fat binary, which is all that the fake driver looks at.
constexpr uint32_t kImage[] = {0xba55ed50, 0};
const cuda::KernelImage kImages[] = {{"test", std::as_bytes(std::span(kImage))}};

class CudaKernels : public OnFakeDevice {
 protected:
  void SetUp() override {
    OnFakeDevice::SetUp();
    fake.add_kernel(&kScale);
    kernels = cuda::Kernels::load(*device, kImages).take();
  }
  std::unique_ptr<cuda::Kernels> kernels;
};

TEST_F(CudaKernels, RunByNameOnDeviceMemory) {
  const cuda::Kernel kernel = kernels->find("test_scale").take();
  const device::Memory from = upload(std::vector<float>{1, 2, 3}), to = device->allocate(12).take();
  cuda::launch(*queue, kernel, {.threads = 32}, ScaleArguments{from.as<float>(), to.as<float>(), 3, 2});
  EXPECT_EQ(download(to.as<float>(), 3), (std::vector<float>{2, 4, 6}));
}

TEST_F(CudaKernels, APointerBeyondItsAllocationIsFound) {
  const cuda::Kernel kernel = kernels->find("test_scale").take();
  const device::Memory from = upload(std::vector<float>(16)), to = device->allocate(60).take();
  cuda::launch(*queue, kernel, {.threads = 32}, ScaleArguments{from.as<float>(), to.as<float>(), 16, 2});
  EXPECT_TRUE(fails_with(queue->drain(), Code::system_error, "CUDA_ERROR_ILLEGAL_ADDRESS"));
  repair();
}

TEST_F(CudaKernels, MemoryOfTheHostIsFound) {
  const cuda::Kernel kernel = kernels->find("test_scale").take();
  const device::Memory to = device->allocate(12).take();
  const std::vector<float> from(3);
  cuda::launch(*queue, kernel, {.threads = 32}, ScaleArguments{from.data(), to.as<float>(), 3, 2});
  EXPECT_TRUE(fails_with(queue->drain(), Code::system_error, "CUDA_ERROR_ILLEGAL_ADDRESS"));
  repair();
}

TEST_F(CudaKernels, AMissingWaitBeforeAKernelIsFound) {
  const cuda::Kernel kernel = kernels->find("test_scale").take();
  const device::Memory from = upload(std::vector<float>(16)), to = device->allocate(64).take();
  const auto other = new_queue();
  queue->fill(from.data(), std::byte(0), 64);
  cuda::launch(*other, kernel, {.threads = 32}, ScaleArguments{from.as<float>(), to.as<float>(), 16, 2});
  EXPECT_TRUE(queue->drain().ok());
  EXPECT_TRUE(other->drain().ok());
  EXPECT_EQ(fake.race(),
            "kernel test_scale reads memory that a fill writes on another stream, and does not wait for it");
}

TEST_F(CudaKernels, ALaunchThatNoDeviceTakesNamesKernelAndShape) {
  const cuda::Kernel kernel = kernels->find("test_scale").take();
  cuda::launch(*queue, kernel, {.grid = {2, 70000, 1}, .threads = 32},
               ScaleArguments{nullptr, nullptr, 0, 1});
  EXPECT_TRUE(fails_with(queue->status(), Code::system_error,
                         "kernel test_scale as 2×70000×1 blocks of 32 threads with 0 bytes"));
}

TEST_F(CudaKernels, SharedMemoryBeyond48KiBIsAskedFor) {
  const device::Memory from = upload(std::vector<float>(4)), to = device->allocate(16).take();
  const ScaleArguments arguments{from.as<float>(), to.as<float>(), 4, 2};
  const cuda::Kernel large = kernels->find("test_scale", 100 << 10).take();
  cuda::launch(*queue, large, {.threads = 32, .shared_bytes = 100 << 10}, arguments);
  EXPECT_TRUE(queue->drain().ok()) << queue->status().message();
  cuda::launch(*queue, large, {.threads = 32, .shared_bytes = 101 << 10}, arguments);
  EXPECT_FALSE(queue->status().ok());
  EXPECT_TRUE(fails_with(kernels->find("test_scale", 300 << 10), Code::unsupported, "shared memory"));
}

TEST_F(CudaKernels, AKernelThatTheDriverDoesNotLoadIsNoMissingName) {
  fake.fail_after("cuModuleGetFunction", 0, cuda::kOutOfMemory);  // a kernel is loaded when it is looked up
  EXPECT_TRUE(
      fails_with(kernels->find("test_scale"), Code::out_of_memory, "kernel test_scale on CUDA device 0"));
  EXPECT_TRUE(kernels->find("test_scale").ok());
}

TEST_F(CudaKernels, WhatIsNotInTheImageIsNamed) {
  EXPECT_TRUE(fails_with(kernels->find("no_such_kernel"), Code::internal_error, "no_such_kernel"));
  EXPECT_TRUE(fails_with(cuda::Kernels::load(*device, {}), Code::unsupported, "without nvcc"));
  fake.fail_after("cuModuleLoadData", 0, cuda::kNoBinaryForGpu);
  EXPECT_TRUE(fails_with(cuda::Kernels::load(*device, kImages), Code::unsupported,
                         "for other devices than CUDA device 0"));
}

}  // namespace
}  // namespace loom::testing
