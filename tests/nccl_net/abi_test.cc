// How NCCL's structs lie in memory, for every version of the ABI: each member at the place that NCCL's
// headers give it where pointers have eight bytes (x86-64 and arm64). NCCL reads the tables by place alone,
// so a member too many or of another size makes it call something else.
#include <cstddef>
#include <type_traits>

#include "two_processes.h"

namespace weft::nccl_net_test {
namespace {

#define LIES(type, size) \
  static_assert(sizeof(abi::type) == (size) && std::is_standard_layout_v<abi::type>, #type)
#define AT(type, member, place) static_assert(offsetof(abi::type, member) == (place), #type "::" #member)

// ---- Properties, and what is in them

static_assert(sizeof(void*) == 8 && sizeof(size_t) == 8 && sizeof(int) == 4 && sizeof(float) == 4);
static_assert(sizeof(abi::Result) == 4 && sizeof(abi::LogLevel) == 4);

LIES(VirtualDevice4, 20);
AT(VirtualDevice4, count, 0);
AT(VirtualDevice4, devices, 4);
LIES(VirtualDevice8, 36);
AT(VirtualDevice8, count, 0);
AT(VirtualDevice8, devices, 4);
LIES(Config, 4);
AT(Config, traffic_class, 0);

LIES(PropertiesV8, 64);
AT(PropertiesV8, name, 0);
AT(PropertiesV8, pci_path, 8);
AT(PropertiesV8, guid, 16);
AT(PropertiesV8, memory, 24);
AT(PropertiesV8, registrations_are_global, 28);
AT(PropertiesV8, speed, 32);
AT(PropertiesV8, port, 36);
AT(PropertiesV8, latency, 40);
AT(PropertiesV8, most_connections, 44);
AT(PropertiesV8, most_receives, 48);
AT(PropertiesV8, offload_type, 52);
AT(PropertiesV8, offload_version, 56);

// From 9 on a flush that is asked for moves what follows; 10 is as 9.
#define SAME_IN_9_TO_12(type)             \
  AT(type, name, 0);                      \
  AT(type, pci_path, 8);                  \
  AT(type, guid, 16);                     \
  AT(type, memory, 24);                   \
  AT(type, registrations_are_global, 28); \
  AT(type, force_flush, 32);              \
  AT(type, speed, 36);                    \
  AT(type, port, 40);                     \
  AT(type, latency, 44);                  \
  AT(type, most_connections, 48);         \
  AT(type, most_receives, 52);            \
  AT(type, offload_type, 56);             \
  AT(type, offload_version, 60);          \
  AT(type, parts, 64)

LIES(PropertiesV9, 104);
SAME_IN_9_TO_12(PropertiesV9);
AT(PropertiesV9, longest_message, 88);
AT(PropertiesV9, longest_collective, 96);

LIES(PropertiesV11, 112);
SAME_IN_9_TO_12(PropertiesV11);
AT(PropertiesV11, longest_message, 88);
AT(PropertiesV11, longest_collective, 96);
AT(PropertiesV11, most_in_multi_request, 104);

LIES(PropertiesV12, 128);
SAME_IN_9_TO_12(PropertiesV12);
AT(PropertiesV12, longest_message, 104);
AT(PropertiesV12, longest_collective, 112);
AT(PropertiesV12, most_in_multi_request, 120);
AT(PropertiesV12, rail, 124);
AT(PropertiesV12, plane, 126);

// ---- Tables: pointers, one after the other

#define SAME_IN_ALL(type)          \
  AT(type, name, 0);               \
  AT(type, init, 8);               \
  AT(type, devices, 16);           \
  AT(type, get_properties, 24);    \
  AT(type, listen, 32);            \
  AT(type, connect, 40);           \
  AT(type, accept, 48);            \
  AT(type, register_memory, 56);   \
  AT(type, register_dma_buf, 64);  \
  AT(type, deregister_memory, 72); \
  AT(type, send, 80);              \
  AT(type, receive, 88);           \
  AT(type, flush, 96);             \
  AT(type, test, 104);             \
  AT(type, close_sender, 112);     \
  AT(type, close_receiver, 120);   \
  AT(type, close_listener, 128);   \
  AT(type, device_memory, 136);    \
  AT(type, receive_consumed, 144)

LIES(NetV8, 152);
SAME_IN_ALL(NetV8);
LIES(NetV9, 160);
SAME_IN_ALL(NetV9);
AT(NetV9, make_virtual_device, 152);
LIES(NetV10, 160);
SAME_IN_ALL(NetV10);
AT(NetV10, make_virtual_device, 152);
LIES(NetV11, 176);
SAME_IN_ALL(NetV11);
AT(NetV11, make_virtual_device, 152);
AT(NetV11, finalize, 160);
AT(NetV11, set_attributes, 168);
LIES(NetV12, 176);
SAME_IN_ALL(NetV12);
AT(NetV12, make_virtual_device, 152);
AT(NetV12, finalize, 160);
AT(NetV12, set_attributes, 168);

// ---- Values

static_assert(abi::kHostMemory == 0x1 && abi::kCudaMemory == 0x2 && abi::kDmaBuf == 0x4);
static_assert(abi::kHandleBytes == 128 && abi::kMostRequests == 32 && abi::kOptionalCompletion == 0x1);
static_assert(abi::kLogWarn == 2 && abi::kLogInfo == 3 && abi::kLogInit == 1 && abi::kLogNet == 16 &&
              abi::kLogAll == ~0ul);
static_assert(abi::kSuccess == 0 && abi::kUnhandledCudaError == 1 && abi::kSystemError == 2 &&
              abi::kInternalError == 3 && abi::kInvalidArgument == 4 && abi::kInvalidUsage == 5 &&
              abi::kRemoteError == 6);

// ---- The library's own tables, read by place as NCCL does

/// What NCCL does not look for null before it calls.
const std::vector<size_t>& must_be_there(int version) {
  static const std::vector<size_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16};
  static const std::vector<size_t> and_finalize = {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 20};
  return version >= 11 ? and_finalize : all;
}

class Table : public ::testing::TestWithParam<int> {};

TEST_P(Table, HasEveryFunctionThatIsCalled) {
  void* library = dlopen(library_under_test().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(GetParam());
  auto* const* table = static_cast<void* const*>(dlsym(library, symbol.c_str()));
  ASSERT_NE(table, nullptr) << symbol;
  EXPECT_STREQ(static_cast<const char*>(table[0]), "Weft");
  for (const size_t place : must_be_there(GetParam()))
    EXPECT_NE(table[place], nullptr) << "the function at " << 8 * place;
  // Offers to a GPU's code, which NCCL would make use of.
  EXPECT_EQ(table[17], nullptr);
  EXPECT_EQ(table[18], nullptr);
}

INSTANTIATE_TEST_SUITE_P(Conformance, Table, ::testing::ValuesIn(kVersions),
                         [](const auto& info) { return "v" + std::to_string(info.param); });

}  // namespace
}  // namespace weft::nccl_net_test
