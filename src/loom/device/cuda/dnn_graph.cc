// Descriptors, put together.
#include "device/cuda/dnn_graph.h"

namespace loom::cuda {
namespace {

/// How the library names what is made: for sentences.
const char* name_of(DnnDescriptorType type) {
  switch (type) {
    case kDnnTensor: return "a tensor";
    case kDnnOperationGraph: return "a graph";
    case kDnnEngineHeuristics: return "the choice of an engine";
    case kDnnExecutionPlan: return "a plan";
    case kDnnVariantPack: return "the arrays of a run";
    case kDnnDeviceProperties: return "the description of a device";
    default: return "an operation";
  }
}

Result<DnnObject> create(DnnDescriptorType type) {
  DnnDescriptor made = nullptr;
  LOOM_TRY(check_dnn((*cudnn())->descriptor_create(type, &made),
                     fmt::format("{} of a graph (cudnnBackendCreateDescriptor)", name_of(type))));
  return DnnObject(made);
}

/// The engines that the library proposes for a graph, the best first.
Result<std::vector<DnnObject>> proposals(DnnDescriptor graph, const DnnTarget& target) {
  DnnBuilder builder(kDnnEngineHeuristics);
  builder.set(kDnnHeuristicsGraph, graph).of_int(kDnnHeuristicsMode, kDnnOfHeuristicMode, kDnnHeuristicA);
  if (target.handle == nullptr) builder.set(kDnnHeuristicsDevice, target.device);
  const Result<DnnObject> heuristics = builder.finish();
  LOOM_TRY(heuristics.status());
  const Cudnn& dnn = **cudnn();
  const auto results = [&](int64_t asked, int64_t& count, DnnDescriptor* into) {
    return check_dnn(
        dnn.attribute_get(heuristics->get(), kDnnHeuristicsResults, kDnnOfDescriptor, asked, &count, into),
        "cuDNN has no engine (cudnnBackendGetAttribute)");
  };
  int64_t count = 0;
  LOOM_TRY(results(0, count, nullptr));
  std::vector<DnnObject> configs;
  std::vector<DnnDescriptor> plain;
  for (int64_t i = 0; i < count; ++i) {
    Result<DnnObject> config = create(kDnnEngineConfig);
    LOOM_TRY(config.status());
    plain.push_back(config->get());
    configs.push_back(config.take());
  }
  if (count > 0) LOOM_TRY(results(count, count, plain.data()));
  configs.resize(static_cast<size_t>(count));
  return configs;
}

Result<DnnObject> finish_plan(DnnDescriptor config, const DnnTarget& target) {
  DnnBuilder builder(kDnnExecutionPlan);
  builder.set(kDnnPlanEngineConfig, config);
  if (target.handle != nullptr) builder.set(kDnnPlanHandle, kDnnOfHandle, 1, &target.handle);
  else builder.set(kDnnPlanDevice, target.device);
  return builder.finish();
}

}  // namespace

// ---- Descriptors

DnnBuilder::DnnBuilder(DnnDescriptorType type) {
  Result<DnnObject> made = create(type);
  status_ = made.status();
  if (status_.ok()) object_ = made.take();
}

DnnBuilder& DnnBuilder::set(DnnAttribute attribute, DnnValue type, int64_t count, const void* values) {
  if (status_.ok())
    status_ = check_dnn((*cudnn())->attribute_set(object_.get(), attribute, type, count, values),
                        fmt::format("attribute {} of a graph (cudnnBackendSetAttribute)", int{attribute}));
  return *this;
}

Result<DnnObject> DnnBuilder::finish() {
  if (status_.ok())
    status_ =
        check_dnn((*cudnn())->descriptor_finalize(object_.get()), "a part of a graph (cudnnBackendFinalize)");
  if (!status_.ok()) return status_;
  return std::move(object_);
}

Result<DnnObject> describe_dnn_device(const std::string& json) {
  return DnnBuilder(kDnnDeviceProperties)
      .set(kDnnDeviceJson, kDnnOfChar, static_cast<int64_t>(json.size()), json.data())
      .finish();
}

// ---- Tensors

DnnDescriptor DnnGraph::keep(Result<DnnObject> made) {
  if (status_.ok()) status_ = made.status();
  if (!made.ok()) return nullptr;
  return objects_.emplace_back(made.take()).get();
}

DnnTensorRef DnnGraph::tensor(const DnnTensorShape& shape, Kind kind) {
  constexpr int64_t kShortAlignment = 4, kAlignment = 16;
  const bool is_short = shape.type == kDnnInt32 || kind == Kind::number;
  const int64_t id = ++tensors_, alignment = is_short ? kShortAlignment : kAlignment;
  return {id, keep(DnnBuilder(kDnnTensor)
                       .set(kDnnTensorType, shape.type)
                       .set(kDnnTensorDimensions, shape.sizes)
                       .set(kDnnTensorStrides, shape.strides)
                       .set(kDnnTensorId, std::span(&id, 1))
                       .set(kDnnTensorAlignment, std::span(&alignment, 1))
                       .set(kDnnTensorVirtual, kind == Kind::between)
                       .set(kDnnTensorByValue, kind == Kind::number)
                       .finish())};
}

DnnTensorRef DnnGraph::array(const DnnTensorShape& shape) { return tensor(shape, Kind::array); }
DnnTensorRef DnnGraph::between(const DnnTensorShape& shape) { return tensor(shape, Kind::between); }
DnnTensorRef DnnGraph::number() { return tensor({{1, 1, 1, 1}, {1, 1, 1, 1}, kDnnFloat32}, Kind::number); }

// ---- Operations

DnnTensorRef DnnGraph::pointwise(DnnPointwiseMode mode, std::span<const DnnTensorRef> operands,
                                 DnnTensorRef y, DnnType precision) {
  constexpr DnnAttribute kOperands[] = {kDnnPointwiseX, kDnnPointwiseB, kDnnPointwiseT};
  const DnnDescriptor kind = keep(DnnBuilder(kDnnPointwise)
                                      .of_int(kDnnPointwiseModeOf, kDnnOfPointwiseMode, mode)
                                      .set(kDnnPointwisePrecision, precision)
                                      .finish());
  DnnBuilder operation(kDnnPointwiseOperation);
  operation.set(kDnnPointwiseOf, kind).set(kDnnPointwiseY, y.descriptor);
  for (size_t i = 0; i < operands.size(); ++i) operation.set(kOperands[i], operands[i].descriptor);
  operations_.push_back(keep(operation.finish()));
  return y;
}

DnnTensorRef DnnGraph::index(DnnTensorRef x, int64_t axis, DnnTensorRef y, DnnType precision) {
  const DnnDescriptor kind = keep(DnnBuilder(kDnnPointwise)
                                      .of_int(kDnnPointwiseModeOf, kDnnOfPointwiseMode, kDnnIndex)
                                      .set(kDnnPointwisePrecision, precision)
                                      .set(kDnnPointwiseAxis, std::span(&axis, 1))
                                      .finish());
  operations_.push_back(keep(DnnBuilder(kDnnPointwiseOperation)
                                 .set(kDnnPointwiseOf, kind)
                                 .set(kDnnPointwiseX, x.descriptor)
                                 .set(kDnnPointwiseY, y.descriptor)
                                 .finish()));
  return y;
}

DnnTensorRef DnnGraph::reduce(DnnReductionMode mode, DnnTensorRef x, DnnTensorRef y) {
  const DnnDescriptor kind = keep(DnnBuilder(kDnnReduction)
                                      .of_int(kDnnReductionModeOf, kDnnOfReduction, mode)
                                      .set(kDnnReductionPrecision, kDnnFloat32)
                                      .finish());
  operations_.push_back(keep(DnnBuilder(kDnnReductionOperation)
                                 .set(kDnnReductionOf, kind)
                                 .set(kDnnReductionX, x.descriptor)
                                 .set(kDnnReductionY, y.descriptor)
                                 .finish()));
  return y;
}

DnnTensorRef DnnGraph::reshape(DnnTensorRef x, DnnTensorRef y) {
  operations_.push_back(keep(DnnBuilder(kDnnReshapeOperation)
                                 .set(kDnnReshapeX, x.descriptor)
                                 .set(kDnnReshapeY, y.descriptor)
                                 .finish()));
  return y;
}

DnnTensorRef DnnGraph::multiply(DnnTensorRef a, DnnTensorRef b, DnnTensorRef y, const Extents& extents) {
  DnnBuilder kind_of(kDnnMatmul);
  kind_of.set(kDnnMatmulPrecision, kDnnFloat32);
  const double zero = 0;
  if (extents.padded) kind_of.set(kDnnMatmulPadding, kDnnOfDouble, 1, &zero);
  const DnnDescriptor kind = keep(kind_of.finish());
  DnnBuilder operation(kDnnMatmulOperation);
  operation.set(kDnnMatmulOf, kind)
      .set(kDnnMatmulA, a.descriptor)
      .set(kDnnMatmulB, b.descriptor)
      .set(kDnnMatmulC, y.descriptor);
  if (extents.rows.id != 0) operation.set(kDnnMatmulRows, extents.rows.descriptor);
  if (extents.columns.id != 0) operation.set(kDnnMatmulColumns, extents.columns.descriptor);
  if (extents.terms.id != 0) operation.set(kDnnMatmulSums, extents.terms.descriptor);
  operations_.push_back(keep(operation.finish()));
  return y;
}

// ---- Plans

Result<std::unique_ptr<DnnPlan>> DnnGraph::plan(const DnnTarget& target) {
  LOOM_TRY(status_);
  DnnBuilder builder(kDnnOperationGraph);
  builder.set(kDnnGraphOperations, kDnnOfDescriptor, static_cast<int64_t>(operations_.size()),
              operations_.data());
  if (target.handle != nullptr) builder.set(kDnnGraphHandle, kDnnOfHandle, 1, &target.handle);
  const DnnDescriptor graph = keep(builder.finish());
  LOOM_TRY(status_);
  Result<std::vector<DnnObject>> configs = proposals(graph, target);
  LOOM_TRY(configs.status());
  Status why_not =
      fail(Code::unsupported,
           "cuDNN has no engine for it, or does not find libnvrtc.so, with which it compiles its kernels");
  auto plan = std::make_unique<DnnPlan>();
  for (size_t i = 0; i < configs->size(); ++i) {
    Result<DnnObject> made = finish_plan((*configs)[i].get(), target);
    if (i == 0 || made.ok()) why_not = made.status();
    if (!made.ok()) continue;
    plan->plan_ = made.take();
    break;
  }
  LOOM_TRY(why_not);
  int64_t count = 0;
  LOOM_TRY(check_dnn((*cudnn())->attribute_get(plan->plan_.get(), kDnnPlanWorkspaceBytes, kDnnOfInt64, 1,
                                               &count, &plan->workspace_bytes_),
                     "the workspace of a plan (cudnnBackendGetAttribute)"));
  plan->graph_ = std::move(objects_);
  for (DnnObject& config : *configs) plan->graph_.push_back(std::move(config));
  return plan;
}

Status DnnPlan::run(DnnHandle* handle, std::span<const DnnBinding> bindings, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<const void*> addresses;
  for (const DnnBinding& binding : bindings) {
    ids.push_back(binding.tensor.id);
    addresses.push_back(binding.address);
  }
  const auto count = static_cast<int64_t>(ids.size());
  const Result<DnnObject> pack = DnnBuilder(kDnnVariantPack)
                                     .set(kDnnPackIds, ids)
                                     .set(kDnnPackPointers, kDnnOfPointer, count, addresses.data())
                                     .set(kDnnPackWorkspace, kDnnOfPointer, 1, &workspace)
                                     .finish();
  LOOM_TRY(pack.status());
  return check_dnn((*cudnn())->execute(handle, plan_.get(), pack->get()), "cudnnBackendExecute");
}

}  // namespace loom::cuda
