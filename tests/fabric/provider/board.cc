#include "board.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace weft::fake_efa {

bool Board::map(int fd) {
  void* const mapped = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  memory_ = mapped == MAP_FAILED ? nullptr : static_cast<Memory*>(mapped);
  return memory_ != nullptr;
}

int Board::create() {
  fd_.reset(memfd_create("fake-efa-board", MFD_CLOEXEC));
  if (!fd_.valid() || ftruncate(fd_.get(), sizeof(Memory)) != 0 || !map(fd_.get())) return errno;
  for (uint32_t slot = 0; slot < kSlots; ++slot) free_.push_back(kSlots - 1 - slot);
  return 0;
}

Board::~Board() {
  if (memory_) munmap(memory_, sizeof(Memory));
}

uint32_t Board::take(uint32_t& generation) {
  if (free_.empty()) return kSlots;
  const uint32_t number = free_.back();
  free_.pop_back();
  generation = ++generation_;
  slot(number).placed = 0;
  slot(number).refused = 0;
  slot(number).generation = generation;
  return number;
}

void PeerBoards::add(const Address& writer, UniqueFd board) {
  auto opened = std::make_unique<Board>();
  if (opened->open(std::move(board))) boards_[writer.id[0]] = std::move(opened);
}

void PeerBoards::note(const PacketHeader& packet, bool placed) {
  const auto found = boards_.find(packet.writer.id[0]);
  if (found == boards_.end() || packet.slot >= kSlots) return;
  BoardSlot& slot = found->second->slot(packet.slot);
  if (slot.generation == packet.generation) ++(placed ? slot.placed : slot.refused);
}

}  // namespace weft::fake_efa
