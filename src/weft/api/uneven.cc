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
Result<plan::Request> read_request(Collective collective, const Layout& given_layout,
                                   const Layout& taken_layout, const Communicator& comm, size_t element) {
  const auto element_bytes = static_cast<uint32_t>(element);
  Result<Blocks> given = Blocks(), taken = Blocks();
  if (collective != Collective::all_gather) given = read_blocks(given_layout, comm.size(), element);
  if (!given) return given.status();
  if (collective != Collective::reduce_scatter) taken = read_blocks(taken_layout, comm.size(), element);
  if (!taken) return taken.status();
  WEFT_TRY(check_apart(taken_layout, *taken));
  if (collective == Collective::all_gather)
    return plan::uneven_gather(taken.take(), element_bytes, comm.rank());
  if (collective == Collective::reduce_scatter)
    return plan::uneven_reduce_scatter(given.take(), element_bytes, comm.rank());
  const int self = comm.rank();
  if ((*given)[self].count != (*taken)[self].count)
    return fail(Code::invalid_argument,
                "sendcounts[{}] is {}, recvcounts[{}] is {}: rank {} itself, they must be equal", self,
                (*given)[self].count, self, (*taken)[self].count, self);
  return plan::uneven_all_to_all(given.take(), taken.take(), element_bytes);
}

/// The same by calls that NCCL has: a transfer for each block, or a reduction to each rank.
Status run_as_group(const Call& call, int op, weftComm_t handle, weftStream_t stream,
                    const Communicator& comm, const plan::Request& request) {
  const plan::Uneven& uneven = *request.uneven;
  const auto type = static_cast<weftDataType_t>(call.type);
  const auto* const in = static_cast<const std::byte*>(call.send);
  auto* const out = static_cast<std::byte*>(call.recv);
  const uint64_t element = request.element_bytes;
  (void)weftGroupStart();
  for (int k = 0; k < comm.size(); ++k) {
    const int to = (comm.rank() + k) % comm.size(), from = (comm.rank() + comm.size() - k) % comm.size();
    const plan::Uneven::Block &given = uneven.given[static_cast<size_t>(to)],
                              &taken = uneven.taken[static_cast<size_t>(from)];
    if (call.collective == Collective::reduce_scatter) {
      const plan::Uneven::Block& block = uneven.given[static_cast<size_t>(k)];  // in one order on all ranks
      if (block.count > 0)
        (void)weftReduce(in + block.begin * element, k == comm.rank() ? out : nullptr, block.count, type,
                         static_cast<weftRedOp_t>(op), k, handle, stream);
      continue;
    }
    if (given.count > 0) (void)weftSend(in + given.begin * element, given.count, type, to, handle, stream);
    if (taken.count > 0) (void)weftRecv(out + taken.begin * element, taken.count, type, from, handle, stream);
  }
  // The end tells what was wrong with a call.
  if (const weftResult_t ended = weftGroupEnd(); ended != weftSuccess)
    return fail(static_cast<Code>(ended), "{}", last_error_of_thread());
  return {};
}

Status checked_run(Call& call, const Layout& given, const Layout& taken, int type, int op, weftComm_t handle,
                   weftStream_t stream) {
  const InUse in_use(handle);
  Result<Communicator*> found = usable(handle);
  if (!found) return found.status();
  Communicator& comm = **found;
  WEFT_TRY(check_type(type));
  call.type = static_cast<device::DataType>(type);
  call.timeout_s = t_call_timeout_s;
  const void* late_scalar = nullptr;  // only on a device, where the reductions read it
  if (plan::reduces(call.collective)) WEFT_TRY(resolve_operator(handle, comm, op, call, late_scalar));
  const size_t element = device::size_of(call.type);
  Result<plan::Request> request = read_request(call.collective, given, taken, comm, element);
  if (!request) return request.status();
  const uint64_t in = plan::input_bytes(*request, comm.size(), comm.rank());
  if (!usable_buffer(call.send, in, element)) return refuse_buffer("sendbuff", call.send, in, element);
  const uint64_t out = plan::output_bytes(*request, comm.size(), comm.rank());
  if (!usable_buffer(call.recv, out, element)) return refuse_buffer("recvbuff", call.recv, out, element);
  if (call.collective == Collective::all_to_all && call.send == call.recv && in > 0 && out > 0)
    return fail(Code::invalid_argument,
                "sendbuff and recvbuff are the same: an uneven AlltoAll cannot be in place");
  Result<bool> theirs = false;
  if (handle->fallback)
    theirs = handle->fallback->takes(in > 0 ? call.send : nullptr, out > 0 ? call.recv : nullptr);
  if (!theirs) return theirs.status();
  if (*theirs || comm.options().device >= 0) return run_as_group(call, op, handle, stream, comm, *request);
  WEFT_TRY(use_stream(stream, call));
  call.count = request->count;
  call.uneven = request->uneven;
  return run_or_note(handle->comm, call);
}

weftResult_t run(const char* function, Call call, const Layout& given, const Layout& taken, int type, int op,
                 weftComm_t comm, weftStream_t stream) {
  Status status = checked_run(call, given, taken, type, op, comm, stream);
  if (status.ok()) return weftSuccess;
  status = status.in(function);
  spoil_group(status);
  return report(status, comm);
}

}  // namespace
}  // namespace weft::api

using namespace weft::api;
using weft::plan::Collective;

weftResult_t weftAllGatherV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                            const size_t* displs, weftDataType_t datatype, weftComm_t comm,
                            weftStream_t stream) {
  return run(__func__, {.collective = Collective::all_gather, .send = sendbuff, .recv = recvbuff}, {},
             {"recvcounts", recvcounts, "displs", displs}, datatype, weftSum, comm, stream);
}

weftResult_t weftReduceScatterV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                const size_t* displs, weftDataType_t datatype, weftRedOp_t op,
                                weftComm_t comm, weftStream_t stream) {
  return run(__func__, {.collective = Collective::reduce_scatter, .send = sendbuff, .recv = recvbuff},
             {"recvcounts", recvcounts, "displs", displs}, {}, datatype, op, comm, stream);
}

weftResult_t weftAlltoAllV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                           void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                           weftDataType_t datatype, weftComm_t comm, weftStream_t stream) {
  return run(__func__, {.collective = Collective::all_to_all, .send = sendbuff, .recv = recvbuff},
             {"sendcounts", sendcounts, "sdispls", sdispls}, {"recvcounts", recvcounts, "rdispls", rdispls},
             datatype, weftSum, comm, stream);
}
