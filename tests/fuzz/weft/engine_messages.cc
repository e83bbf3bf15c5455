// Messages that reach the engine of rank 0 while it has operations under way: a sum, a broadcast, a receive.
// Each piece is a sender, an envelope and a payload. Communicator, operation and signature are mostly right,
// since whoever knows the protocol knows them.
#include "engine/scripted_job.h"
#include "fuzz.h"

using namespace weft;
using namespace weft::engine;

namespace {

Call call_of(plan::Collective kind, std::vector<int32_t>& data, int root) {
  Call call;
  call.collective = kind;
  call.send = call.recv = data.data();
  call.count = data.size();
  call.type = device::DataType::int32;
  call.root = root;
  return call;
}

}  // namespace

FUZZ_TARGET(engine_messages) {
  static const char* const kAlgorithms[] = {"", "*=one_hop", "*=ring", "*=direct", "*=recursive_doubling"};
  ScriptedJob job({.nodes = {0, 1, 2}, .algorithm = kAlgorithms[input.take_below(std::size(kAlgorithms))]});
  std::vector<std::vector<int32_t>> data(3, std::vector<int32_t>(600, 1));
  std::vector<Operation*> begun;
  begun.push_back(job.begin(0, call_of(plan::Collective::all_reduce, data[0], 0)));
  begun.push_back(job.begin(0, call_of(plan::Collective::broadcast, data[1], 1)));
  begun.push_back(job.begin(0, call_of(plan::Collective::recv, data[2], 2)));
  (void)job.turn(0);
  job.network.flight().clear();
  while (!input.empty()) {
    const auto kind = input.take<uint8_t>();
    transport::ScriptedNetwork::InFlight what{1 + kind % 2, 0, input.take<transport::Envelope>(), {}};
    if (const Operation* const op = begun[kind / 2 % begun.size()]; (kind & 0x80) == 0) {
      what.envelope.comm = op->comm->id();
      what.envelope.op = op->number;
      what.envelope.signature = op->signature_with(what.from);
    }
    const auto payload = input.take_bytes(input.take<uint8_t>());
    what.payload.assign(payload.begin(), payload.end());
    what.payload.resize(std::min<size_t>(what.envelope.bytes, 4096));
    what.envelope.bytes = static_cast<uint32_t>(what.payload.size());
    job.network.forge(std::move(what));
    job.network.deliver_all();
    (void)job.turn(0);
  }
}
