#include "checked_call.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "random.h"

namespace soak {
namespace {

constexpr size_t kGuardBytes = 64, kPeriod = 61;
constexpr std::byte kGuard{0xa5}, kUntouched{0x5a};

/// A whole number in [0, 256) as a float of `mantissa` bits that has it exactly.
uint32_t float_bits(int number, int mantissa, int bias) {
  if (number == 0) return 0;
  const int exponent = std::bit_width(static_cast<unsigned>(number)) - 1;
  const auto fraction = static_cast<uint32_t>(number - (1 << exponent));
  const uint32_t high =
      exponent <= mantissa ? fraction << (mantissa - exponent) : fraction >> (exponent - mantissa);
  return static_cast<uint32_t>(exponent + bias) << mantissa | high;
}

template <typename T>
size_t store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
  return sizeof value;
}

/// Writes a number as an element; returns the element's bytes.
size_t encode(weftDataType_t type, int number, std::byte* to) {
  switch (type) {
    case weftInt8:
    case weftUint8: return store(static_cast<uint8_t>(number), to);
    case weftInt32:
    case weftUint32: return store(static_cast<uint32_t>(number), to);
    case weftInt64:
    case weftUint64: return store(static_cast<uint64_t>(number), to);
    case weftFloat16: return store(static_cast<uint16_t>(float_bits(number, 10, 15)), to);
    case weftBfloat16: return store(static_cast<uint16_t>(float_bits(number, 7, 127)), to);
    case weftFloat8e4m3: return store(static_cast<uint8_t>(float_bits(number, 3, 7)), to);
    case weftFloat8e5m2: return store(static_cast<uint8_t>(float_bits(number, 2, 15)), to);
    case weftFloat32: return store(static_cast<float>(number), to);
    case weftFloat64: return store(static_cast<double>(number), to);
    default: std::abort();
  }
}

bool reduces(What what) {
  return what == What::all_reduce || what == What::reduce || what == What::reduce_scatter ||
         what == What::reduce_scatter_v;
}

/// A rank's value at an index: sums and products of all ranks stay small, and averages are of equal values.
int value_at(const Call& call, int rank, size_t index) {
  const uint64_t hash =
      mix({call.seed, call.op == weftAvg && reduces(call.what) ? 0 : static_cast<uint64_t>(rank) + 1, index});
  if (!reduces(call.what)) return static_cast<int>(hash % 8);
  if (call.op == weftSum) return static_cast<int>(hash % 2);
  if (call.op == weftProd) return rank < 6 ? 1 + static_cast<int>(hash % 2) : 1;
  return static_cast<int>(hash % 8);
}

int combine(weftRedOp_t op, int a, int b) {
  switch (op) {
    case weftSum: return a + b;
    case weftProd: return a * b;
    case weftMax: return std::max(a, b);
    case weftMin: return std::min(a, b);
    case weftBand: return a & b;
    case weftBor: return a | b;
    case weftBxor: return a ^ b;
    default: return a;  // an average of equal values
  }
}

}  // namespace

CheckedCall::CheckedCall(const Call& call, int rank, int ranks) : call_(call), rank_(rank), ranks_(ranks) {
  std::byte element[8];
  element_bytes_ = encode(call.type, 0, element);
  for (int r = 0; r < ranks; ++r) {
    auto& values = values_.emplace_back();
    for (size_t i = 0; i < kPeriod; ++i) values.push_back(value_at(call, r, i));
  }
  const auto n = static_cast<size_t>(ranks);
  const size_t count = call.count;
  for (int r = 0; r < ranks; ++r) {
    send_counts_.push_back(share(rank, r));
    receive_counts_.push_back(share(r, rank));
  }
  const bool in_place = call.in_place;
  switch (call.what) {
    case What::all_reduce:
    case What::reduce:
    case What::broadcast: send_count_ = receive_count_ = count, in_place_ = in_place; break;
    case What::ring_exchange: send_count_ = receive_count_ = count; break;
    case What::reduce_scatter:
      send_count_ = n * count, receive_count_ = count;
      in_place_ = in_place, own_block_ = static_cast<size_t>(rank) * count;
      break;
    case What::all_gather:
      send_count_ = count, receive_count_ = n * count;
      in_place_ = in_place, own_block_ = static_cast<size_t>(rank) * count;
      break;
    case What::all_to_all: send_count_ = receive_count_ = n * count; break;
    case What::gather: send_count_ = count, receive_count_ = n * count; break;
    case What::scatter: send_count_ = n * count, receive_count_ = count; break;
    case What::all_gather_v: send_count_ = send_counts_[0], receive_count_ = sum_of_shares(true); break;
    case What::reduce_scatter_v:
      send_count_ = sum_of_shares(false), receive_count_ = receive_counts_[0];
      break;
    case What::all_to_all_v: send_count_ = sum_of_shares(false), receive_count_ = sum_of_shares(true); break;
  }
  // In place there is one buffer, the larger one.
  if (in_place_) send_count_ > receive_count_ ? receive_count_ = 0 : send_count_ = 0;
  allocate(send_, send_count_ * element_bytes_);
  allocate(receive_, receive_count_ * element_bytes_);
  Buffer& input = send_count_ > 0 || !in_place_ ? send_ : receive_;
  const size_t own = call.what == What::all_gather && in_place_ ? own_block_ : 0;
  const size_t inputs = call.what == What::all_gather && in_place_ ? count : input.bytes / element_bytes_;
  for (size_t i = 0; i < inputs; ++i)
    encode(call.type, value(rank, i), input.data() + (own + i) * element_bytes_);
}

CheckedCall::~CheckedCall() {
  for (Buffer* buffer : {&send_, &receive_}) {
    if (buffer->shareable) (void)weftMemFree(buffer->memory);
    else std::free(buffer->memory);
  }
}

std::byte* CheckedCall::Buffer::data() const { return memory + kGuardBytes; }

void CheckedCall::allocate(Buffer& buffer, size_t bytes) const {
  buffer.bytes = bytes;
  const size_t whole = (bytes + 2 * kGuardBytes + 63) / 64 * 64;
  void* memory = nullptr;
  buffer.shareable = call_.shareable && weftMemAlloc(&memory, whole) == weftSuccess;
  if (!buffer.shareable) memory = std::aligned_alloc(64, whole);
  if (memory == nullptr) std::abort();
  buffer.memory = static_cast<std::byte*>(memory);
  std::memset(buffer.memory, static_cast<int>(kUntouched), whole);
  std::memset(buffer.memory, static_cast<int>(kGuard), kGuardBytes);
  std::memset(buffer.data() + bytes, static_cast<int>(kGuard), kGuardBytes);
}

/// Elements that `from` has for `to` in a ...V call. In an AllGatherV they are the same for all receivers, in
/// a ReduceScatterV for all senders.
size_t CheckedCall::share(int from, int to) const {
  const auto a = static_cast<uint64_t>(call_.what == What::reduce_scatter_v ? 0 : from);
  const auto b = static_cast<uint64_t>(call_.what == What::all_gather_v ? 0 : to);
  return call_.count / 2 + mix({call_.seed, a, b}) % (call_.count + 1);
}

size_t CheckedCall::sum_of_shares(bool to_me) const {
  size_t sum = 0;
  for (const size_t count : to_me ? receive_counts_ : send_counts_) sum += count;
  return sum;
}

bool CheckedCall::receives() const {
  return (call_.what != What::reduce && call_.what != What::gather) || rank_ == call_.root;
}

int CheckedCall::value(int rank, size_t index) const {
  return values_[static_cast<size_t>(rank)][index % kPeriod];
}

int CheckedCall::reduced(size_t index) const {
  int result = value(0, index);
  for (int rank = 1; rank < ranks_; ++rank) result = combine(call_.op, result, value(rank, index));
  return result;
}

weftResult_t CheckedCall::start(weftComm_t comm, weftStream_t stream) {
  std::byte* send = send_.data();
  std::byte* receive = receive_.data();
  if (in_place_ && send_count_ == 0)
    send = receive + (call_.what == What::all_gather ? own_block_ * element_bytes_ : 0);
  else if (in_place_) receive = send + (call_.what == What::reduce_scatter ? own_block_ * element_bytes_ : 0);
  const size_t count = call_.count;
  const weftDataType_t type = call_.type;
  std::vector<size_t> by_rank;  // of AllGatherV and ReduceScatterV
  for (int r = 0; r < ranks_; ++r)
    by_rank.push_back(call_.what == What::all_gather_v ? share(r, 0) : share(0, r));
  switch (call_.what) {
    case What::all_reduce: return weftAllReduce(send, receive, count, type, call_.op, comm, stream);
    case What::reduce: return weftReduce(send, receive, count, type, call_.op, call_.root, comm, stream);
    case What::broadcast: return weftBroadcast(send, receive, count, type, call_.root, comm, stream);
    case What::reduce_scatter: return weftReduceScatter(send, receive, count, type, call_.op, comm, stream);
    case What::all_gather: return weftAllGather(send, receive, count, type, comm, stream);
    case What::all_to_all: return weftAlltoAll(send, receive, count, type, comm, stream);
    case What::gather: return weftGather(send, receive, count, type, call_.root, comm, stream);
    case What::scatter: return weftScatter(send, receive, count, type, call_.root, comm, stream);
    case What::ring_exchange: {
      (void)weftGroupStart();
      const weftResult_t sent = weftSend(send, count, type, (rank_ + 1) % ranks_, comm, stream);
      const weftResult_t received =
          weftRecv(receive, count, type, (rank_ + ranks_ - 1) % ranks_, comm, stream);
      const weftResult_t ended = weftGroupEnd();
      return sent != weftSuccess ? sent : received != weftSuccess ? received : ended;
    }
    case What::all_gather_v:
      return weftAllGatherV(send, receive, by_rank.data(), nullptr, type, comm, stream);
    case What::reduce_scatter_v:
      return weftReduceScatterV(send, receive, by_rank.data(), nullptr, type, call_.op, comm, stream);
    case What::all_to_all_v:
      return weftAlltoAllV(send, send_counts_.data(), nullptr, receive, receive_counts_.data(), nullptr, type,
                           comm, stream);
  }
  return weftInternalError;
}

/// What element `index` of the output holds.
int CheckedCall::expected(size_t index) const {
  const size_t count = call_.count;
  const auto rank = static_cast<size_t>(rank_);
  switch (call_.what) {
    case What::all_reduce:
    case What::reduce: return reduced(index);
    case What::broadcast: return value(call_.root, index);
    case What::reduce_scatter: return reduced(rank * count + index);
    case What::all_gather:
    case What::gather: return value(static_cast<int>(index / count), index % count);
    case What::all_to_all: return value(static_cast<int>(index / count), rank * count + index % count);
    case What::scatter: return value(call_.root, rank * count + index);
    case What::ring_exchange: return value((rank_ + ranks_ - 1) % ranks_, index);
    case What::reduce_scatter_v: {
      size_t before = 0;
      for (int r = 0; r < rank_; ++r) before += share(0, r);
      return reduced(before + index);
    }
    case What::all_gather_v:
    case What::all_to_all_v: {
      int from = 0;
      for (; index >= receive_counts_[static_cast<size_t>(from)]; ++from)
        index -= receive_counts_[static_cast<size_t>(from)];
      size_t before = 0;
      if (call_.what == What::all_to_all_v)
        for (int r = 0; r < rank_; ++r) before += share(from, r);
      return value(from, before + index);
    }
  }
  return -1;
}

std::string CheckedCall::check_elements(const std::byte* data, size_t first, size_t count,
                                        bool output) const {
  std::byte right[8];
  for (size_t i = 0; i < count; ++i) {
    const int number = output ? expected(i) : value(rank_, i);
    encode(call_.type, number, right);
    if (std::memcmp(right, data + (first + i) * element_bytes_, element_bytes_) == 0) continue;
    std::string is;
    for (size_t b = element_bytes_; b-- > 0;) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x",
                    std::to_integer<unsigned>(data[(first + i) * element_bytes_ + b]));
      is += digits;
    }
    return std::string(name_of(call_.what)) + " of " + std::to_string(call_.count) + " elements of type " +
           std::to_string(call_.type) + ", operator " + std::to_string(call_.op) + ", root " +
           std::to_string(call_.root) + (in_place_ ? ", in place" : "") + ": element " + std::to_string(i) +
           " of the " + (output ? "output" : "input") + " is 0x" + is + ", must be " + std::to_string(number);
  }
  return {};
}

std::string CheckedCall::check_guards(const Buffer& buffer, const char* which) {
  for (size_t i = 0; i < kGuardBytes; ++i) {
    if (buffer.memory[i] != kGuard) return std::string("bytes before the ") + which + " were written";
    if (buffer.data()[buffer.bytes + i] != kGuard)
      return std::string("bytes behind the ") + which + " were written";
  }
  return {};
}

std::string CheckedCall::check() const {
  for (const auto& [buffer, name] : {std::pair{&send_, "input"}, std::pair{&receive_, "output"}})
    if (std::string wrong = check_guards(*buffer, name); !wrong.empty())
      return std::string(name_of(call_.what)) + ": " + wrong;
  if (!in_place_) {
    // Only the root's input counts in a broadcast or scatter; all the same nobody may write to the others'.
    if (std::string wrong = check_elements(send_.data(), 0, send_count_, false); !wrong.empty()) return wrong;
    return receives() ? check_elements(receive_.data(), 0, receive_count_, true) : std::string();
  }
  if (!receives()) return {};
  const Buffer& only = send_count_ > 0 ? send_ : receive_;
  if (call_.what == What::reduce_scatter) return check_elements(only.data(), own_block_, call_.count, true);
  return check_elements(only.data(), 0, only.bytes / element_bytes_, true);
}

}  // namespace soak
