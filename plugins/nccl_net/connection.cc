#include "connection.h"

#include <algorithm>
#include <cstring>

namespace weft::nccl_net {
namespace {
constexpr int64_t kLossGraceNs = 100'000'000;  // for what was sent before a process went
}  // namespace

Connection::Connection(Introduction introduction, size_t requests)
    : endpoint_(std::move(introduction.endpoint)),
      peer_(introduction.peer),
      peer_name_(std::move(introduction.peer_name)),
      requests_(requests),
      number_([this] {
        const auto held = lock();
        return endpoint_->enter(*this, peer_);
      }()) {
  for (Request& request : requests_) free_.push_back(&request);
}

Connection::~Connection() = default;

void Connection::close(bool let_out) {
  const auto held = lock();
  watch_peer();
  bool quiet = true;
  for (Request& request : requests_) {
    const bool is_over = !request.failure.ok() && (gone_ || failure_.ok() || request.withdrawn);
    if (!in_use(request) || is_over || complete(request)) continue;
    quiet = false;
    withdraw(request);
  }
  if (let_out && quiet && hears() && endpoint_->status().ok()) endpoint_->let_out(transport().ticket());
  for (Memory* memory : memories_) {
    vacate(*memory);
  }
  for (Memory* memory : std::exchange(memories_, {})) delete memory;
  endpoint_->leave(number_);
  // From a broken endpoint not all arrives that was sent, so its end looks as that of a process.
  if (endpoint_->status().ok()) peer_watch_.say_farewell(messages_sent());
}

void Connection::begin(uint32_t remote_number, const Terms& terms, UniqueFd handshake) {
  const auto held = lock();
  peer_watch_.begin(std::move(handshake));
  remote_number_ = remote_number;
  terms_ = terms;
  begun();
  if (!controls_.empty()) remember_me();
}

// ---- Memory

Result<Memory*> Connection::register_memory(void* data, size_t bytes, int type, const DmaBuf* file) {
  const bool of_gpu = type == abi::kCudaMemory;
  if (!of_gpu && (file || type != abi::kHostMemory))
    return weft::fail(Code::unsupported, "memory of type {} cannot be registered{}, only {}", type,
                      file ? " by a dma-buf" : "", file ? "CUDA's (2)" : "host memory (1) and CUDA's (2)");
  if (!data && bytes > 0)
    return weft::fail(Code::invalid_pointer, "{} bytes at null cannot be registered", bytes);
  const auto held = lock();
  WEFT_TRY(endpoint_->status());
  const Result<Memory> exposed = of_gpu ? expose_gpu(data, bytes, file) : expose_host(data, bytes);
  if (!exposed.ok()) return exposed.status();
  Memory* const memory = *memories_.insert(new Memory(*exposed)).first;
  if (of_gpu) gpu_memory_came();
  return memory;
}

Result<Memory> Connection::expose_host(void* data, size_t bytes) {
  if (bytes > 0 && endpoint_->gpu_direct().ok()) {
    const device::cuda::Scope scope = endpoint_->gpu_scope();
    const auto place = device::cuda::locate(data);
    if (place.ok() && place->kind == device::cuda::Place::Kind::device)
      return weft::fail(Code::invalid_pointer,
                        "{} is memory of CUDA device {}, but is being registered as host memory", data,
                        place->ordinal);
  }
  const Result<transport::RemoteBuffer> exposed = transport().expose(data, bytes);
  if (!exposed.ok()) return exposed.status();
  return Memory{.address = static_cast<std::byte*>(data), .bytes = bytes, .exposed = *exposed};
}

Result<Memory> Connection::expose_gpu(void* data, size_t bytes, const DmaBuf* file) {
  const Result<transport::GpuDirect*> direct = endpoint_->gpu_direct();
  if (!direct.ok())
    return weft::fail(
        Code::unsupported,
        "CUDA memory cannot be registered: this device takes host memory only, as its properties "
        "say ({})",
        direct.status().message());
  if (const Status takes = file ? (*direct)->takes_dma_bufs() : Status(); !takes.ok())
    return weft::fail(Code::unsupported,
                      "a dma-buf cannot be registered: this device takes none, as its properties say ({})",
                      takes.message());
  const device::cuda::Scope scope = endpoint_->gpu_scope();
  const Result<transport::RemoteBuffer> exposed =
      file ? (*direct)->expose_dma_buf(data, bytes, file->fd, file->offset)
           : (*direct)->expose_gpu(data, bytes);
  if (!exposed.ok()) return exposed.status();
  Memory memory{.address = static_cast<std::byte*>(data), .bytes = bytes, .gpu = 0, .exposed = *exposed};
  if (const auto place = device::cuda::locate(data); bytes > 0 && place.ok())
    memory.gpu = place->ordinal, memory.gpu_buffer = place->buffer_id;
  return memory;
}

/// No more data is to be written. Registrations of GPU memory, which the transport keeps for later use, end
/// here: NCCL has its own cache, and memory that it takes away is often freed.
void Connection::unexpose(const Memory& memory) {
  if (!endpoint_->status().ok()) return;
  transport().unexpose(memory.exposed);
  if (memory.gpu >= 0) transport().gpu_direct()->drop_unexposed_gpu();
}

Status Connection::deregister(Memory* memory) {
  const auto held = lock();
  if (!memories_.contains(memory))
    return weft::fail(Code::invalid_argument,
                      "memory is deregistered that was not registered with this connection, or not any more");
  const std::unique_ptr<Memory> owner(memory);
  for (Request& request : requests_) {
    const auto uses = [&](const Request::Part& part) { return part.memory == memory; };
    const bool is_over = !request.failure.ok() && (gone_ || failure_.ok() || request.withdrawn);
    if (!in_use(request) || is_over ||
        std::none_of(request.parts.begin(), request.parts.begin() + request.count, uses))
      continue;
    if (!complete(request)) {
      withdraw(request);
      request.withdrawn = true;
      end(request, weft::fail(Code::aborted, "its memory was deregistered while the request was under way"));
    }
    for (Request::Part& part : request.parts) part.memory = nullptr;
  }
  vacate(*memory);
  memories_.erase(memory);
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

bool Connection::has_registered(const void* address) const {
  return std::any_of(memories_.begin(), memories_.end(),
                     [&](const Memory* memory) { return memory->gpu < 0 && memory->holds(address, 1); });
}

/// Requests that use it fail even if they were complete: what they have brought is nowhere.
void Connection::memory_lost() {
  const auto gone = std::find_if(memories_.begin(), memories_.end(), [](const Memory* memory) {
    return memory->gpu < 0 && MemoryWatch::lost(memory->address, memory->bytes);
  });
  if (gone == memories_.end()) return;
  const Status why =
      weft::fail(Code::invalid_usage,
                 "a buffer was freed or unmapped while a message was sent from it or received into "
                 "it: {} bytes at {} are registered, and not all of them are there",
                 (*gone)->bytes, static_cast<const void*>((*gone)->address));
  for (Request& request : requests_) {
    const auto uses = [&](const Request::Part& part) {
      return part.memory && MemoryWatch::lost(part.data, part.capacity);
    };
    if (in_use(request) && std::any_of(request.parts.begin(), request.parts.begin() + request.count, uses))
      end(request, why);
  }
  give_up(why);
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
    return !request.other_side_first || !failure_.ok() || all_is_said();
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
  gone_ = true;
  give_up(why);
}

void Connection::give_up(const Status& why) {
  if (!failure_.ok()) return;
  const bool own_fault =
      why.code() == Code::aborted || why.code() == Code::invalid_usage || why.code() == Code::invalid_pointer;
  failure_ = weft::fail(own_fault ? why.code() : Code::remote_error, "the connection with {} is lost: {}",
                        peer_name_, why.message());
  for (Request& request : requests_)
    if (in_use(request) && !complete(request)) end(request, failure_);
}

// A side that closes has said how much it has sent, and the network may take its time with the last of it.
bool Connection::waited_enough() {
  if (!closed_there()) return now_ns() - peer_watch_.left_ns() >= kLossGraceNs;
  if (!arrival_) arrival_.emplace(kArrival_s);
  return arrival_->passed(endpoint_->events());
}

void Connection::look_at_peer() {
  if (!failure_.ok() || watch_peer() == PeerWatch::Peer::there) return;
  if (!everything_came() && !waited_enough()) return;
  if (closed_there()) give_up(weft::fail(Code::remote_error, "the other side has closed it"));
  else fail(weft::fail(Code::remote_error, "the process on the other side has gone"));
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

/// The endpoint's turn, which has taken this connection off those that it remembers. Nothing else does.
void Connection::pump() {
  remembered_ = false;
  go_on();
}

void Connection::go_on() {
  if (remote_number_ == 0) return;  // a side that has not begun has no address for its words yet
  while (!controls_.empty() && hears() && endpoint_->status().ok()) {
    Control& control = controls_.front();
    control.envelope.comm = remote_number_;
    const auto sent = transport().send(peer_, control.envelope, control.payload.data());
    if (!sent.ok()) return fail(sent.status());
    if (*sent == transport::Progress::busy) return remember_me();
    said_ = transport().ticket();
    controls_.pop_front();
  }
}

}  // namespace weft::nccl_net
