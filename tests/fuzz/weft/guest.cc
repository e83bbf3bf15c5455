// A connection to a listening rank: what a guest sends before and with its hello. The first byte says whether
// the guest knows the job's secret.
#include <sys/socket.h>

#include "bootstrap/acceptor.h"
#include "fuzz.h"
#include "known_job.h"

using namespace weft;
using namespace weft::bootstrap;

FUZZ_TARGET(guest) {
  static const std::shared_ptr<EventLoop> loop = *EventLoop::create();
  const Job job = fuzz::known_job();
  const bool knows_secret = input.take<uint8_t>() % 2 == 0;
  bool entered = false;
  Acceptor acceptor(*loop, fuzz::idle_descriptor(), job, [&](AuthenticatedPeer peer) {
    entered = true;
    fuzz::require(peer.hello.size() <= kMaxHelloBytes, "a hello is bounded");
  });
  fuzz::Wire wire;
  if (knows_secret) wire.write(job.secret);
  wire.write(input.rest());
  wire.end();
  acceptor.admit(wire.take_other());
  fuzz::require(
      knows_secret || !entered || std::equal(job.secret.begin(), job.secret.end(), wire.sent().begin()),
      "nobody enters without the secret");
}
