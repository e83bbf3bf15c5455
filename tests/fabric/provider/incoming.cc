#include "incoming.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace weft::fake_efa {
namespace {

constexpr size_t kMostHeld = 192;  // packets

}  // namespace

void Incoming::empty_mailbox() {
  while (packets_.size() < kMostHeld) {
    auto packet = std::make_unique_for_overwrite<Packet>();
    UniqueFd board;
    const ssize_t bytes = mailbox_.take(std::as_writable_bytes(std::span(packet.get(), 1)), board);
    if (bytes < static_cast<ssize_t>(sizeof(PacketHeader))) return;
    if (board.valid()) boards_.add(packet->header.writer, std::move(board));
    if (packet->header.kind != PacketHeader::Kind::probe) packets_.add(std::move(packet), chance_, slowness_);
  }
}

void Incoming::progress() {
  empty_mailbox();
  packets_.turn(chance_, [this](const std::unique_ptr<Packet>& packet) { return take(*packet); });
}

bool Incoming::take(const Packet& packet) {
  if (packet.header.kind == PacketHeader::Kind::message) return take_message(packet);
  take_write(packet);
  return true;
}

bool Incoming::take_message(const Packet& packet) {
  if (receives_.empty()) return false;  // receiver not ready
  const Receive receive = receives_.front();
  receives_.pop_front();
  const size_t bytes = std::min<size_t>(packet.header.bytes, receive.bytes);
  std::memcpy(receive.buffer, packet.payload.data(), bytes);
  Completion completion;
  completion.entry = {
      .op_context = receive.context, .flags = FI_MSG | FI_RECV, .len = bytes, .buf = nullptr, .data = 0};
  completion.error = packet.header.bytes > receive.bytes ? FI_ETRUNC : 0;
  queue_.add(completion, chance_, slowness_);
  return true;
}

void Incoming::take_write(const Packet& packet) {
  const PacketHeader& header = packet.header;
  const std::optional<uint64_t> target = domain_.target(header.key, header.address, header.bytes);
  const bool allowed = header.bytes == 0 || target.has_value();
  if (target) place(*target, packet.payload.data(), header.bytes);
  boards_.note(header, allowed);
  const WriteName name{header.writer.id[0], uint64_t{header.slot} << 32 | header.generation};
  Begun& begun = begun_[name];
  begun.refused |= !allowed;
  if (++begun.came < header.packets) return;
  if (header.has_data && !begun.refused) {
    Completion completion;
    completion.entry = {.op_context = nullptr,
                        .flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
                        .len = header.write_bytes,
                        .buf = nullptr,
                        .data = header.data};
    queue_.add(completion, chance_, slowness_);
  }
  begun_.erase(name);
}

}  // namespace weft::fake_efa
