// Uneven collectives: blocks with sizes and places of their own. On host memory they are one operation. On
// GPU memory, and where NCCL does the work, which has none, they are groups of transfers or of reductions.
#include "plan/uneven.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "api/call_checks.h"
#include "api/group.h"
#include "api/timeouts.h"

namespace weft::api {
namespace {

using engine::Call;
using engine::Communicator;
using plan::Collective;
using Blocks = std::vector<plan::Uneven::Block>;

static_assert(sizeof(size_t) == sizeof(uint64_t));

/// Counts and displacements of one buffer.
struct Layout {
  const char* counts_name;
  const size_t* counts;
  const char* begins_name;
  const size_t* begins;  // null: one behind the other
};

struct Arguments {
  const char* function;
  Collective collective;
  const void* send;
  Layout given;  // of reduce_scatter and all_to_all
  void* recv;
  Layout taken;  // of all_gather and all_to_all
  int type, op;
  weftComm_t comm;
  weftStream_t stream;
};

/// The blocks that a layout describes, if their ends can be told in bytes.
Result<Blocks> read_blocks(const Layout& layout, int ranks, size_t element) {
  if (!layout.counts)
    return fail(Code::invalid_pointer, "{} is NULL, must point to {} counts, one for each rank",
                layout.counts_name, ranks);
  const uint64_t most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / element;
  uint64_t total = 0;
  for (int r = 0; r < ranks; ++r) {
    const uint64_t begin = layout.begins ? layout.begins[r] : total;
    if (layout.counts[r] > most || begin > most - layout.counts[r] || total > most - layout.counts[r])
      return fail(Code::invalid_count,
                  "{}[{}] is {}: the block's end overflows, at most {} elements of {} bytes fit",
                  layout.counts_name, r, layout.counts[r], most, element);
    total += layout.counts[r];
  }
  return plan::blocks_of(layout.counts, layout.begins, ranks);
}

/// Two blocks of an output may not share elements.
Status check_apart(const Layout& layout, const Blocks& blocks) {
  if (!layout.begins) return {};
  std::vector<size_t> order;
  for (size_t r = 0; r < blocks.size(); ++r)
    if (blocks[r].count > 0) order.push_back(r);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return blocks[a].begin < blocks[b].begin; });
  for (size_t i = 1; i < order.size(); ++i) {
    const auto &before = blocks[order[i - 1]], &after = blocks[order[i]];
    if (before.begin + before.count > after.begin)
      return fail(
          Code::invalid_argument,
          "{}[{}] is {}, inside of the block of rank {}, [{}, {}): blocks that are written must be apart",
          layout.begins_name, order[i], after.begin, order[i - 1], before.begin, before.begin + before.count);
  }
  return {};
}

/// What this rank is asked for, as a plan has it.
Result<plan::Request> read_request(const Arguments& a, const Communicator& comm, size_t element) {
  const auto element_bytes = static_cast<uint32_t>(element);
  Result<Blocks> given = Blocks(), taken = Blocks();
  if (a.collective != Collective::all_gather) given = read_blocks(a.given, comm.size(), element);
  if (!given) return given.status();
  if (a.collective != Collective::reduce_scatter) taken = read_blocks(a.taken, comm.size(), element);
  if (!taken) return taken.status();
  WEFT_TRY(check_apart(a.taken, *taken));
  if (a.collective == Collective::all_gather)
    return plan::uneven_gather(taken.take(), element_bytes, comm.rank());
  if (a.collective == Collective::reduce_scatter)
    return plan::uneven_reduce_scatter(given.take(), element_bytes, comm.rank());
  const int self = comm.rank();
  if ((*given)[self].count != (*taken)[self].count)
    return fail(Code::invalid_argument,
                "sendcounts[{}] is {}, recvcounts[{}] is {}: rank {} itself, they must be equal", self,
                (*given)[self].count, self, (*taken)[self].count, self);
  return plan::uneven_all_to_all(given.take(), taken.take(), element_bytes);
}

/// The same by calls that NCCL has: a transfer for each block, or a reduction to each rank.
Status run_as_group(const Arguments& a, const Communicator& comm, const plan::Request& request) {
  const plan::Uneven& uneven = *request.uneven;
  const auto type = static_cast<weftDataType_t>(a.type);
  const auto* const in = static_cast<const std::byte*>(a.send);
  auto* const out = static_cast<std::byte*>(a.recv);
  const uint64_t element = request.element_bytes;
  (void)weftGroupStart();
  for (int k = 0; k < comm.size(); ++k) {
    const int to = (comm.rank() + k) % comm.size(), from = (comm.rank() + comm.size() - k) % comm.size();
    const plan::Uneven::Block &given = uneven.given[static_cast<size_t>(to)],
                              &taken = uneven.taken[static_cast<size_t>(from)];
    if (a.collective == Collective::reduce_scatter) {
      const plan::Uneven::Block& block = uneven.given[static_cast<size_t>(k)];  // in one order on all ranks
      if (block.count > 0)
        (void)weftReduce(in + block.begin * element, k == comm.rank() ? out : nullptr, block.count, type,
                         static_cast<weftRedOp_t>(a.op), k, a.comm, a.stream);
      continue;
    }
    if (given.count > 0) (void)weftSend(in + given.begin * element, given.count, type, to, a.comm, a.stream);
    if (taken.count > 0)
      (void)weftRecv(out + taken.begin * element, taken.count, type, from, a.comm, a.stream);
  }
  // The end tells what was wrong with a call.
  if (const weftResult_t ended = weftGroupEnd(); ended != weftSuccess)
    return fail(static_cast<Code>(ended), "{}", last_error_of_thread());
  return {};
}

Result<bool> is_for_nccl(const Arguments& a, uint64_t in, uint64_t out) {
  if (!a.comm->fallback) return false;
  return a.comm->fallback->takes(in > 0 ? a.send : nullptr, out > 0 ? a.recv : nullptr);
}

Status checked_run(const Arguments& a) {
  const InUse in_use(a.comm);
  Result<Communicator*> found = usable(a.comm);
  if (!found) return found.status();
  Communicator& comm = **found;
  WEFT_TRY(check_type(a.type));
  Call call;
  call.collective = a.collective;
  call.send = a.send;
  call.recv = a.recv;
  call.type = static_cast<device::DataType>(a.type);
  call.timeout_s = t_call_timeout_s;
  const void* late_scalar = nullptr;  // only on a device, where the reductions read it
  if (plan::reduces(a.collective)) WEFT_TRY(resolve_operator(a.comm, comm, a.op, call, late_scalar));
  const size_t element = device::size_of(call.type);
  Result<plan::Request> request = read_request(a, comm, element);
  if (!request) return request.status();
  const uint64_t in = plan::input_bytes(*request, comm.size(), comm.rank());
  if (!usable_buffer(a.send, in, element)) return refuse_buffer("sendbuff", a.send, in, element);
  const uint64_t out = plan::output_bytes(*request, comm.size(), comm.rank());
  if (!usable_buffer(a.recv, out, element)) return refuse_buffer("recvbuff", a.recv, out, element);
  if (a.collective == Collective::all_to_all && a.send == a.recv && in > 0 && out > 0)
    return fail(Code::invalid_argument,
                "sendbuff and recvbuff are the same: an uneven AlltoAll cannot be in place");
  const Result<bool> theirs = is_for_nccl(a, in, out);
  if (!theirs) return theirs.status();
  if (*theirs || comm.options().device >= 0) return run_as_group(a, comm, *request);
  WEFT_TRY(use_stream(a.stream, call));
  call.count = request->count;
  call.uneven = request->uneven;
  return run_or_note(a.comm->comm, call);
}

weftResult_t run(const Arguments& a) {
  Status status = checked_run(a);
  if (status.ok()) return weftSuccess;
  status = status.in(a.function);
  spoil_group(status);
  return report(status, a.comm);
}

}  // namespace
}  // namespace weft::api

using namespace weft::api;
using weft::plan::Collective;

weftResult_t weftAllGatherV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                            const size_t* displs, weftDataType_t datatype, weftComm_t comm,
                            weftStream_t stream) {
  return run({__func__,
              Collective::all_gather,
              sendbuff,
              {},
              recvbuff,
              {"recvcounts", recvcounts, "displs", displs},
              datatype,
              weftSum,
              comm,
              stream});
}

weftResult_t weftReduceScatterV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                const size_t* displs, weftDataType_t datatype, weftRedOp_t op,
                                weftComm_t comm, weftStream_t stream) {
  return run({__func__,
              Collective::reduce_scatter,
              sendbuff,
              {"recvcounts", recvcounts, "displs", displs},
              recvbuff,
              {},
              datatype,
              op,
              comm,
              stream});
}

weftResult_t weftAlltoAllV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                           void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                           weftDataType_t datatype, weftComm_t comm, weftStream_t stream) {
  return run({__func__,
              Collective::all_to_all,
              sendbuff,
              {"sendcounts", sendcounts, "sdispls", sdispls},
              recvbuff,
              {"recvcounts", recvcounts, "rdispls", rdispls},
              datatype,
              weftSum,
              comm,
              stream});
}
