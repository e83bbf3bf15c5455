// What nccl_net_bench compares: one side of a way to move messages, over a plain TCP stream, over Weft's own
// transport (TCP's, or with WEFT_NET=ofi libfabric's) and through the plugin for NCCL. Nothing here waits:
// whoever drives a link calls advance(), of one side in each of two processes, or of both in one.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "../plugins/nccl_net/abi.h"
#include "base/settings.h"
#include "loopback.h"
#include "transport/ofi.h"
#include "transport/tcp_transport.h"

namespace weft::perf {

namespace abi = nccl_net::abi;

inline constexpr size_t kMostBytes = 16 << 20;
inline constexpr int kInFlight = 8;  // NCCL's steps

/// Moves `count` messages of `bytes` each, from the start of its memory or to it.
class Link {
 public:
  virtual ~Link() = default;
  /// True once there is a connection.
  virtual bool connected() { return true; }
  virtual void begin_send(size_t bytes, int count) = 0;
  virtual void begin_receive(size_t bytes, int count) = 0;
  /// Does what can be done at once of what has begun. True when it is over.
  virtual bool advance() = 0;
};

/// A byte stream, in a write and a read for each message, of 256 KiB at most.
class PlainLink final : public Link {
 public:
  PlainLink(UniqueFd fd, std::byte* memory) : fd_(std::move(fd)), memory_(memory) {
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  void begin_send(size_t bytes, int count) override { sends_ = true, begin(bytes, count); }
  void begin_receive(size_t bytes, int count) override { sends_ = false, begin(bytes, count); }
  bool advance() override {
    while (left_ > 0) {
      const size_t step = std::min<size_t>(256 << 10, bytes_ - at_);
      const ssize_t moved = sends_ ? ::send(fd_.get(), memory_ + at_, step, MSG_NOSIGNAL | MSG_DONTWAIT)
                                   : ::recv(fd_.get(), memory_ + at_, step, MSG_DONTWAIT);
      if (moved == 0 || (moved < 0 && errno != EAGAIN)) die("the plain connection broke");
      if (moved < 0) return false;
      at_ += static_cast<size_t>(moved);
      if (at_ == bytes_) at_ = 0, --left_;
    }
    return true;
  }

 private:
  void begin(size_t bytes, int count) { bytes_ = bytes, at_ = 0, left_ = count; }

  UniqueFd fd_;
  std::byte* memory_;
  bool sends_ = false;
  size_t bytes_ = 0, at_ = 0;
  int left_ = 0;
};

/// What two libfabric transports tell each other before they can talk.
struct Card {
  std::array<std::byte, transport::OfiTransport::kAddressBytes> address{};
  transport::RemoteBuffer window;
};

/// One direction of the transport as the engine uses it: short messages, and puts into memory that the peer
/// has exposed.
class OneWay final : private transport::Sink {
 public:
  OneWay(int rank, UniqueFd fd, std::byte* memory) : peer_(1 - rank), memory_(memory) {
    for (transport::Completion& each : completions_) each.done = true;
    if (settings().net == "ofi") {
      open_ofi(rank, std::move(fd));
      return;
    }
    auto made = transport::TcpTransport::create(
        rank, 2,
        [](int, int, uint32_t, Deadline) -> Result<UniqueFd> { die("the connection is there already"); }, {});
    must(made.status());
    must((*made)->accept(peer_, 0, std::move(fd)));
    transport_ = made.take();
    window_ = *transport_->expose(memory, kMostBytes);
    poll();
  }
  /// Over libfabric, once the other side's address has come.
  bool connected() {
    if (!channel_.valid()) return true;
    Card theirs;
    const ssize_t got = ::recv(channel_.get(), &theirs, sizeof theirs, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return false;
    if (got != static_cast<ssize_t>(sizeof theirs)) die("no address came");
    channel_.reset();
    must(ofi_->introduce(peer_, theirs.address, static_cast<uint32_t>(1 - peer_)));
    window_ = theirs.window;
    return true;
  }
  void begin_send(size_t bytes, int count) { bytes_ = bytes, left_ = count, next_ = 0; }
  void begin_receive(int count) { expected_ = count; }
  bool advance_send() {
    transport::Envelope envelope;
    envelope.bytes = static_cast<uint32_t>(bytes_);
    for (; left_ > 0; --left_, ++next_) {
      transport::Completion& done = completions_[next_ % kInFlight];
      if (!done.done) return poll(), false;
      done.done = bytes_ <= transport_->eager_bytes();
      const auto sent = done.done ? transport_->send(peer_, envelope, memory_)
                                  : transport_->put(peer_, envelope, memory_, bytes_, window_, 0, &done);
      must(sent.status());
      if (*sent == transport::Progress::accepted) continue;
      done.done = true;
      return poll(), false;
    }
    for (const transport::Completion& done : completions_)
      if (!done.done) return poll(), false;
    if (transport_->flushed(transport_->ticket())) return true;
    return poll(), false;
  }
  bool advance_receive() {
    if (arrived_ < expected_) poll();
    if (arrived_ < expected_) return false;
    arrived_ -= std::exchange(expected_, 0);
    return true;
  }

 private:
  /// With the options of the plugin's endpoints.
  void open_ofi(int rank, UniqueFd channel) {
    transport::OfiTransport::Options options;
    options.provider = settings().provider;
    if (options.provider != "shm") options.interface = settings().socket_ifname;
    options.rails = 1;
    options.careful = true;
    auto made = transport::OfiTransport::create(rank, 2, options);
    must(made.status());
    ofi_ = made->get();
    transport_ = made.take();
    Card mine;
    std::ranges::copy(ofi_->address(), mine.address.begin());
    mine.window = *transport_->expose(memory_, kMostBytes);
    channel_ = std::move(channel);
    if (::send(channel_.get(), &mine, sizeof mine, 0) != static_cast<ssize_t>(sizeof mine))
      die("no address went");
  }
  void poll() { must(transport_->poll(*this).status()); }
  void* place(int, const transport::Envelope&) override { return memory_; }
  void arrived(int, const transport::Envelope& envelope, const void* payload) override {
    if (payload != nullptr) std::memcpy(memory_, payload, envelope.bytes);
    ++arrived_;
  }
  void lost(int, const Status& why) override { must(why); }

  int peer_;
  std::byte* memory_;
  std::unique_ptr<transport::Transport> transport_;
  transport::OfiTransport* ofi_ = nullptr;  // the transport, where it is libfabric's
  UniqueFd channel_;                        // then, until it is connected
  transport::RemoteBuffer window_;
  std::array<transport::Completion, kInFlight> completions_;
  size_t bytes_ = 0, next_ = 0;
  int left_ = 0, expected_ = 0, arrived_ = 0;
};

/// Connections as NCCL has them, one for each direction. With one for both the kernel's acknowledgements
/// would travel with the answers.
class TransportLink final : public Link {
 public:
  TransportLink(int rank, UniqueFd there, UniqueFd back, std::byte* memory)
      : there_(rank, std::move(rank == 0 ? there : back), memory),
        back_(rank, std::move(rank == 0 ? back : there), memory) {}
  bool connected() override {
    const bool there = there_.connected(), back = back_.connected();
    return there && back;
  }
  void begin_send(size_t bytes, int count) override { sends_ = true, there_.begin_send(bytes, count); }
  void begin_receive(size_t, int count) override { sends_ = false, back_.begin_receive(count); }
  bool advance() override { return sends_ ? there_.advance_send() : back_.advance_receive(); }

 private:
  OneWay there_, back_;  // as this side sees it
  bool sends_ = false;
};

/// The plugin, with a connection each way, and all calls as NCCL makes them. The two sides hand each other
/// their handles over `channel`.
class PluginLink final : public Link {
 public:
  PluginLink(const abi::NetV12& net, int channel, std::byte* memory)
      : net_(net), channel_(channel), memory_(memory) {
    abi::Config config{-1};
    check(net_.init(&context_, 1, &config, nullptr, nullptr), "init");
    std::array<char, abi::kHandleBytes> mine{};
    check(net_.listen(context_, 0, mine.data(), &listener_), "listen");
    if (::send(channel, mine.data(), mine.size(), 0) != static_cast<ssize_t>(mine.size()))
      die("no handle went");
  }
  bool connected() override {
    if (!heard_) {
      const ssize_t got = ::recv(channel_, theirs_.data(), theirs_.size(), MSG_DONTWAIT);
      if (got < 0 && errno == EAGAIN) return false;
      if (got != static_cast<ssize_t>(theirs_.size())) die("no handle came");
      heard_ = true;
    }
    if (!sender_) check(net_.connect(context_, 0, theirs_.data(), &sender_, nullptr), "connect");
    if (!receiver_) check(net_.accept(listener_, &receiver_, nullptr), "accept");
    if (!sender_ || !receiver_) return false;
    check(net_.close_listener(listener_), "closeListen");
    check(net_.register_memory(sender_, memory_, kMostBytes, abi::kHostMemory, &send_memory_), "regMr");
    check(net_.register_memory(receiver_, memory_, kMostBytes, abi::kHostMemory, &receive_memory_), "regMr");
    return true;
  }
  void begin_send(size_t bytes, int count) override { sends_ = true, begin(bytes, count); }
  void begin_receive(size_t bytes, int count) override { sends_ = false, begin(bytes, count); }
  /// As NCCL's proxy thread: every step that can be posted, then a look at the oldest.
  bool advance() override {
    while (over_ < count_) {
      const bool may_post = posted_ < count_ && posted_ - over_ < kInFlight;
      void*& request = requests_[static_cast<size_t>(posted_ % kInFlight)];
      if (may_post) post(&request);
      const bool posts = may_post && request;
      posted_ += posts;
      if (over_ == posted_) return false;
      int done = 0, size = 0;
      check(net_.test(requests_[static_cast<size_t>(over_ % kInFlight)], &done, &size), "test");
      over_ += done;
      if (!posts && !done) return false;
    }
    return true;
  }

 private:
  static void check(abi::Result result, const char* what) {
    if (result != abi::kSuccess) die(std::string(what) + " failed with " + std::to_string(result));
  }
  void begin(size_t bytes, int count) { bytes_ = bytes, count_ = count, posted_ = over_ = 0; }
  void post(void** request) {
    if (sends_) return check(net_.send(sender_, memory_, bytes_, 0, send_memory_, nullptr, request), "isend");
    void* data = memory_;
    size_t capacity = kMostBytes;
    int tag = 0;
    check(net_.receive(receiver_, 1, &data, &capacity, &tag, &receive_memory_, nullptr, request), "irecv");
  }

  const abi::NetV12& net_;
  const int channel_;
  std::byte* memory_;
  std::array<char, abi::kHandleBytes> theirs_{};
  bool heard_ = false;
  void *context_ = nullptr, *listener_ = nullptr, *sender_ = nullptr, *receiver_ = nullptr;
  void *send_memory_ = nullptr, *receive_memory_ = nullptr;
  bool sends_ = false;
  size_t bytes_ = 0;
  int count_ = 0, posted_ = 0, over_ = 0;
  std::array<void*, kInFlight> requests_{};
};

}  // namespace weft::perf
