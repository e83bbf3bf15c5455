// Frames of the TCP transport, of two peers and on two channels each. The first byte says how the receiver is
// set. Each piece names a connection, its length and its bytes.
#include "bounded_sink.h"
#include "fuzz.h"
#include "known_job.h"
#include "transport/tcp_transport.h"

using namespace weft;
using namespace weft::transport;

FUZZ_TARGET(tcp_frames) {
  const auto flags = input.take<uint8_t>();
  TcpTransport::Options options;
  options.patient = (flags & 1) != 0;
  options.puts_apart = (flags & 2) != 0;
  options.crowded = (flags & 4) != 0;
  const auto refuse = [](int, int, uint32_t, Deadline) {
    return Result<UniqueFd>(fail(Code::system_error, "nothing to connect"));
  };
  auto made = TcpTransport::create(0, 3, refuse, options);
  if (!made.ok()) return;
  TcpTransport& transport = **made;
  fuzz::BoundedSink sink(3);
  std::vector<fuzz::Wire> wires(4);
  for (size_t i = 0; i < wires.size(); ++i)
    (void)transport.accept(1 + static_cast<int>(i) % 2, static_cast<uint32_t>(i / 2), wires[i].take_other());
  (void)transport.poll(sink);
  while (!input.empty()) {
    fuzz::Wire& wire = wires[input.take<uint8_t>() % wires.size()];
    const size_t bytes = input.take<uint8_t>();
    if (bytes == 255) wire.end();
    else wire.write(input.take_bytes(bytes));
    (void)transport.poll(sink);
  }
  for (int polls = 0; polls < 8; ++polls) (void)transport.poll(sink);
}
