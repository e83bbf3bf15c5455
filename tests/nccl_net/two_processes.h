// Two processes with the plugin each, connected by it, and beside that by a socket pair over which they tell
// each other how far they are. Each process loads the plugin for itself, after its settings are made.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "libfabric_leftovers.h"
#include "plugin_host.h"

namespace weft::nccl_net_test {

/// How the plugin is to reach its peers.
struct Net {
  std::string name;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string library;
};

inline void PrintTo(const Net& net, std::ostream* out) { *out << net.name; }

/// The plugin to be tested; that of the build, or what a test of this test says.
inline std::string library_under_test() {
  const char* given = std::getenv("NCCL_NET_UNDER_TEST");
  return given ? given : WEFT_NCCL_NET;
}

/// The provider of libfabric behind the net `ofi_tcp` and those of GPU memory.
inline std::string provider_under_test() {
  const char* given = std::getenv("NCCL_NET_PROVIDER");
  return given ? given : WEFT_OFI_TCP;
}

inline const std::vector<Net>& nets() {
  static const std::vector<Net> all = {
      {"tcp", {{"WEFT_NET", "tcp"}, {"WEFT_SOCKET_IFNAME", "lo"}}, library_under_test()},
      {"ofi_tcp",
       {{"WEFT_NET", "ofi"}, {"WEFT_PROVIDER", provider_under_test()}, {"WEFT_SOCKET_IFNAME", "lo"}},
       library_under_test()},
      {"ofi_shm",
       {{"WEFT_NET", "ofi"}, {"WEFT_PROVIDER", "shm"}, {"WEFT_SOCKET_IFNAME", "lo"}},
       library_under_test()},
      // As badly as a transport may behave: busy now and then, and without any order.
      {"unordered",
       {{"WEFT_NET", "tcp"}, {"WEFT_SOCKET_IFNAME", "lo"}, {"MUTATION", "none"}},
       WEFT_NCCL_NET_MUTANT},
  };
  return all;
}

/// Whether the net has no order, as EFA. There a receiver that takes memory away needs a sender that polls:
/// nothing else shows that no write has begun, and the plugin closes the device's connections without it.
inline bool without_order(const Net& net) { return net.name == "ofi_tcp" && provider_under_test() == "efa"; }

/// Those that users may choose.
inline std::vector<Net> real_nets() { return {nets().begin(), nets().end() - 1}; }

/// What a test's process has.
class Process {
 public:
  Process(int version, const Net& net, int channel) : version_(version), channel_(channel) {
    for (const auto& [name, value] : net.environment) setenv(name.c_str(), value.c_str(), 1);
    host_ = PluginHost::open(net.library, version);
  }
  PluginHost& host() { return *host_; }
  bool ready() const { return host_ != nullptr; }
  int version() const { return version_; }
  /// Before connecting: another device than 0.
  void use_device(int device) { device_ = device; }

  /// Tells the other process that this one is here, and waits for the same.
  void meet() {
    char byte = 'm';
    tell(&byte, 1);
    hear(&byte, 1);
  }
  /// The same, but the process polls by `request`, which is not over before.
  void meet_polling(void* request) {
    int done = 0;
    EXPECT_TRUE(wait_until([&] {
      EXPECT_EQ(host().test(request, &done, nullptr), abi::kSuccess);
      EXPECT_FALSE(done);
      return has_been_told() || ::testing::Test::HasFailure();
    }));
    meet();
  }
  void tell(const void* data, size_t bytes) {
    ASSERT_EQ(::send(channel_, data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  /// Whether something was told that has not been heard yet: so that a process can poll until then.
  bool has_been_told() const {
    char byte;
    return ::recv(channel_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }
  void hear(void* data, size_t bytes) {
    ASSERT_EQ(::recv(channel_, data, bytes, MSG_WAITALL), static_cast<ssize_t>(bytes))
        << "the other process ended";
  }

  /// The two ends of a new connection: each process calls one of these.
  End connect() {
    char handle[abi::kHandleBytes];
    hear(handle, sizeof handle);
    return End(host(), End::Side::sender, connect_to(handle));
  }
  End accept() {
    char handle[abi::kHandleBytes] = {};
    void* listener = nullptr;
    EXPECT_EQ(host().listen(device_, handle, &listener), abi::kSuccess)
        << (logged().empty() ? "" : logged().back());
    tell(handle, sizeof handle);
    void* receiver = accept_from(listener);
    EXPECT_EQ(host().close_listener(listener), abi::kSuccess);
    return End(host(), End::Side::receiver, receiver);
  }
  void* connect_to(char* handle) {
    void* sender = nullptr;
    EXPECT_TRUE(wait_until(
        [&] { return host().connect(device_, handle, &sender) != abi::kSuccess || sender != nullptr; }));
    EXPECT_NE(sender, nullptr) << (logged().empty() ? "" : logged().back());
    return sender;
  }
  void* accept_from(void* listener) {
    void* receiver = nullptr;
    EXPECT_TRUE(wait_until(
        [&] { return host().accept(listener, &receiver) != abi::kSuccess || receiver != nullptr; }));
    EXPECT_NE(receiver, nullptr);
    return receiver;
  }

 private:
  const int version_;
  const int channel_;
  int device_ = 0;
  std::unique_ptr<PluginHost> host_;
};

/// Sockets of this process that have sent a good part of `bytes`. That rails share what they carry shows in
/// the sum of several messages: libfabric's rails connect when they are first used, and one that has not done
/// so yet is passed over, so the first message may go by another alone.
inline int busy_sockets(size_t bytes) {
  int busy = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof info;
    const int fd = std::stoi(entry.path().filename().string());
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) busy += info.tcpi_bytes_acked > bytes / 8;
  }
  return busy;
}

using Body = std::function<void(Process&)>;

/// Runs both bodies, each in a process of its own; a process that has failures, or does not end, is a failure
/// of the test. The receiver has the sender's net unless it is given one of its own.
inline void run_two(int version, const Net& net, const Body& sender, const Body& receiver, int seconds = 100,
                    const Net* receivers_net = nullptr) {
  int channel[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, channel), 0);
  std::fflush(nullptr);
  pid_t children[2];
  for (int side = 0; side < 2; ++side) {
    children[side] = fork();
    ASSERT_GE(children[side], 0);
    if (children[side] > 0) continue;
    remove_leftovers(getpid());
    alarm(static_cast<unsigned>(seconds));
    ::close(channel[1 - side]);
    try {
      Process process(version, side == 1 && receivers_net ? *receivers_net : net, channel[side]);
      if (process.ready()) (side == 0 ? sender : receiver)(process);
    } catch (const std::exception& error) {  // must not go on as the test's own process
      ADD_FAILURE() << error.what();
    }
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  ::close(channel[0]), ::close(channel[1]);
  for (int side = 0; side < 2; ++side) {
    int status = 0;
    waitpid(children[side], &status, 0);
    remove_leftovers(children[side]);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << (side == 0 ? "the sender's" : "the receiver's") << " process "
        << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed");
  }
}

/// For tests of all ways and of the oldest and newest version of the ABI.
class OverNets : public ::testing::TestWithParam<std::tuple<Net, int>> {
 public:
  const Net& net() const { return std::get<0>(GetParam()); }
  int version() const { return std::get<1>(GetParam()); }
  void run(const Body& sender, const Body& receiver) { run_two(version(), net(), sender, receiver); }
  /// One process alone.
  void run(const Body& body) {
    run(body, [](Process&) {});
  }
};

inline std::string name_of_net(const ::testing::TestParamInfo<std::tuple<Net, int>>& info) {
  return std::get<0>(info.param).name + "_v" + std::to_string(std::get<1>(info.param));
}

}  // namespace weft::nccl_net_test
