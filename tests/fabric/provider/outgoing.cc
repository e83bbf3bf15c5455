#include "outgoing.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace weft::fake_efa {
namespace {

constexpr int64_t kProbeEveryUs = 20'000;

}  // namespace

bool Outgoing::add(Transfer transfer, const Address& writer) {
  PacketHeader& header = transfer.header;
  header.packets = 1;
  if (transfer.writes()) {
    header.writer = writer;
    header.slot = board_.take(header.generation);
    if (header.slot == kSlots) return false;
    header.write_bytes = transfer.bytes;
    header.packets =
        static_cast<uint32_t>(std::max<size_t>(1, (transfer.bytes + kPacketBytes - 1) / kPacketBytes));
  }
  transfer.unsent.resize(header.packets);
  std::iota(transfer.unsent.rbegin(), transfer.unsent.rend(), 0u);
  chance_.shuffle(transfer.unsent);
  sending_.push_back(std::make_unique<Transfer>(std::move(transfer)));
  return true;
}

Path::Sent Outgoing::send_packet(Transfer& transfer) {
  if (transfer.bytes > 0 && !domain_.is_registered(transfer.registration)) return Path::Sent::fault;
  const size_t first = transfer.writes() ? size_t{transfer.unsent.back()} * kPacketBytes : 0;
  const size_t bytes = transfer.writes() ? std::min(kPacketBytes, transfer.bytes - first) : transfer.bytes;
  PacketHeader header = transfer.header;
  header.bytes = static_cast<uint32_t>(bytes);
  header.address += first;
  return transfer.path->send(header, transfer.source + first, bytes, board_.fd());
}

/// Packets of random transfers, of one after the other where all is in order.
void Outgoing::send(int packets) {
  std::vector<Path*> full;
  size_t passed = 0;  // transfers at the end of sending_ whose paths are full
  while (packets > 0 && passed < sending_.size()) {
    const size_t left = sending_.size() - passed;
    const size_t at = settings().in_order ? 0 : chance_.below(left);
    std::unique_ptr<Transfer>& chosen = sending_[at];
    Path::Sent sent =
        std::ranges::find(full, chosen->path) != full.end() ? Path::Sent::full : send_packet(*chosen);
    if (sent == Path::Sent::full) {
      if (settings().in_order) return;
      full.push_back(chosen->path);
      std::swap(chosen, sending_[left - 1]);
      ++passed;
      continue;
    }
    --packets;
    if (sent == Path::Sent::yes) chosen->unsent.pop_back();
    if (sent == Path::Sent::yes && !chosen->unsent.empty()) continue;
    std::unique_ptr<Transfer> over = std::move(chosen);
    sending_.erase(sending_.begin() + static_cast<ptrdiff_t>(at));
    if (sent == Path::Sent::gone) end(std::move(over), FI_ECONNABORTED);
    else if (sent == Path::Sent::fault) end(std::move(over), FI_EFAULT);
    else if (over->writes()) waiting_.push_back(std::move(over));
    else end(std::move(over), 0);
  }
}

void Outgoing::look_at_answers() {
  for (size_t i = 0; i < waiting_.size();) {
    const PacketHeader& header = waiting_[i]->header;
    const BoardSlot& slot = board_.slot(header.slot);
    const uint32_t refused = slot.refused;
    if (slot.placed + refused < header.packets) {
      ++i;
      continue;
    }
    std::unique_ptr<Transfer> over = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    end(std::move(over), refused > 0 ? FI_EREMOTEIO : 0);
  }
}

/// A peer that ends takes packets with it that were waiting in its mailbox.
void Outgoing::look_for_lost_peers() {
  const int64_t now = waiting_.empty() ? 0 : now_us();
  if (now < probed_us_ + kProbeEveryUs) return;
  probed_us_ = now;
  PacketHeader probe;
  probe.kind = PacketHeader::Kind::probe;
  for (size_t i = 0; i < waiting_.size();) {
    if (waiting_[i]->path->send(probe, nullptr, 0, -1) != Path::Sent::gone) {
      ++i;
      continue;
    }
    std::unique_ptr<Transfer> over = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    end(std::move(over), FI_ECONNABORTED);
  }
}

void Outgoing::end(std::unique_ptr<Transfer> transfer, int error) {
  if (transfer->writes()) board_.give_back(transfer->header.slot);
  Completion completion;
  completion.entry.op_context = transfer->context;
  completion.entry.flags = transfer->writes() ? FI_RMA | FI_WRITE : FI_MSG | FI_SEND;
  completion.error = error;
  queue_.add(completion, chance_, slowness_);
}

void Outgoing::progress(int packets) {
  send(packets);
  look_at_answers();
  look_for_lost_peers();
}

void Outgoing::fail_all(int error) {
  for (Transfers* transfers : {&sending_, &waiting_})
    for (std::unique_ptr<Transfer>& transfer : std::exchange(*transfers, {})) end(std::move(transfer), error);
}

}  // namespace weft::fake_efa
