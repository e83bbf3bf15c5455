// Exchanges of the backend between pairs of ranks: send, receive, all-to-all; and the barrier.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <numeric>

#include "backend.h"
#include "buffers.h"
#include "call_group.h"

namespace weft_torch {

namespace {

// A message to the own rank is a copy from its send to its receive, which both have to be there.
void check_to_self(bool in_batch, const char* call, const char* other) {
  if (in_batch) return;
  C10_THROW_ERROR(ValueError, c10::str("A ", call, " with this rank itself waits for its ", other,
                                       ": give both to one batch_isend_irecv()."));
}

void warn_of_tag(int tag) {
  if (tag == 0) return;
  TORCH_WARN_ONCE("Backend weft ignores the tag of a message (here ", tag,
                  "): sends from one rank to another match receives in the order of the calls.");
}

// Elements of the tensor's rows that belong to each rank: splits[r] rows.
Counts rows(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks, size_t per_element,
            const char* what) {
  const int64_t length = tensor.dim() > 0 ? tensor.size(0) : 1;
  std::vector<int64_t> sizes = splits;
  if (sizes.empty()) {
    if (tensor.dim() == 0 || length % ranks != 0) {
      C10_THROW_ERROR(ValueError,
                      c10::str("The ", what, " of all_to_all_single has ", length, " rows, which ", ranks,
                               " ranks cannot share evenly; give split sizes."));
    }
    sizes.assign(ranks, length / ranks);
  }
  if (static_cast<int>(sizes.size()) != ranks || tensor.dim() == 0 ||
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != length ||
      *std::min_element(sizes.begin(), sizes.end()) < 0) {
    C10_THROW_ERROR(ValueError, c10::str("The split sizes of the ", what, " of all_to_all_single are [",
                                         c10::Join(", ", sizes), "]; they must be ", ranks,
                                         " numbers, one a rank, that add up to its ", length, " rows."));
  }
  const int64_t of_row = length > 0 ? tensor.numel() / length : 0;
  Counts counts;
  for (int64_t size : sizes) counts.push_back(size * of_row * per_element);
  return counts;
}

}  // namespace

WorkPtr WeftBackend::send(Tensors& tensors, int peer, int tag) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  const at::Tensor& tensor = only(tensors, "send");
  check_input(tensor, "The tensor of send");
  check_root(peer, "The destination of send");
  if (peer == rank_) check_to_self(coalescing_.is_on(), "send", "receive");
  warn_of_tag(tag);
  Operation made;
  const int to = locate_message(made, tensor, peer, "The tensor of send");
  WireType wire = wire_type(tensor.scalar_type());
  at::Tensor source = plain(tensor);
  made.start = [=](weftComm_t comm, weftStream_t stream) {
    return weftSend(source.data_ptr(), source.numel() * wire.per_element, wire.type, to, comm, stream);
  };
  made.type = c10d::OpType::SEND;
  made.title = "weft:send";
  made.queue = {QueueKey::kSend, peer};
  made.inputs = {tensor};
  made.outputs = {tensor};
  return run(std::move(made), true, c10d::kUnsetTimeout);
}

WorkPtr WeftBackend::recv(Tensors& tensors, int peer, int tag) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  const at::Tensor& tensor = only(tensors, "recv");
  check_output(tensor, "The tensor of recv");
  check_root(peer, "The source of recv");
  if (peer == rank_) check_to_self(coalescing_.is_on(), "receive", "send");
  warn_of_tag(tag);
  Operation made;
  const int from = locate_message(made, tensor, peer, "The tensor of recv");
  WireType wire = wire_type(tensor.scalar_type());
  Landing place = landing(tensor);
  made.start = [=](weftComm_t comm, weftStream_t stream) {
    return weftRecv(place.memory.data_ptr(), place.memory.numel() * wire.per_element, wire.type, from, comm,
                    stream);
  };
  if (place.target.defined()) made.finish = [place] { place.give_back(); };
  made.type = c10d::OpType::RECV;
  made.title = "weft:recv";
  made.queue = {peer == rank_ ? QueueKey::kSend : QueueKey::kReceive, peer};  // a copy is on one stream
  made.inputs = {tensor};                                                     // the profiler shows its shape
  made.outputs = {tensor};
  return run(std::move(made), true, c10d::kUnsetTimeout);
}

// A message belongs to the pair of ranks and to its number among their messages: that is how mismatches, late
// and dead ranks are told by name. A receive that takes what comes first would have neither.
WorkPtr WeftBackend::recvAnysource(Tensors&, int) {
  C10_THROW_ERROR(
      NotImplementedError,
      "Backend weft receives from a rank that is named, since messages match by the pair of ranks and "
      "the order of the calls; give src to recv().");
}

// `source` and the landing's memory hold one block for each rank, one behind the other.
Operation WeftBackend::prepare_alltoall(Landing place, at::Tensor source, const Counts& taken,
                                        const Counts& given) {
  if (overlap(source, place.memory)) source = source.clone();
  WireType wire = wire_type(source.scalar_type());
  if (given[rank_] != taken[rank_]) {
    C10_THROW_ERROR(ValueError,
                    c10::str("all_to_all gives this rank, ", rank_, ", ", given[rank_] / wire.per_element,
                             " elements of its input and has ", taken[rank_] / wire.per_element,
                             " elements for them in its output; they must be equal."));
  }
  Operation made;
  locate(made, source, "The input of all_to_all");
  made.start = [=](weftComm_t comm, weftStream_t stream) {
    return weftAlltoAllV(source.data_ptr(), given.data(), nullptr, place.memory.data_ptr(), taken.data(),
                         nullptr, wire.type, comm, stream);
  };
  if (place.target.defined()) made.finish = [place] { place.give_back(); };
  made.title = "weft:all_to_all";
  made.queue = {QueueKey::kMove};
  return made;
}

WorkPtr WeftBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  check_list(outputs, size_, "The output list of all_to_all", true);
  check_list(inputs, size_, "The input list of all_to_all", false);
  if (outputs[0].scalar_type() != inputs[0].scalar_type()) {
    C10_THROW_ERROR(ValueError,
                    c10::str("all_to_all has inputs of ", inputs[0].scalar_type(), " and outputs of ",
                             outputs[0].scalar_type(), "; they must be of one type."));
  }
  const size_t per_element = wire_type(inputs[0].scalar_type()).per_element;
  ListLanding places = list_landing(outputs);
  Operation made = prepare_alltoall({{}, places.memory}, flatten(inputs), counts_of(outputs, per_element),
                                    counts_of(inputs, per_element));
  if (!places.targets.empty()) made.finish = [places] { places.give_back(); };
  made.type = c10d::OpType::ALLTOALL;
  made.inputs = inputs;
  made.outputs = outputs;
  return run(std::move(made), options.asyncOp, options.timeout);
}

WorkPtr WeftBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                   std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  check_input(input, "The input of all_to_all_single");
  check_output(output, "The output of all_to_all_single");
  // Split sizes count rows in memory, so all backends of torch refuse other layouts here.
  check_contiguous(input, "the input of all_to_all_single");
  check_contiguous(output, "the output of all_to_all_single");
  if (output.scalar_type() != input.scalar_type()) {
    C10_THROW_ERROR(ValueError,
                    c10::str("all_to_all_single has an input of ", input.scalar_type(), " and an output of ",
                             output.scalar_type(), "; they must be of one type."));
  }
  WireType wire = wire_type(input.scalar_type());
  const Counts given = rows(input, input_splits, size_, wire.per_element, "input");
  const Counts taken = rows(output, output_splits, size_, wire.per_element, "output");
  Operation made;
  if (input_splits.empty() && output_splits.empty() && input.numel() == output.numel()) {
    at::Tensor source = plain(input);
    Landing place = landing(output);
    if (overlap(source, place.memory)) source = source.clone();
    locate(made, input, "The input of all_to_all_single");
    made.start = [=, this](weftComm_t comm, weftStream_t stream) {
      return weftAlltoAll(source.data_ptr(), place.memory.data_ptr(),
                          source.numel() / size_ * wire.per_element, wire.type, comm, stream);
    };
    if (place.target.defined()) made.finish = [place] { place.give_back(); };
    made.title = "weft:all_to_all";
    made.queue = {QueueKey::kMove};
  } else {
    made = prepare_alltoall(landing(output), plain(input), taken, given);
  }
  made.type = c10d::OpType::ALLTOALL_BASE;
  made.inputs = {input};
  made.outputs = {output};
  return run(std::move(made), options.asyncOp, options.timeout);
}

// The barrier is passed when all ranks have come to it and this rank's earlier collectives are complete.
// Ranks meet on host memory also if the group has used a device.
WorkPtr WeftBackend::barrier(const c10d::BarrierOptions& options) {
  check_open();
  if (device_ && !coalescing_.is_on()) device_->synchronize();
  at::Tensor token = at::zeros({1}, at::kInt);
  Operation meeting;
  meeting.comm = comm_;
  meeting.type = c10d::OpType::BARRIER;
  meeting.title = "weft:barrier";
  meeting.start = [token](weftComm_t comm, weftStream_t stream) {
    return weftAllReduce(token.data_ptr(), token.data_ptr(), 1, weftInt32, weftSum, comm, stream);
  };
  if (collectives_in_flight_ == 0 || coalescing_.is_on()) {
    return run(std::move(meeting), options.asyncOp, options.timeout);
  }
  meeting.timeout = options.timeout;
  auto whole = new_work(meeting);
  Operation moves;  // nothing but a place behind the other stream's operations
  moves.type = c10d::OpType::BARRIER;
  moves.queue = {QueueKey::kMove};
  moves.start = [](weftComm_t, weftStream_t) { return weftSuccess; };
  std::vector<Started> parts;
  for (Operation* part : {&meeting, &moves}) {
    part->title = nullptr;  // the profiler shows the whole
    auto work = c10::make_intrusive<WeftWork>(rank_, *part, 0);
    parts.push_back({std::move(*part), work});
  }
  whole->expect_parts(static_cast<int>(parts.size()));
  issue(std::move(parts), whole);
  if (!options.asyncOp) whole->wait(std::chrono::milliseconds(0));
  return whole;
}

}  // namespace weft_torch
