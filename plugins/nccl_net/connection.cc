#include "connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::nccl_net {
namespace {
constexpr int64_t kLossGraceNs = 100'000'000;  // for what a process has sent before it went
}  // namespace

Connection::Connection(Introduction introduction, size_t requests)
    : endpoint_(std::move(introduction.endpoint)),
      peer_(introduction.peer),
      peer_name_(std::move(introduction.peer_name)),
      number_([this] {
        const auto held = lock();
        return endpoint_->enter(*this, peer_);
      }()),
      requests_(requests) {
  for (Request& request : requests_) free_.push_back(&request);
}

Connection::~Connection() = default;

void Connection::close(bool let_out) {
  const auto held = lock();
  bool quiet = true;
  for (Request& request : requests_) {
    if (!in_use(request) || !request.failure.ok() || complete(request)) continue;
    quiet = false;
    withdraw(request);
  }
  if (let_out && quiet && endpoint_->status().ok()) endpoint_->let_out(transport().ticket());
  endpoint_->leave(number_);
  for (Memory* memory : memories_) {
    if (endpoint_->status().ok()) transport().unexpose(memory->exposed);
    delete memory;
  }
}

void Connection::begin(uint32_t remote_number, const Terms& terms, UniqueFd handshake) {
  const auto held = lock();
  handshake_ = std::move(handshake);
  remote_number_ = remote_number;
  terms_ = terms;
  if (!controls_.empty()) remember_me();
}

// ---- Memory

Result<Memory*> Connection::register_memory(void* data, size_t bytes, int type) {
  if (type != abi::kHostMemory)
    return weft::fail(Code::unsupported,
                      "{} memory cannot be registered: this device takes host memory only, as its properties "
                      "say",
                      type == abi::kCudaMemory ? "CUDA" : fmt::format("type {}", type));
  if (!data && bytes > 0)
    return weft::fail(Code::invalid_pointer, "{} bytes at null cannot be registered", bytes);
  const auto held = lock();
  WEFT_TRY(failure_);
  WEFT_TRY(endpoint_->status());
  Result<transport::RemoteBuffer> exposed = transport().expose(data, bytes);
  if (!exposed.ok()) return exposed.status();
  return *memories_.insert(new Memory{static_cast<std::byte*>(data), bytes, *exposed}).first;
}

Status Connection::deregister(Memory* memory) {
  const auto held = lock();
  if (memories_.erase(memory) == 0)
    return weft::fail(Code::invalid_argument,
                      "memory is deregistered that was not registered with this connection, or not any more");
  const std::unique_ptr<Memory> owner(memory);
  for (Request& request : requests_) {
    const auto uses = [&](const Request::Part& part) { return part.memory == memory; };
    if (!in_use(request) || !request.failure.ok() ||
        std::none_of(request.parts.begin(), request.parts.begin() + request.count, uses))
      continue;
    if (!complete(request)) {
      withdraw(request);
      end(request, weft::fail(Code::aborted, "its memory was deregistered while the request was under way"));
    }
    for (Request::Part& part : request.parts) part.memory = nullptr;
  }
  if (endpoint_->status().ok()) transport().unexpose(memory->exposed);
  return {};
}

Status Connection::check_memory(const void* data, size_t bytes, const void* memory) const {
  if (bytes > kLongestMessage)
    return weft::fail(Code::invalid_argument, "a message of {} bytes, must be at most {}", bytes,
                      kLongestMessage);
  if (bytes == 0) return {};
  const auto* registration = static_cast<const Memory*>(memory);
  if (!memories_.contains(const_cast<Memory*>(registration)))
    return weft::fail(Code::invalid_argument, "{} bytes at {} are not registered with this connection", bytes,
                      data);
  if (!registration->holds(data, bytes))
    return weft::fail(Code::invalid_argument, "{} bytes at {} lie outside of the memory registered for them",
                      bytes, data);
  return {};
}

// ---- Requests

Request* Connection::take_request() {
  if (free_.empty()) return nullptr;
  Request* request = free_.back();
  free_.pop_back();
  request->renew(*this);
  return request;
}

void Connection::end(Request& request, const Status& why) {
  if (request.failure.ok()) request.failure = why;
}

Result<bool> Connection::test(Request& request, int* sizes) {
  const auto held = lock();
  const auto over = [&] {
    if (request.failure.ok()) return complete(request);
    return !request.other_side_first || controls_.empty() || !failure_.ok();
  };
  if (!over()) {
    // What goes wrong is kept in the requests that it concerns.
    if (const Status polled = endpoint_->poll(); !polled.ok()) fail(polled);
    if (!over()) return false;
  }
  const Status failure = request.failure;
  for (int i = 0; sizes && i < request.count; ++i)
    sizes[i] = static_cast<int>(request.parts[static_cast<size_t>(i)].bytes);
  if (!failure.ok()) withdraw(request);  // what is left of it
  give_back(request);
  if (!failure.ok()) return failure;
  return true;
}

void Connection::fail(const Status& why) {
  if (!failure_.ok()) return;
  failure_ = weft::fail(why.code() == Code::aborted ? Code::aborted : Code::remote_error,
                        "the connection with {} is lost: {}", peer_name_, why.message());
  for (Request& request : requests_)
    if (in_use(request) && !complete(request)) end(request, failure_);
}

bool Connection::peer_is_there() {
  if (!handshake_.valid() || !failure_.ok()) return true;
  if (gone_since_ns_ > 0) return now_ns() - gone_since_ns_ < kLossGraceNs;
  char byte;
  const ssize_t got = ::recv(handshake_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  const bool there = got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
  if (!there) gone_since_ns_ = now_ns();
  return true;
}

// ---- Control messages

transport::Envelope Connection::envelope(Kind kind, int tag, uint32_t turn) const {
  transport::Envelope envelope;
  envelope.comm = remote_number_;
  envelope.kind = static_cast<uint8_t>(kind);
  envelope.set_tag(static_cast<uint32_t>(tag));
  envelope.op = turn;
  return envelope;
}

void Connection::post(const transport::Envelope& envelope, const void* payload, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(payload);
  controls_.push_back({envelope, std::vector<std::byte>(begin, begin + bytes)});
  controls_.back().envelope.bytes = static_cast<uint32_t>(bytes);
  remember_me();
}

void Connection::remember_me() {
  if (!std::exchange(remembered_, true)) endpoint_->remember(number_);
}

void Connection::pump() {
  remembered_ = false;
  while (!controls_.empty() && failure_.ok() && endpoint_->status().ok()) {
    const Control& control = controls_.front();
    const auto sent = transport().send(peer_, control.envelope, control.payload.data());
    if (!sent.ok()) return fail(sent.status());
    if (*sent == transport::Progress::busy) return remember_me();
    controls_.pop_front();
  }
}

}  // namespace weft::nccl_net
