// Collectives of the backend that reduce.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "backend.h"
#include "buffers.h"
#include "call_group.h"

namespace weft_torch {

namespace {

const at::Tensor& only(const Tensors& tensors, const char* what) {
  if (tensors.size() != 1) {
    C10_THROW_ERROR(ValueError, c10::str(what, " needs one tensor, but was given ", tensors.size(), "."));
  }
  return tensors[0];
}

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

// Every rank gathers all inputs and combines them.
Operation WeftBackend::prepare_bitwise_allreduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  Operation made;
  at::Tensor input = plain(tensor);
  at::Tensor all = at::empty({size_, tensor.numel()}, tensor.options());
  WireType wire = wire_type(tensor.scalar_type());
  made.start = [=, this](weftStream_t stream) {
    return weftAllGather(input.data_ptr(), all.data_ptr(), input.numel() * wire.per_element, wire.type, comm_,
                         stream);
  };
  made.finish = [tensor, all, op] { tensor.copy_(combine(op, all).view(tensor.sizes())); };
  return made;
}

Operation WeftBackend::prepare_allreduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  check_output(tensor, "The tensor of all_reduce");
  Reduction reduction = reduction_for(op, tensor.scalar_type(), comm_);
  Operation made;
  if (reduction.bitwise) {
    made = prepare_bitwise_allreduce(tensor, op);
  } else {
    Landing place = in_place(tensor, reduction.wide);
    made.start = [=, this, op_ = reduction.op, wire = reduction.wire](weftStream_t stream) {
      void* memory = place.memory.data_ptr();
      return weftAllReduce(memory, memory, place.memory.numel() * wire.per_element, wire.type, op_, comm_,
                           stream);
    };
    if (place.target.defined()) made.finish = [place] { place.give_back(); };
  }
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
  Reduction reduction = reduction_for(options.reduceOp, tensor.scalar_type(), comm_);
  Operation made;
  if (reduction.bitwise) {
    WireType wire = wire_type(tensor.scalar_type());
    at::Tensor input = plain(tensor);
    at::Tensor all = root == rank_ ? at::empty({size_, tensor.numel()}, tensor.options()) : at::Tensor();
    made.start = [=, this](weftStream_t stream) {
      return weftGather(input.data_ptr(), all.defined() ? all.data_ptr() : nullptr,
                        input.numel() * wire.per_element, wire.type, root, comm_, stream);
    };
    if (root == rank_) {
      made.finish = [tensor, all, op = options.reduceOp] {
        tensor.copy_(combine(op, all).view(tensor.sizes()));
      };
    }
  } else {
    Landing place = in_place(tensor, reduction.wide);
    made.start = [=, this, op = reduction.op, wire = reduction.wire](weftStream_t stream) {
      void* memory = place.memory.data_ptr();
      return weftReduce(memory, root == rank_ ? memory : nullptr, place.memory.numel() * wire.per_element,
                        wire.type, op, root, comm_, stream);
    };
    // Elsewhere the tensor keeps its values.
    if (root == rank_ && place.target.defined()) made.finish = [place] { place.give_back(); };
  }
  hold(made, reduction);
  made.type = c10d::OpType::REDUCE;
  made.title = "weft:reduce";
  made.inputs = {tensor};
  made.outputs = {tensor};
  return run(std::move(made), options.asyncOp, options.timeout);
}

// flat_input: [n × numel of output], rank r's share at r × numel.
Operation WeftBackend::prepare_reduce_scatter(const at::Tensor& output, const at::Tensor& flat_input,
                                              const c10d::ReduceOp& op) {
  Reduction reduction = reduction_for(op, output.scalar_type(), comm_);
  Operation made;
  if (reduction.bitwise) {
    WireType wire = wire_type(output.scalar_type());
    at::Tensor all = at::empty({size_, output.numel()}, output.options());
    made.start = [=, this](weftStream_t stream) {
      return weftAlltoAll(flat_input.data_ptr(), all.data_ptr(), output.numel() * wire.per_element, wire.type,
                          comm_, stream);
    };
    made.finish = [output, all, op] { output.copy_(combine(op, all).view(output.sizes())); };
  } else {
    at::Tensor input = plain(flat_input, reduction.wide);
    Landing place = landing(output, reduction.wide);
    const size_t count = output.numel() * reduction.wire.per_element;
    const char* own = static_cast<const char*>(input.data_ptr()) + rank_ * place.memory.nbytes();
    if (overlap(input, place.memory) && place.memory.data_ptr() != own) input = input.clone();
    made.start = [=, this, op_ = reduction.op, wire = reduction.wire](weftStream_t stream) {
      return weftReduceScatter(input.data_ptr(), place.memory.data_ptr(), count, wire.type, op_, comm_,
                               stream);
    };
    if (place.target.defined()) made.finish = [place] { place.give_back(); };
  }
  hold(made, reduction);
  made.type = c10d::OpType::_REDUCE_SCATTER_BASE;
  made.title = "weft:_reduce_scatter_base";
  made.inputs = {flat_input};
  made.outputs = {output};
  return made;
}

// Each rank's share has a size of its own: a reduction to each rank, together.
Operation WeftBackend::prepare_uneven_reduce_scatter(const at::Tensor& output, const Tensors& inputs,
                                                     const c10d::ReduceOp& op) {
  Reduction reduction = reduction_for(op, output.scalar_type(), comm_);
  if (reduction.bitwise) {
    C10_THROW_ERROR(ValueError, c10::str("reduce_scatter with ReduceOp.", op_name(op.op_),
                                         " needs inputs of equal sizes; pad them."));
  }
  Tensors memory;
  for (const at::Tensor& input : inputs) memory.push_back(plain(input, reduction.wide));
  Landing place = landing(output, reduction.wide);
  Operation made;
  made.start = [=, this, op_ = reduction.op, wire = reduction.wire](weftStream_t stream) {
    CallGroup group;
    for (int root = 0; root < size_; ++root) {
      void* target = root == rank_ ? place.memory.data_ptr() : nullptr;
      weftResult_t result =
          weftReduce(memory[root].data_ptr(), target, memory[root].numel() * wire.per_element, wire.type, op_,
                     root, comm_, stream);
      if (result != weftSuccess) return result;
    }
    return group.end();
  };
  if (place.target.defined()) made.finish = [place] { place.give_back(); };
  hold(made, reduction);
  made.inputs = inputs;
  made.outputs = {output};
  return made;
}

WorkPtr WeftBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                    const c10d::ReduceScatterOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  const at::Tensor& output = only(outputs, "reduce_scatter");
  check_output(output, "The output of reduce_scatter");
  if (inputs.size() != 1) C10_THROW_ERROR(ValueError, "reduce_scatter needs one list of inputs.");
  check_list(inputs[0], size_, "The input list of reduce_scatter", false);
  if (inputs[0][0].scalar_type() != output.scalar_type() || inputs[0][rank_].numel() != output.numel()) {
    C10_THROW_ERROR(ValueError,
                    c10::str("The output of reduce_scatter has ", output.numel(), " elements of ",
                             output.scalar_type(), ", but this rank's input has ", inputs[0][rank_].numel(),
                             " of ", inputs[0][0].scalar_type(), "; they must be equal."));
  }
  Operation made = same_sizes(inputs[0])
                       ? prepare_reduce_scatter(output, flatten(inputs[0]), options.reduceOp)
                       : prepare_uneven_reduce_scatter(output, inputs[0], options.reduceOp);
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
  if (outputs.size() != inputs.size()) {
    C10_THROW_ERROR(ValueError, c10::str("reduce_scatter_tensor_coalesced has ", inputs.size(),
                                         " inputs and ", outputs.size(), " outputs; give as many of each."));
  }
  std::vector<Operation> operations;
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_shares(outputs[i], inputs[i], size_);
    operations.push_back(prepare_reduce_scatter(outputs[i], plain(inputs[i]), options.reduceOp));
  }
  return run_all(std::move(operations), c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                 "weft:_reduce_scatter_base", options.asyncOp, options.timeout);
}

}  // namespace weft_torch
