// Collectives of the backend that move tensors without arithmetic.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "backend.h"
#include "buffers.h"
#include "call_group.h"

namespace weft_torch {

namespace {

void no_list(const std::vector<Tensors>& lists, const char* what) {
  if (!lists.empty() && !lists[0].empty()) {
    C10_THROW_ERROR(ValueError, c10::str(what, " belongs to the root alone; give None on other ranks."));
  }
}

void check_same(const at::Tensor& one, const at::Tensor& other, const char* what) {
  if (one.scalar_type() != other.scalar_type() || one.numel() != other.numel()) {
    C10_THROW_ERROR(ValueError,
                    c10::str(what, " have ", one.numel(), " elements of ", one.scalar_type(), " and ",
                             other.numel(), " of ", other.scalar_type(), "; they must be equal."));
  }
}

}  // namespace

WorkPtr WeftBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  const at::Tensor& tensor = only(tensors, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  check_root(options.rootRank, "The source of broadcast");
  if (root == rank_) check_input(tensor, "The tensor of broadcast");
  else check_output(tensor, "The tensor of broadcast");
  Operation made;
  locate(made, tensor, "The tensor of broadcast");
  WireType wire = wire_type(tensor.scalar_type());
  Landing place = root == rank_ ? Landing{{}, plain(tensor)} : landing(tensor);
  made.start = [=, this](weftComm_t comm, weftStream_t stream) {
    return weftBcast(place.memory.data_ptr(), place.memory.numel() * wire.per_element, wire.type, root, comm,
                     stream);
  };
  if (place.target.defined()) made.finish = [place] { place.give_back(); };
  made.type = c10d::OpType::BROADCAST;
  made.title = "weft:broadcast";
  made.queue = {QueueKey::kMove};
  made.inputs = {tensor};
  made.outputs = {tensor};
  return run(std::move(made), options.asyncOp, options.timeout);
}

// output: [n × numel of input].
Operation WeftBackend::prepare_allgather(const at::Tensor& output, const at::Tensor& input) {
  check_output(output, "The output of all_gather_into_tensor");
  check_input(input, "The input of all_gather_into_tensor");
  if (input.scalar_type() != output.scalar_type() || output.numel() != input.numel() * size_) {
    C10_THROW_ERROR(ValueError,
                    c10::str("The output of all_gather_into_tensor has ", output.numel(), " elements of ",
                             output.scalar_type(), ", the input ", input.numel(), " of ", input.scalar_type(),
                             "; the output must have the input's type and ", size_, " times its elements."));
  }
  Operation made;
  locate(made, input, "The input of all_gather_into_tensor");
  WireType wire = wire_type(input.scalar_type());
  Landing place = landing(output);
  at::Tensor source = plain(input);
  const char* own = static_cast<const char*>(place.memory.data_ptr()) + rank_ * source.nbytes();
  if (overlap(source, place.memory) && source.data_ptr() != own) source = source.clone();
  made.start = [=](weftComm_t comm, weftStream_t stream) {
    return weftAllGather(source.data_ptr(), place.memory.data_ptr(), source.numel() * wire.per_element,
                         wire.type, comm, stream);
  };
  if (place.target.defined()) made.finish = [place] { place.give_back(); };
  made.type = c10d::OpType::_ALLGATHER_BASE;
  made.title = "weft:_all_gather_base";
  made.queue = {QueueKey::kMove};
  made.inputs = {input};
  made.outputs = {output};
  return made;
}

Operation WeftBackend::prepare_allgather_list(const Tensors& outputs, const at::Tensor& input) {
  check_input(input, "The input of all_gather");
  check_list(outputs, size_, "The output list of all_gather", true);
  check_same(outputs[rank_], input, "This rank's output and input of all_gather");
  Operation made;
  locate(made, input, "The input of all_gather");
  WireType wire = wire_type(input.scalar_type());
  at::Tensor source = plain(input);
  ListLanding place = list_landing(outputs);
  // Ranks' tensors may have sizes of their own.
  const Counts counts = same_sizes(outputs) ? Counts() : counts_of(outputs, wire.per_element);
  size_t begin = 0;
  for (int r = 0; r < rank_; ++r) begin += outputs[r].nbytes();
  const char* own = static_cast<const char*>(place.memory.data_ptr()) + begin;
  if (overlap(source, place.memory) && source.data_ptr() != own) source = source.clone();
  made.start = [=](weftComm_t comm, weftStream_t stream) {
    void* memory = place.memory.data_ptr();
    if (!counts.empty())
      return weftAllGatherV(source.data_ptr(), memory, counts.data(), nullptr, wire.type, comm, stream);
    return weftAllGather(source.data_ptr(), memory, source.numel() * wire.per_element, wire.type, comm,
                         stream);
  };
  if (!place.targets.empty()) made.finish = [place] { place.give_back(); };
  made.type = c10d::OpType::ALLGATHER;
  made.title = "weft:all_gather";
  made.queue = {QueueKey::kMove};
  made.inputs = {input};
  made.outputs = outputs;
  return made;
}

WorkPtr WeftBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                               const c10d::AllgatherOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  return run(prepare_allgather_list(only_list(outputs, "all_gather"), only(inputs, "all_gather")),
             options.asyncOp, options.timeout);
}

WorkPtr WeftBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                     const c10d::AllgatherOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  return run(prepare_allgather(output, input), options.asyncOp, options.timeout);
}

// outputs[r][i] is input i of rank r.
WorkPtr WeftBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  std::vector<Operation> operations;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      check_pairs(inputs.size(), of_rank.size(), "all_gather_coalesced");
      list.push_back(of_rank[i]);
    }
    operations.push_back(prepare_allgather_list(list, inputs[i]));
  }
  return run_all(std::move(operations), c10d::OpType::ALLGATHER_COALESCED, "weft:all_gather", options.asyncOp,
                 options.timeout);
}

WorkPtr WeftBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  check_pairs(inputs.size(), outputs.size(), "all_gather_into_tensor_coalesced");
  std::vector<Operation> operations;
  for (size_t i = 0; i < inputs.size(); ++i) operations.push_back(prepare_allgather(outputs[i], inputs[i]));
  return run_all(std::move(operations), c10d::OpType::ALLGATHER_COALESCED, "weft:_all_gather_base",
                 options.asyncOp, options.timeout);
}

WorkPtr WeftBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                            const c10d::GatherOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  const at::Tensor& input = only(inputs, "gather");
  const int root = static_cast<int>(options.rootRank);
  check_input(input, "The input of gather");
  check_root(options.rootRank, "The destination of gather");
  Operation made;
  locate(made, input, "The input of gather");
  ListLanding place;
  at::Tensor source = plain(input);
  if (root == rank_) {
    const Tensors& list = only_list(outputs, "gather at its root");
    check_list(list, size_, "The output list of gather", true);
    for (const at::Tensor& output : list) check_same(output, input, "An output and the input of gather");
    place = list_landing(list);
    made.outputs = list;
    const char* own = static_cast<const char*>(place.memory.data_ptr()) + rank_ * source.nbytes();
    if (overlap(source, place.memory) && source.data_ptr() != own) source = source.clone();
  } else {
    no_list(outputs, "The output list of gather");
  }
  WireType wire = wire_type(input.scalar_type());
  made.start = [=, this](weftComm_t comm, weftStream_t stream) {
    return weftGather(source.data_ptr(), place.memory.defined() ? place.memory.data_ptr() : nullptr,
                      source.numel() * wire.per_element, wire.type, root, comm, stream);
  };
  if (!place.targets.empty()) made.finish = [place] { place.give_back(); };
  made.type = c10d::OpType::GATHER;
  made.title = "weft:gather";
  made.queue = {QueueKey::kMove};
  made.inputs = {input};
  return run(std::move(made), options.asyncOp, options.timeout);
}

// The output's blocks lie one behind the other, so gather() receives them without a copy.
WorkPtr WeftBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                        const c10d::GatherOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<Tensors> blocks;
  if (options.rootRank == rank_) {
    check_output(output, "The output of gather_single");
    if (!is_plain(output) || output.numel() != input.numel() * size_) {
      C10_THROW_ERROR(
          ValueError,
          c10::str("The output of gather_single has ", output.numel(), " elements, the input ", input.numel(),
                   "; the output must be contiguous and have ", size_, " times the input's elements."));
    }
    blocks.push_back(output.view({size_, input.numel()}).unbind());
  }
  Tensors inputs = {input};
  return gather(blocks, inputs, options);
}

WorkPtr WeftBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ScatterOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_open();
  const at::Tensor& output = only(outputs, "scatter");
  const int root = static_cast<int>(options.rootRank);
  check_output(output, "The output of scatter");
  check_root(options.rootRank, "The source of scatter");
  Operation made;
  locate(made, output, "The output of scatter");
  Landing place = landing(output);
  at::Tensor source;
  if (root == rank_) {
    const Tensors& list = only_list(inputs, "scatter at its root");
    check_list(list, size_, "The input list of scatter", false);
    for (const at::Tensor& input : list) check_same(output, input, "The output and an input of scatter");
    source = flatten(list);
    made.inputs = list;
    const char* own = static_cast<const char*>(source.data_ptr()) + rank_ * place.memory.nbytes();
    if (overlap(source, place.memory) && place.memory.data_ptr() != own) source = source.clone();
  } else {
    no_list(inputs, "The input list of scatter");
  }
  WireType wire = wire_type(output.scalar_type());
  made.start = [=, this](weftComm_t comm, weftStream_t stream) {
    return weftScatter(source.defined() ? source.data_ptr() : nullptr, place.memory.data_ptr(),
                       place.memory.numel() * wire.per_element, wire.type, root, comm, stream);
  };
  if (place.target.defined()) made.finish = [place] { place.give_back(); };
  made.type = c10d::OpType::SCATTER;
  made.title = "weft:scatter";
  made.queue = {QueueKey::kMove};
  made.outputs = {output};
  return run(std::move(made), options.asyncOp, options.timeout);
}

}  // namespace weft_torch
