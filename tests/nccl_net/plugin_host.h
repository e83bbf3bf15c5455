// PluginHost: the plugin as NCCL has it: found with dlopen(), called through the table of one version of the
// ABI. Any version looks alike here. Link, Buffer and Transfer on top are what tests are made of.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../../plugins/nccl_net/abi.h"

namespace weft::nccl_net_test {

namespace abi = nccl_net::abi;

/// The same for every version: sizes as size_t, and a context where the version has one.
class PluginHost {
 public:
  virtual ~PluginHost() = default;
  /// Opens the library and its table of `version`, and initializes it; null with a message to the test if
  /// that fails.
  static std::unique_ptr<PluginHost> open(const std::string& library, int version);
  /// Whether init() of version 12 fails, and with what.
  static bool refuses(const std::string& library, abi::Result* result);

  virtual int devices() = 0;
  virtual int most_receives(int device) = 0;
  virtual abi::PropertiesV12 properties(int device) = 0;  // what the version does not tell is 0
  virtual abi::Result listen(int device, void* handle, void** listener) = 0;
  virtual abi::Result connect(int device, void* handle, void** sender) = 0;
  virtual abi::Result accept(void* listener, void** receiver) = 0;
  virtual abi::Result register_memory(void* connection, void* data, size_t bytes, int type,
                                      void** memory) = 0;
  virtual abi::Result register_dma_buf(void* connection, void* data, size_t bytes, int type, uint64_t offset,
                                       int fd, void** memory) = 0;
  virtual abi::Result deregister(void* connection, void* memory) = 0;
  virtual abi::Result send(void* sender, void* data, size_t bytes, int tag, void* memory, void** request) = 0;
  virtual abi::Result receive(void* receiver, int count, void** data, size_t* bytes, int* tags, void** memory,
                              void** request) = 0;
  virtual abi::Result flush(void* receiver, int count, void** data, int* bytes, void** memory,
                            void** request) = 0;
  virtual abi::Result test(void* request, int* done, int* bytes) = 0;
  virtual abi::Result close_sender(void* sender) = 0;
  virtual abi::Result close_receiver(void* receiver) = 0;
  virtual abi::Result close_listener(void* listener) = 0;
  /// What getting a device's properties says.
  virtual abi::Result has_device(int device) = 0;
  /// A device of `parts`, or of their first ones, if `count` says so. Internal error where the version has
  /// none such.
  virtual abi::Result make_virtual_device(const std::vector<int>& parts, int count, int* device) = 0;
  int make_virtual_device(const std::vector<int>& parts) {
    int device = -1;
    EXPECT_EQ(make_virtual_device(parts, static_cast<int>(parts.size()), &device), abi::kSuccess);
    return device;
  }
  virtual abi::Result finalize() = 0;
};

/// What the plugin has logged through NCCL's logger in this process, line by line.
std::vector<std::string>& logged();
/// And under what, of each line.
struct LoggedUnder {
  int level;
  unsigned long subsystems;
};
std::vector<LoggedUnder>& logged_under();
bool has_logged(const std::string& part);

constexpr int kVersions[] = {8, 9, 10, 11, 12};

// ---- WaitPolicy

/// Polls until `over`; false when nothing came of it for long.
inline bool wait_until(const std::function<bool()>& over, double seconds = 30) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (int turn = 0; !over(); ++turn) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (turn % 16 == 15) std::this_thread::yield();
  }
  return true;
}

// ---- Bytes

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
/// Bytes that differ by seed and place.
inline void fill(std::byte* data, size_t bytes, uint64_t seed) {
  const uint64_t start = mix(seed + 1);
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = mix(start + at);
    std::memcpy(data + at, &word, std::min<size_t>(8, bytes - at));
  }
}
inline bool holds(const std::byte* data, size_t bytes, uint64_t seed) {
  const uint64_t start = mix(seed + 1);
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = mix(start + at);
    if (std::memcmp(data + at, &word, std::min<size_t>(8, bytes - at)) != 0) return false;
  }
  return true;
}
inline bool all_are(const std::byte* data, size_t bytes, std::byte value) {
  for (size_t i = 0; i < bytes; ++i)
    if (data[i] != value) return false;
  return true;
}

// ---- Connections

/// One end of a connection.
class End {
 public:
  enum class Side { sender, receiver };
  End(PluginHost& host, Side side, void* connection) : host_(host), side_(side), connection_(connection) {}
  End(End&& other) noexcept
      : host_(other.host_), side_(other.side_), connection_(std::exchange(other.connection_, nullptr)) {}
  ~End() { close(); }

  void* get() const { return connection_; }
  PluginHost& host() const { return host_; }
  void close() {
    void* connection = std::exchange(connection_, nullptr);
    if (!connection) return;
    EXPECT_EQ(side_ == Side::sender ? host_.close_sender(connection) : host_.close_receiver(connection),
              abi::kSuccess);
  }

 private:
  PluginHost& host_;
  const Side side_;
  void* connection_;
};

/// Memory that is registered with a connection while it lives.
class Buffer {
 public:
  Buffer(End& end, size_t bytes, std::byte value = std::byte{0xee}) : end_(end), bytes_(bytes, value) {
    if (bytes > 0) {
      EXPECT_EQ(end.host().register_memory(end.get(), data(), bytes, abi::kHostMemory, &memory_),
                abi::kSuccess);
    }
  }
  ~Buffer() { deregister(); }
  void deregister() {
    void* memory = std::exchange(memory_, nullptr);
    if (!memory || !end_.get()) return;
    EXPECT_EQ(end_.host().deregister(end_.get(), memory), abi::kSuccess);
  }
  std::byte* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  void* memory() const { return memory_; }

 private:
  End& end_;
  std::vector<std::byte> bytes_;
  void* memory_ = nullptr;
};

/// Tries until there is room for the send.
inline void* send(End& end, void* data, size_t bytes, int tag, void* memory) {
  void* request = nullptr;
  EXPECT_TRUE(wait_until([&] {
    const abi::Result result = end.host().send(end.get(), data, bytes, tag, memory, &request);
    EXPECT_EQ(result, abi::kSuccess);
    return result != abi::kSuccess || request != nullptr;
  })) << "no room for a send";
  return request;
}

inline void* receive(End& end, std::vector<void*> data, std::vector<size_t> bytes, std::vector<int> tags,
                     std::vector<void*> memory) {
  void* request = nullptr;
  EXPECT_TRUE(wait_until([&] {
    request = reinterpret_cast<void*>(abi::kOptionalCompletion);
    const abi::Result result = end.host().receive(end.get(), static_cast<int>(data.size()), data.data(),
                                                  bytes.data(), tags.data(), memory.data(), &request);
    EXPECT_EQ(result, abi::kSuccess);
    EXPECT_NE(request, reinterpret_cast<void*>(abi::kOptionalCompletion)) << "the request was not written";
    return result != abi::kSuccess || request != nullptr;
  })) << "no room for a receive";
  return request;
}
inline void* receive(End& end, Buffer& into, int tag) {
  return receive(end, {into.data()}, {into.size()}, {tag}, {into.memory()});
}

/// Whether the request is over now, and how many bytes each of its parts has.
inline bool tested(PluginHost& host, void* request, std::vector<int>* bytes, abi::Result* result) {
  int done = 0;
  std::vector<int> sizes(8, -1);
  *result = host.test(request, &done, sizes.data());
  if (done && bytes) *bytes = sizes;
  return done || *result != abi::kSuccess;
}

/// Waits for the end of a request; its sizes.
inline std::vector<int> finish(PluginHost& host, void* request) {
  std::vector<int> bytes;
  abi::Result result = abi::kSuccess;
  if (!request) return bytes;
  EXPECT_TRUE(wait_until([&] { return tested(host, request, &bytes, &result); })) << "a request never ends";
  EXPECT_EQ(result, abi::kSuccess);
  return bytes;
}

}  // namespace weft::nccl_net_test
