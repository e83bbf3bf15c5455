// The root of a job: hellos of those who know the secret. Each is a kind, a length and a body.
#include "bootstrap/root.h"

#include "bootstrap/agent.h"
#include "fuzz.h"
#include "known_job.h"

using namespace weft;
using namespace weft::bootstrap;

FUZZ_TARGET(root) {
  static const AgentUse agent = AgentUse::begin().take();
  agent.loop().run([&] {
    const std::shared_ptr<Root> root(new Root(AgentUse::begin().take(), 0));
    root->begin(fuzz::idle_descriptor(), fuzz::known_job(), Deadline::in_seconds(60));
    std::vector<fuzz::Wire> wires;
    while (!input.empty() && wires.size() < 64) {
      AuthenticatedPeer peer;
      peer.purpose = static_cast<FrameKind>(input.take<uint8_t>());
      const auto hello = input.take_bytes(input.take<uint8_t>());
      peer.hello.assign(hello.begin(), hello.end());
      peer.connection = wires.emplace_back().take_other();
      root->welcome(std::move(peer));
    }
    (void)root->missing();
    for (auto& [rank, registration] : root->registered_) root->agent_.loop().unwatch(registration.watch);
    root->registered_.clear();
    root->acceptor_.reset();
    root->agent_.loop().cancel(root->timer_);
  });
}
