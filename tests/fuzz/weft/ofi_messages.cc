// Messages of the libfabric transport, as a completion queue hands them over, and immediates of writes. Each
// piece is an immediate, or the length and the bytes of a message.
#include "bounded_sink.h"
#include "fuzz.h"
#include "opened_ofi.h"

using namespace weft::transport;

FUZZ_TARGET(ofi_messages) {
  OfiTransport* const transport = fuzz::opened_ofi();
  if (transport == nullptr) return;
  fuzz::BoundedSink sink(fuzz::kOfiRanks);
  while (!input.empty()) {
    const auto bytes = input.take<uint8_t>();
    if (bytes == 0) {
      transport->incoming_.deliver_stripe(sink, input.take<uint32_t>());
      continue;
    }
    const auto taken = input.take_bytes(bytes);
    std::vector<std::byte> message(taken.begin(), taken.end());
    if (message.size() >= sizeof(ofi::Header)) {
      ofi::Header header;
      std::memcpy(&header, message.data(), sizeof header);
      header.token = transport->token_;  // a rank's peers know it
      std::memcpy(message.data(), &header, sizeof header);
    }
    transport->incoming_.deliver_message(sink, message.data(), message.size());
  }
}
