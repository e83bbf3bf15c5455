// Rank 2 of a job of 5: what its neighbours send over links, and others who ask questions. Each piece names a
// connection, its length and its bytes.
#include <sys/epoll.h>

#include <set>

#include "bootstrap/peers.h"
#include "fuzz.h"
#include "known_job.h"

using namespace weft;
using namespace weft::bootstrap;

namespace {

constexpr int kRank = 2, kRanks = 5;

AuthenticatedPeer peer_with(FrameKind purpose, uint32_t rank, UniqueFd connection) {
  std::vector<std::byte> hello = FrameWriter(purpose).u32(rank).u32(7).take();
  hello.erase(hello.begin(), hello.begin() + kFrameHeaderBytes);
  return {std::move(connection), purpose, std::move(hello)};
}

/// What the bootstrap's user would do, and what must hold.
std::shared_ptr<const Callbacks> callbacks_of(std::set<int>& dead) {
  auto callbacks = std::make_shared<Callbacks>();
  callbacks->on_dead = [&dead](int rank, const Status& why) {
    fuzz::require(rank >= 0 && rank < kRanks && rank != kRank, "a dead rank is a peer");
    fuzz::require(dead.insert(rank).second, "a death is told once");
    fuzz::require(!why.ok(), "a death has a reason");
  };
  callbacks->on_failed = [](int from, uint32_t, const std::string&) {
    fuzz::require(from >= 0 && from < kRanks && from != kRank, "a failure is a peer's");
  };
  callbacks->on_data_connection = [](int from, uint32_t, UniqueFd) {
    fuzz::require(from >= 0 && from < kRanks, "a data connection is a rank's");
  };
  callbacks->on_question = [](int, uint32_t, uint32_t) {
    return OpReport{true, false, 3, "AllReduce", "ring"};
  };
  return callbacks;
}

}  // namespace

FUZZ_TARGET(links) {
  static const std::shared_ptr<EventLoop> loop = *EventLoop::create();
  Peers peers(*loop, fuzz::known_job(), kRank, kRanks);
  peers.set_addresses(std::vector<SocketAddress>(kRanks, *SocketAddress::parse("127.0.0.1:1")));
  std::vector<fuzz::Wire> wires(4);
  for (size_t i = 0; i < 3; ++i)
    peers.welcome(peer_with(FrameKind::link, std::array<uint32_t, 3>{0, 1, 3}[i], wires[i].take_other()));
  peers.welcome(peer_with(FrameKind::questions, 4, wires[3].take_other()));
  std::set<int> dead;
  peers.start(callbacks_of(dead));
  const auto inquiry = std::make_shared<Inquiry>(2);
  peers.questions().ask(std::array{0, 1}, 1, 1, Deadline::in_seconds(60), inquiry);

  std::vector<std::shared_ptr<Connection>> connections;
  for (auto& [rank, link] : peers.links_) connections.push_back(link);
  for (auto& [key, asking] : peers.questions_.asking_) connections.push_back(asking);
  while (!input.empty()) {
    const size_t which = input.take<uint8_t>() % connections.size();
    const size_t bytes = input.take<uint8_t>();
    if (bytes == 255) wires[which].end();
    else wires[which].write(input.take_bytes(bytes));
    if (connections[which]->fd_.valid()) connections[which]->ready(EPOLLIN);
  }
  peers.leave();
}
