// Collectives of the backend that reduce.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <numeric>

#include "backend.h"
#include "buffers.h"
#include "call_group.h"

namespace weft_torch {

namespace {

void hold(Operation& operation, const Reduction& reduction) {
  if (reduction.scaled) operation.scaled.push_back(reduction.scaled);
}

// A copy of the tensor to reduce in place, or itself.
Landing in_place(const at::Tensor& tensor, std::optional<at::ScalarType> type) {
  Landing made = landing(tensor, type);
  if (made.target.defined()) made.memory.copy_(tensor);
  return made;
}

}  // namespace

Operation WeftBackend::prepare_allreduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  check_output(tensor, "The tensor of all_reduce");
  Operation made;
  locate(made, tensor, "The tensor of all_reduce");
  Reduction reduction = reduction_for(op, tensor.scalar_type(), made.comm);
  Landing place = in_place(tensor, reduction.wide);
  made.start = [=, this, op_ = reduction.op, wire = reduction.wire](weftComm_t comm, weftStream_t stream) {
    void* memory = place.memory.data_ptr();
    return weftAllReduce(memory, memory, place.memory.numel() * wire.per_element, wire.type, op_, comm,
                         stream);
  };
  if (place.target.defined()) made.finish = [place] { place.give_back(); };
  hold(made, reduction);
  made.type = c10d::OpType::ALLREDUCE;
  made.title = "weft:all_reduce";
  made.inputs = {tensor};
  made.outputs = {tensor};
  return made;
}

WorkPtr WeftBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  return run(prepare_allreduce(only(tensors, "all_reduce"), options.reduceOp), options.asyncOp,
             options.timeout);
}

WorkPtr WeftBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  std::vector<Operation> operations;
  for (const at::Tensor& tensor : tensors) operations.push_back(prepare_allreduce(tensor, options.reduceOp));
  return run_all(std::move(operations), c10d::OpType::ALLREDUCE_COALESCED, "weft:all_reduce", options.asyncOp,
                 options.timeout);
}

WorkPtr WeftBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  const at::Tensor& tensor = only(tensors, "reduce");
  const int root = static_cast<int>(options.rootRank);
  check_output(tensor, "The tensor of reduce");
  check_root(options.rootRank, "The destination of reduce");
  Operation made;
  locate(made, tensor, "The tensor of reduce");
  Reduction reduction = reduction_for(options.reduceOp, tensor.scalar_type(), made.comm);
  Landing place = in_place(tensor, reduction.wide);
  made.start = [=, this, op = reduction.op, wire = reduction.wire](weftComm_t comm, weftStream_t stream) {
    void* memory = place.memory.data_ptr();
    return weftReduce(memory, root == rank_ ? memory : nullptr, place.memory.numel() * wire.per_element,
                      wire.type, op, root, comm, stream);
  };
  // Elsewhere the tensor keeps its values.
  if (root == rank_ && place.target.defined()) made.finish = [place] { place.give_back(); };
  hold(made, reduction);
  made.type = c10d::OpType::REDUCE;
  made.title = "weft:reduce";
  made.inputs = {tensor};
  made.outputs = {tensor};
  return run(std::move(made), options.asyncOp, options.timeout);
}

// flat_input: all ranks' shares, one behind the other: numel elements each, or `counts`.
Operation WeftBackend::prepare_reduce_scatter(const at::Tensor& output, const at::Tensor& flat_input,
                                              const c10d::ReduceOp& op, const Counts& counts) {
  Operation made;
  locate(made, output, "The output of reduce_scatter");
  Reduction reduction = reduction_for(op, output.scalar_type(), made.comm);
  at::Tensor input = plain(flat_input, reduction.wide);
  Landing place = landing(output, reduction.wide);
  const WireType wire = reduction.wire;
  const size_t count = output.numel() * wire.per_element;
  Counts shares;
  for (size_t each : counts) shares.push_back(each * wire.per_element);
  const size_t before =
      std::accumulate(counts.begin(), counts.empty() ? counts.end() : counts.begin() + rank_, size_t{0});
  const size_t begin = counts.empty() ? rank_ * place.memory.nbytes() : before * place.memory.element_size();
  const char* own = static_cast<const char*>(input.data_ptr()) + begin;
  if (overlap(input, place.memory) && place.memory.data_ptr() != own) input = input.clone();
  made.start = [=, this, op_ = reduction.op](weftComm_t comm, weftStream_t stream) {
    if (!shares.empty())
      return weftReduceScatterV(input.data_ptr(), place.memory.data_ptr(), shares.data(), nullptr, wire.type,
                                op_, comm, stream);
    return weftReduceScatter(input.data_ptr(), place.memory.data_ptr(), count, wire.type, op_, comm, stream);
  };
  if (place.target.defined()) made.finish = [place] { place.give_back(); };
  hold(made, reduction);
  made.type = c10d::OpType::_REDUCE_SCATTER_BASE;
  made.title = "weft:_reduce_scatter_base";
  made.inputs = {flat_input};
  made.outputs = {output};
  return made;
}

WorkPtr WeftBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                    const c10d::ReduceScatterOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  const at::Tensor& output = only(outputs, "reduce_scatter");
  check_output(output, "The output of reduce_scatter");
  check_list(only_list(inputs, "reduce_scatter"), size_, "The input list of reduce_scatter", false);
  if (inputs[0][0].scalar_type() != output.scalar_type() || inputs[0][rank_].numel() != output.numel()) {
    C10_THROW_ERROR(ValueError,
                    c10::str("The output of reduce_scatter has ", output.numel(), " elements of ",
                             output.scalar_type(), ", but this rank's input has ", inputs[0][rank_].numel(),
                             " of ", inputs[0][0].scalar_type(), "; they must be equal."));
  }
  Operation made = prepare_reduce_scatter(output, flatten(inputs[0]), options.reduceOp,
                                          same_sizes(inputs[0]) ? Counts() : counts_of(inputs[0], 1));
  made.type = c10d::OpType::REDUCE_SCATTER;
  made.title = "weft:reduce_scatter";
  return run(std::move(made), options.asyncOp, options.timeout);
}

namespace {

void check_shares(const at::Tensor& output, const at::Tensor& input, int ranks) {
  check_output(output, "The output of reduce_scatter_tensor");
  check_input(input, "The input of reduce_scatter_tensor");
  if (input.scalar_type() != output.scalar_type() || input.numel() != output.numel() * ranks) {
    C10_THROW_ERROR(
        ValueError,
        c10::str("The input of reduce_scatter_tensor has ", input.numel(), " elements of ",
                 input.scalar_type(), ", the output ", output.numel(), " of ", output.scalar_type(),
                 "; the input must have the output's type and ", ranks, " times its elements."));
  }
}

}  // namespace

WorkPtr WeftBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::ReduceScatterOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  check_shares(output, input, size_);
  return run(prepare_reduce_scatter(output, plain(input), options.reduceOp), options.asyncOp,
             options.timeout);
}

WorkPtr WeftBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  check_pairs(inputs.size(), outputs.size(), "reduce_scatter_tensor_coalesced");
  std::vector<Operation> operations;
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_shares(outputs[i], inputs[i], size_);
    operations.push_back(prepare_reduce_scatter(outputs[i], plain(inputs[i]), options.reduceOp));
  }
  return run_all(std::move(operations), c10d::OpType::COALESCED, "weft:_reduce_scatter_base", options.asyncOp,
                 options.timeout);
}

}  // namespace weft_torch
