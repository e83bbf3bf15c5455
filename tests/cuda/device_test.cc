// The device layer: what is said when CUDA is missing or wrong, kinds of memory, and kernels whose bits are
// the CPU's.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <span>
#include <sstream>
#include <string_view>

#include "cuda/device_memory.h"
#include "device/cuda/block_pool.h"
#include "device/cuda/ipc.h"
#include "device/cuda/kernels.h"
#include "device/cuda/plan_kernels.h"
#include "device/reference.h"
#include "device/window.h"

namespace weft::testing {
namespace {

using device::DataType;
using device::Order;
using device::ReduceOp;
using device::Reduction;

// ---- Drivers that will not do. Each in a process of its own, which says what weftDeviceQuery says.

using Environment = std::vector<std::pair<const char*, const char*>>;

[[noreturn]] void say_what_is_missing(const Environment& environment, int device = 0) {
  for (const auto& [name, value] : environment) setenv(name, value, 1);
  const weftResult_t result = weftDeviceQuery(device);
  std::fprintf(stderr, "%s", result == weftSuccess ? "nothing" : weftGetLastError(nullptr));
  std::_Exit(result);
}

class MissingDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(MissingDeathTest, ALibraryThatIsNotThereIsNamed) {
  EXPECT_EXIT(say_what_is_missing({{"WEFT_CUDA_LIBRARY", "/nowhere/libcuda.so.1"}}),
              ::testing::ExitedWithCode(weftUnsupported),
              "CUDA's driver cannot be loaded .*/nowhere/libcuda.so.1.*WEFT_CUDA_LIBRARY");
}
TEST_F(MissingDeathTest, ALibraryThatIsNoDriverIsTold) {
  EXPECT_EXIT(say_what_is_missing({{"WEFT_CUDA_LIBRARY", "libm.so.6"}}),
              ::testing::ExitedWithCode(weftUnsupported), "libm.so.6 has no function cuInit");
}
TEST_F(MissingDeathTest, AnOldDriverIsToldWhatIsNeeded) {
  EXPECT_EXIT(say_what_is_missing({{"FAKE_CUDA_VERSION", "10020"}}),
              ::testing::ExitedWithCode(weftUnsupported), "is for CUDA 10.2, at least 11.2 is needed");
}
TEST_F(MissingDeathTest, AMachineWithoutADevice) {
  EXPECT_EXIT(say_what_is_missing({{"FAKE_CUDA_DEVICES", "0"}}), ::testing::ExitedWithCode(weftUnsupported),
              "finds no CUDA device");
}
TEST_F(MissingDeathTest, ADeviceThatDoesNotExist) {
  EXPECT_EXIT(say_what_is_missing({}, 7), ::testing::ExitedWithCode(weftInvalidArgument),
              "there is no CUDA device 7: this process sees 2");
}
[[noreturn]] void create_on_a_device_that_is_missing() {
  setenv("FAKE_CUDA_DEVICES", "1", 1);
  weftUniqueId id;
  weftComm_t comm;
  weftConfig_t config = WEFT_CONFIG_INITIALIZER;
  config.device = 1;
  const weftResult_t made =
      weftGetUniqueId(&id) ? weftSystemError : weftCommInitRankConfig(&comm, 1, id, 0, &config);
  std::fprintf(stderr, "%s", weftGetLastError(nullptr));
  std::_Exit(made);
}
TEST_F(MissingDeathTest, ACommunicatorIsNotCreatedEither) {
  EXPECT_EXIT(create_on_a_device_that_is_missing(), ::testing::ExitedWithCode(weftInvalidArgument),
              "there is no CUDA device 1");
}

TEST(DeviceQuery, HostMemoryIsAlwaysThereAndNumbersAreChecked) {
  EXPECT_EQ(weftDeviceQuery(WEFT_DEVICE_HOST), weftSuccess);
  EXPECT_EQ(weftDeviceQuery(-7), weftInvalidArgument);
  EXPECT_NE(std::string(weftGetLastError(nullptr)).find("WEFT_DEVICE_CURRENT"), std::string::npos);
  WEFT_NEED_DEVICE();
  EXPECT_EQ(weftDeviceQuery(0), weftSuccess);
  EXPECT_EQ(weftDeviceQuery(WEFT_DEVICE_CURRENT), weftSuccess);
}

// Parts of one GPU (MIG) were taken for the same device.
TEST(DeviceQuery, DevicesOfOneProcessAreToldApart) {
  WEFT_NEED_DEVICE();
  if (*cuda::Device::count() < 2) GTEST_SKIP() << "this machine has one CUDA device";
  const cuda::Device &first = **cuda::Device::open(0), &second = **cuda::Device::open(1);
  EXPECT_NE(std::memcmp(&first.uuid(), &second.uuid(), sizeof first.uuid()), 0);
}

// ---- Memory

TEST(DeviceMemory, KindsAreToldApart) {
  WEFT_NEED_DEVICE();
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  const DeviceArray<char> array(1000);
  auto place = cuda::locate(array.data() + 10);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->kind, cuda::Place::Kind::device);
  EXPECT_EQ(place->ordinal, 0);
  cuda::BlockPool pool(device, cuda::BlockPool::Kind::host);
  auto block = pool.take(100);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(cuda::locate(block->data)->kind, cuda::Place::Kind::pinned);
  EXPECT_TRUE(device::find_window(block->data, 100).has_value());  // peers can map it
  pool.give(*block);
  char local = 0;
  EXPECT_EQ(cuda::locate(&local)->kind, cuda::Place::Kind::pageable);
  EXPECT_EQ(cuda::check_buffer(device, "sendbuff", &local, 1).status().code(), Code::invalid_pointer);
  const Status too_short = cuda::check_buffer(device, "recvbuff", array.data() + 10, 991).status();
  EXPECT_EQ(too_short.code(), Code::invalid_pointer);
  EXPECT_NE(too_short.message().find("ends after 990"), std::string::npos) << too_short.message();
}

TEST(DeviceMemory, ADescriptionOfAnotherVersionIsRefused) {
  WEFT_NEED_DEVICE();
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  const DeviceArray<char> array(1000);
  cuda::Exporter exporter;
  auto memory = exporter.describe(array.data(), 1000, false);
  ASSERT_TRUE(memory.ok());
  cuda::Importer importer(device);
  EXPECT_TRUE(importer.reach(*memory).ok());
  ++memory->format;
  const Status refused = importer.reach(*memory).status();
  EXPECT_EQ(refused.code(), Code::mismatch);
  EXPECT_NE(refused.message().find("use one version of libweft on all ranks"), std::string::npos)
      << refused.message();
}

TEST(DeviceMemory, AHandleOfAnotherDriverIsRefusedWithBothVersions) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  cuda::SharedMemory memory;  // its handle is of nothing that the fake has made
  memory.process = cuda::process_number() + 1;
  memory.cuda_version = 1202;
  cuda::Importer importer(device);
  const Status refused = importer.reach(memory).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("its driver is for CUDA 12.2, this process's for 13.0"), std::string::npos)
      << refused.message();
  EXPECT_NE(refused.message().find("WEFT_CUDA_IPC=off does without"), std::string::npos) << refused.message();
}

// The driver takes whole pages of the host only; allocations and the ranges that are registered are none.
TEST(DeviceMemory, OfAnyLengthBecomesADmaBuf) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  std::vector<char> values(10001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i % 101);
  const DeviceArray<char> array(values);
  for (const size_t begin : {0, 3, 4095}) {
    const size_t bytes = values.size() - begin;
    auto buffer = cuda::make_dma_buf(array.data() + begin, bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status().message();
    EXPECT_EQ(buffer->offset, begin);
    std::vector<char> read(bytes);
    ASSERT_EQ(pread(buffer->file.get(), read.data(), bytes, static_cast<off_t>(buffer->offset)),
              static_cast<ssize_t>(bytes));
    EXPECT_EQ(read, std::vector<char>(values.begin() + static_cast<ptrdiff_t>(begin), values.end()));
  }
}

TEST(DeviceMemory, BlocksAreReusedAndDoNotOverlap) {
  WEFT_NEED_DEVICE();
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  for (const auto kind : {cuda::BlockPool::Kind::host, cuda::BlockPool::Kind::device}) {
    cuda::BlockPool pool(device, kind);
    std::vector<std::pair<std::byte*, size_t>> ranges;
    std::vector<cuda::Block> blocks;
    for (size_t bytes : {1u, 4096u, 4097u, 100000u, 1u << 20, 3u << 20, 1u}) {
      auto block = pool.take(bytes);
      ASSERT_TRUE(block.ok()) << block.status().message();
      for (const auto& [begin, length] : ranges)
        EXPECT_TRUE(block->data + bytes <= begin || begin + length <= block->data);
      ranges.emplace_back(block->data, bytes);
      blocks.push_back(*block);
    }
    for (const cuda::Block& block : blocks) pool.give(block);
    auto again = pool.take(3 << 20);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->data, blocks[5].data);
    pool.give(*again);
    EXPECT_EQ(pool.take(size_t{1} << 60).status().code(), Code::out_of_memory);
  }
}

TEST(DeviceQueue, AnErrorOfTheDriverIsASentence) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  const cuda::Scope scope(device);
  auto queue = cuda::Queue::create(device);
  ASSERT_TRUE(queue.ok());
  const DeviceArray<char> array(10);
  fake.fail_after("cuMemcpyAsync", 0, cuda::kIllegalAddress);
  const Status failed = (*queue)->copy(array.data(), array.data() + 5, 5);
  EXPECT_EQ(failed.code(), Code::unhandled_cuda_error);
  EXPECT_NE(failed.message().find("an illegal memory access was encountered (CUDA error 700"),
            std::string::npos)
      << failed.message();
}

// ---- Kernels

std::unique_ptr<cuda::Kernels> load_kernels(cuda::Device& device, int blocks) {
  auto kernels = cuda::Kernels::load(device, blocks);
  return kernels ? kernels.take() : nullptr;
}
#define WEFT_NEED_KERNELS(device, blocks)            \
  const auto kernels = load_kernels(device, blocks); \
  if (!kernels) GTEST_SKIP() << "this build, or this device, has no kernels"

TEST(DeviceKernels, MakeTheBitsOfTheCpu) {
  WEFT_NEED_DEVICE();
  cuda::Device& device = **cuda::Device::open(0);
  WEFT_NEED_KERNELS(device, 3);
  auto queue = cuda::Queue::create(device);
  ASSERT_TRUE(queue.ok());
  constexpr size_t kCount = 3000;
  for (int t = 0; t < device::kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const size_t element = device::size_of(type);
    std::vector<std::vector<char>> sources;
    std::vector<std::unique_ptr<DeviceArray<char>>> on_device;
    std::vector<const void*> host, gpu;
    for (uint32_t s = 0; s < 7; ++s) {
      sources.push_back(device::reference::hard_elements(type, kCount, 17 * s + 1));
      on_device.push_back(std::make_unique<DeviceArray<char>>(sources.back()));
      host.push_back(sources.back().data());
      gpu.push_back(on_device.back()->data());
    }
    for (int o = 0; o < device::kReduceOps; ++o)
      for (const auto& [n, order, shift] : {std::tuple{2, Order::sequential, 0},
                                            {3, Order::sequential, 1},
                                            {5, Order::tree, 0},
                                            {7, Order::tree, 3}}) {
        const auto op = static_cast<ReduceOp>(o);
        if (!device::applies(op, type)) continue;
        constexpr uint32_t kWeights[] = {3, 1, 2, 1, 1, 7, 1};
        const Reduction reduction{type, op, order, op == ReduceOp::avg ? static_cast<uint32_t>(n) : 1,
                                  kWeights};
        const size_t count = kCount - 8;
        const auto at = static_cast<size_t>(shift) * element;
        std::vector<const void*> from(gpu.begin(), gpu.begin() + n), expect(host.begin(), host.begin() + n);
        for (auto& pointer : from) pointer = static_cast<const char*>(pointer) + at;
        for (auto& pointer : expect) pointer = static_cast<const char*>(pointer) + at;
        std::vector<char> right(count * element);
        device::reduce(reduction, right.data(), expect.data(), n, count);
        const DeviceArray<char> out(count * element);
        {
          const cuda::Scope scope(device);
          const Status queued = kernels->reduce(**queue, reduction, out.data(), from.data(), n, count);
          ASSERT_TRUE(queued.ok()) << queued.message();
          ASSERT_TRUE((*queue)->drain().ok());
        }
        ASSERT_EQ(out.get(), right) << name_of(type) << " " << name_of(op) << " of " << n;
      }
  }
}

TEST(DeviceKernels, ScaleAsTheCpuDoes) {
  WEFT_NEED_DEVICE();
  cuda::Device& device = **cuda::Device::open(0);
  WEFT_NEED_KERNELS(device, 2);
  auto queue = cuda::Queue::create(device);
  ASSERT_TRUE(queue.ok());
  for (int t = 0; t < device::kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const std::vector<char> in = device::reference::hard_elements(type, 2000, 5);
    std::vector<char> right(in.size());
    const char* const scalar = in.data() + 16;
    device::scale(type, right.data(), in.data(), 2000, scalar);
    const DeviceArray<char> source(in), out(in.size());
    const cuda::Scope scope(device);
    ASSERT_TRUE(kernels->scale(**queue, type, out.data(), source.data(), 2000, scalar).ok());
    ASSERT_TRUE((*queue)->drain().ok());
    ASSERT_EQ(out.get(), right) << name_of(type);
  }
}

TEST(DeviceKernels, TakeUpTo120Sources) {
  WEFT_NEED_DEVICE();
  EXPECT_TRUE(cuda::Kernels::takes(120));
  EXPECT_FALSE(cuda::Kernels::takes(121));
}

TEST(DeviceKernels, ALaunchIsBoundedByTheSetting) {
  WEFT_NEED_FAKE(fake);
  cuda::Device& device = **cuda::Device::open(0);
  WEFT_NEED_KERNELS(device, 3);
  const auto unbounded = load_kernels(device, 4096);
  auto queue = cuda::Queue::create(device);
  ASSERT_TRUE(queue.ok());
  constexpr size_t kMost = 8 << 20;
  const DeviceArray<char> out(kMost), source(kMost);
  const auto largest_grid = [&](const cuda::Kernels& with, size_t bytes) {
    const cuda::Scope scope(device);
    (void)fake.largest_grid();
    const void* sources[] = {source.data(), source.data()};
    EXPECT_TRUE(with.reduce(**queue, Reduction(), out.data(), sources, 2, bytes / sizeof(float)).ok());
    const float scalar = 2;
    EXPECT_TRUE(
        with.scale(**queue, DataType::float32, out.data(), source.data(), bytes / sizeof(float), &scalar)
            .ok());
    EXPECT_TRUE((*queue)->drain().ok());
    return fake.largest_grid();
  };
  EXPECT_EQ(largest_grid(*kernels, kMost / 2), 3u);
  EXPECT_EQ(largest_grid(*kernels, kMost), 3u);
  EXPECT_EQ(largest_grid(*kernels, sizeof(float)), 1u);
  EXPECT_GT(largest_grid(*unbounded, kMost / 2), 3u);
  EXPECT_GT(largest_grid(*unbounded, kMost), largest_grid(*unbounded, kMost / 2));
}

// ---- What nvcc has made

/// An entry of a fat binary, as far as its head is understood here.
struct FatEntry {
  uint16_t kind, version;
  uint32_t head_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes, unknown[2];
  uint32_t generation;  // 75 is sm_75
};
constexpr uint16_t kPtx = 1, kCode = 2;

std::vector<std::pair<FatEntry, std::string_view>> entries_of(std::span<const std::byte> image) {
  std::vector<std::pair<FatEntry, std::string_view>> found;
  for (size_t at = 16; at + sizeof(FatEntry) <= image.size();) {
    FatEntry entry;
    std::memcpy(&entry, image.data() + at, sizeof entry);
    if (entry.bytes == 0 || entry.head_bytes + entry.bytes > image.size() - at) break;
    found.emplace_back(
        entry,
        std::string_view(reinterpret_cast<const char*>(image.data()) + at + entry.head_bytes, entry.bytes));
    at += entry.head_bytes + entry.bytes;
  }
  return found;
}

/// Kernels of these names, for all types, or for floats alone.
void expect_kernels(std::span<const std::byte> image, const std::vector<std::string>& of_all,
                    const std::string& of_floats) {
  std::vector<uint32_t> wanted, code, ptx;
  std::stringstream generations(WEFT_GPU_GENERATIONS);
  for (uint32_t generation; generations >> generation;) wanted.push_back(generation);
  ASSERT_FALSE(wanted.empty());
  std::vector<std::string> names;
  for (const std::string type : {"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32",
                                 "float64", "bfloat16", "float8e4m3", "float8e5m2"}) {
    for (const std::string& name : of_all) names.push_back(name + type);
    if (type.find("int") == std::string::npos) names.push_back(of_floats + type);
  }
  for (const auto& [entry, bytes] : entries_of(image)) {
    (entry.kind == kPtx ? ptx : code).push_back(entry.generation);
    if (entry.kind != kCode || entry.compressed_bytes > 0) continue;
    for (const std::string& name : names)
      EXPECT_NE(bytes.find('\0' + name + '\0'), std::string_view::npos) << name << " of " << entry.generation;
  }
  EXPECT_EQ(code, wanted);
  EXPECT_EQ(ptx, std::vector<uint32_t>{wanted.front()});
}

TEST(FatBinary, HoldsEveryKernelForEveryGenerationAndPtxForYoungerOnes) {
  if (cuda::kernel_image().empty()) GTEST_SKIP() << "this build has no kernels: it was made without nvcc";
  expect_kernels(cuda::kernel_image(), {"weft_reduce_", "weft_scale_"}, "weft_mean_");
  expect_kernels(cuda::plan_kernel_image(), {"weft_plan_sum_"}, "weft_plan_mean_");
}

}  // namespace
}  // namespace weft::testing
