// The tables of all versions behind one face.
#include "plugin_host.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <type_traits>

namespace weft::nccl_net_test {
namespace {

std::mutex log_mutex;

void logger(abi::LogLevel level, unsigned long subsystems, const char*, int, const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const std::lock_guard lock(log_mutex);
  logged().push_back(line);
  logged_under().push_back({level, subsystems});
}

/// What NCCL would have of a communicator's configuration.
int wanted_traffic_class() {
  const char* given = std::getenv("TRAFFIC_CLASS_OF_THE_TEST");
  return given ? std::atoi(given) : -1;
}

/// `Number` is the version: 9 and 10 differ in fewer things than their tables say.
template <int Number, typename Table, typename Properties>
class Host final : public PluginHost {
 public:
  explicit Host(const Table& table) : table_(table) {}
  ~Host() override { finalize(); }

  abi::Result init() {
    if constexpr (Number <= 9) return table_.init(logger);
    else if constexpr (Number == 10) return table_.init(logger, nullptr);
    else return table_.init(&context_, 0x1234, &config_, logger, nullptr);
  }
  int devices() override {
    int count = -1;
    EXPECT_EQ(table_.devices(&count), abi::kSuccess);
    return count;
  }
  int most_receives(int device) override { return properties(device).most_receives; }
  abi::PropertiesV12 properties(int device) override {
    Properties own{};
    abi::PropertiesV12 all{};
    EXPECT_EQ(table_.get_properties(device, &own), abi::kSuccess);
    all.name = own.name;
    all.pci_path = own.pci_path;
    all.guid = own.guid;
    all.memory = own.memory;
    all.registrations_are_global = own.registrations_are_global;
    all.speed = own.speed;
    all.port = own.port;
    all.latency = own.latency;
    all.most_connections = own.most_connections;
    all.most_receives = own.most_receives;
    all.offload_type = own.offload_type;
    if constexpr (Number >= 9) {
      all.force_flush = own.force_flush;
      all.parts.count = own.parts.count;
      for (int i = 0; i < own.parts.count; ++i) all.parts.devices[i] = own.parts.devices[i];
      all.longest_message = own.longest_message;
      all.longest_collective = own.longest_collective;
    }
    if constexpr (Number >= 11) all.most_in_multi_request = own.most_in_multi_request;
    if constexpr (Number >= 12) all.rail = own.rail, all.plane = own.plane;
    return all;
  }
  abi::Result listen(int device, void* handle, void** listener) override {
    if constexpr (Number >= 11) return table_.listen(context_, device, handle, listener);
    else return table_.listen(device, handle, listener);
  }
  abi::Result connect(int device, void* handle, void** sender) override {
    if constexpr (Number >= 11) return table_.connect(context_, device, handle, sender, nullptr);
    else if constexpr (Number == 10) return table_.connect(device, &config_, handle, sender, nullptr);
    else return table_.connect(device, handle, sender, nullptr);
  }
  abi::Result accept(void* listener, void** receiver) override {
    return table_.accept(listener, receiver, nullptr);
  }
  abi::Result register_memory(void* connection, void* data, size_t bytes, int type, void** memory) override {
    return table_.register_memory(connection, data, bytes, type, memory);
  }
  abi::Result register_dma_buf(void* connection, void* data, size_t bytes, int type, uint64_t offset, int fd,
                               void** memory) override {
    return table_.register_dma_buf(connection, data, bytes, type, offset, fd, memory);
  }
  abi::Result deregister(void* connection, void* memory) override {
    return table_.deregister_memory(connection, memory);
  }
  abi::Result send(void* sender, void* data, size_t bytes, int tag, void* memory, void** request) override {
    if constexpr (Number == 8)
      return table_.send(sender, data, static_cast<int>(bytes), tag, memory, request);
    else if constexpr (Number == 9) return table_.send(sender, data, bytes, tag, memory, request);
    else return table_.send(sender, data, bytes, tag, memory, nullptr, request);
  }
  abi::Result receive(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memory,
                      void** request) override {
    if constexpr (Number == 8) {
      std::vector<int> narrow(bytes, bytes + count);
      return table_.receive(receiver, count, data, narrow.data(), tags, memory, request);
    } else if constexpr (Number == 9) {
      return table_.receive(receiver, count, data, bytes, tags, memory, request);
    } else {
      return table_.receive(receiver, count, data, bytes, tags, memory, nullptr, request);
    }
  }
  abi::Result flush(void* receiver, int count, void** data, int* bytes, void** memory,
                    void** request) override {
    return table_.flush(receiver, count, data, bytes, memory, request);
  }
  abi::Result test(void* request, int* done, int* bytes) override {
    return table_.test(request, done, bytes);
  }
  abi::Result close_sender(void* sender) override { return table_.close_sender(sender); }
  abi::Result close_receiver(void* receiver) override { return table_.close_receiver(receiver); }
  abi::Result close_listener(void* listener) override { return table_.close_listener(listener); }
  abi::Result has_device(int device) override {
    Properties own{};
    return table_.get_properties(device, &own);
  }
  abi::Result make_virtual_device([[maybe_unused]] const std::vector<int>& parts, [[maybe_unused]] int count,
                                  [[maybe_unused]] int* device) override {
    if constexpr (Number >= 9) {
      std::conditional_t<Number >= 12, abi::VirtualDevice8, abi::VirtualDevice4> whole{};
      whole.count = count;
      std::copy_n(parts.begin(), std::min(parts.size(), std::size(whole.devices)), whole.devices);
      return table_.make_virtual_device(device, &whole);
    }
    return abi::kInternalError;
  }
  abi::Result finalize() override {
    if constexpr (Number >= 11) {
      void* context = std::exchange(context_, nullptr);
      return context ? table_.finalize(context) : abi::kSuccess;
    }
    return abi::kSuccess;
  }

 private:
  const Table& table_;
  void* context_ = nullptr;
  abi::Config config_{wanted_traffic_class()};
};

template <int Number, typename Table, typename Properties>
std::unique_ptr<PluginHost> open_table(void* library) {
  const std::string symbol = "ncclNetPlugin_v" + std::to_string(Number);
  const auto* table = static_cast<const Table*>(dlsym(library, symbol.c_str()));
  if (!table) {
    ADD_FAILURE() << "no " << symbol;
    return nullptr;
  }
  EXPECT_STREQ(table->name, "Weft");
  auto host = std::make_unique<Host<Number, Table, Properties>>(*table);
  if (const abi::Result result = host->init(); result != abi::kSuccess) {
    ADD_FAILURE() << "init failed with " << result << ": " << (logged().empty() ? "" : logged().back());
    return nullptr;
  }
  return host;
}

}  // namespace

std::vector<std::string>& logged() {
  static std::vector<std::string> lines;
  return lines;
}

std::vector<LoggedUnder>& logged_under() {
  static std::vector<LoggedUnder> lines;
  return lines;
}

bool has_logged(const std::string& part) {
  const std::lock_guard lock(log_mutex);
  for (const std::string& line : logged())
    if (line.find(part) != std::string::npos) return true;
  return false;
}

bool PluginHost::refuses(const std::string& library, abi::Result* result) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto* table = handle ? static_cast<const abi::NetV12*>(dlsym(handle, "ncclNetPlugin_v12")) : nullptr;
  if (!table) return false;
  *result = Host<12, abi::NetV12, abi::PropertiesV12>(*table).init();
  return *result != abi::kSuccess;
}

std::unique_ptr<PluginHost> PluginHost::open(const std::string& library, int version) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    ADD_FAILURE() << dlerror();
    return nullptr;
  }
  switch (version) {
    case 8: return open_table<8, abi::NetV8, abi::PropertiesV8>(handle);
    case 9: return open_table<9, abi::NetV9, abi::PropertiesV9>(handle);
    case 10: return open_table<10, abi::NetV10, abi::PropertiesV9>(handle);
    case 11: return open_table<11, abi::NetV11, abi::PropertiesV11>(handle);
    case 12: return open_table<12, abi::NetV12, abi::PropertiesV12>(handle);
    default: ADD_FAILURE() << "no version " << version; return nullptr;
  }
}

}  // namespace weft::nccl_net_test
