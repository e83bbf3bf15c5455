// Which attributes there are.
#include "loom/device/fake_cudnn/descriptors.h"

#include <algorithm>
#include <array>

namespace fake_dnn {
namespace {

struct Known {
  int kind, attribute, type;
  int64_t most;  // values
  bool needed;
};

constexpr int64_t kMany = 1 << 20, kDimensions = 8;

constexpr Known kKnown[] = {
    {kDnnTensor, kDnnTensorAlignment, kDnnOfInt64, 1, true},
    {kDnnTensor, kDnnTensorType, kDnnOfDataType, 1, true},
    {kDnnTensor, kDnnTensorDimensions, kDnnOfInt64, kDimensions, true},
    {kDnnTensor, kDnnTensorStrides, kDnnOfInt64, kDimensions, true},
    {kDnnTensor, kDnnTensorId, kDnnOfInt64, 1, true},
    {kDnnTensor, kDnnTensorVirtual, kDnnOfBool, 1, false},
    {kDnnTensor, kDnnTensorByValue, kDnnOfBool, 1, false},
    {kDnnPointwise, kDnnPointwiseModeOf, kDnnOfPointwiseMode, 1, true},
    {kDnnPointwise, kDnnPointwisePrecision, kDnnOfDataType, 1, true},
    {kDnnPointwise, kDnnPointwiseAxis, kDnnOfInt64, 1, false},
    {kDnnPointwiseOperation, kDnnPointwiseOf, kDnnOfDescriptor, 1, true},
    {kDnnPointwiseOperation, kDnnPointwiseX, kDnnOfDescriptor, 1, true},
    {kDnnPointwiseOperation, kDnnPointwiseB, kDnnOfDescriptor, 1, false},
    {kDnnPointwiseOperation, kDnnPointwiseT, kDnnOfDescriptor, 1, false},
    {kDnnPointwiseOperation, kDnnPointwiseY, kDnnOfDescriptor, 1, true},
    {kDnnMatmul, kDnnMatmulPrecision, kDnnOfDataType, 1, true},
    {kDnnMatmul, kDnnMatmulPadding, kDnnOfDouble, 1, false},
    {kDnnMatmulOperation, kDnnMatmulOf, kDnnOfDescriptor, 1, true},
    {kDnnMatmulOperation, kDnnMatmulA, kDnnOfDescriptor, 1, true},
    {kDnnMatmulOperation, kDnnMatmulB, kDnnOfDescriptor, 1, true},
    {kDnnMatmulOperation, kDnnMatmulC, kDnnOfDescriptor, 1, true},
    {kDnnMatmulOperation, kDnnMatmulRows, kDnnOfDescriptor, 1, false},
    {kDnnMatmulOperation, kDnnMatmulColumns, kDnnOfDescriptor, 1, false},
    {kDnnMatmulOperation, kDnnMatmulSums, kDnnOfDescriptor, 1, false},
    {kDnnReduction, kDnnReductionModeOf, kDnnOfReduction, 1, true},
    {kDnnReduction, kDnnReductionPrecision, kDnnOfDataType, 1, true},
    {kDnnReductionOperation, kDnnReductionOf, kDnnOfDescriptor, 1, true},
    {kDnnReductionOperation, kDnnReductionX, kDnnOfDescriptor, 1, true},
    {kDnnReductionOperation, kDnnReductionY, kDnnOfDescriptor, 1, true},
    {kDnnReshapeOperation, kDnnReshapeX, kDnnOfDescriptor, 1, true},
    {kDnnReshapeOperation, kDnnReshapeY, kDnnOfDescriptor, 1, true},
    {kDnnOperationGraph, kDnnGraphOperations, kDnnOfDescriptor, kMany, true},
    {kDnnOperationGraph, kDnnGraphHandle, kDnnOfHandle, 1, false},
    {kDnnEngineHeuristics, kDnnHeuristicsGraph, kDnnOfDescriptor, 1, true},
    {kDnnEngineHeuristics, kDnnHeuristicsMode, kDnnOfHeuristicMode, 1, true},
    {kDnnEngineHeuristics, kDnnHeuristicsDevice, kDnnOfDescriptor, 1, false},
    {kDnnExecutionPlan, kDnnPlanEngineConfig, kDnnOfDescriptor, 1, true},
    {kDnnExecutionPlan, kDnnPlanHandle, kDnnOfHandle, 1, false},
    {kDnnExecutionPlan, kDnnPlanDevice, kDnnOfDescriptor, 1, false},
    {kDnnVariantPack, kDnnPackIds, kDnnOfInt64, kMany, true},
    {kDnnVariantPack, kDnnPackPointers, kDnnOfPointer, kMany, true},
    {kDnnVariantPack, kDnnPackWorkspace, kDnnOfPointer, 1, false},
    {kDnnDeviceProperties, kDnnDeviceJson, kDnnOfChar, kMany, true},
};

size_t size_of_value(int type) {
  switch (type) {
    case kDnnOfBool:
    case kDnnOfChar: return 1;
    case kDnnOfInt64:
    case kDnnOfDouble:
    case kDnnOfHandle:
    case kDnnOfPointer:
    case kDnnOfDescriptor: return 8;
    default: return 4;
  }
}

thread_local std::string refusal;

}  // namespace

int refuse(int status, const std::string& why) {
  refusal = why;
  return status;
}
const std::string& last_refusal() { return refusal; }

bool is_known(int kind) {
  return kind == kDnnEngineConfig || std::any_of(std::begin(kKnown), std::end(kKnown),
                                                 [=](const Known& known) { return known.kind == kind; });
}

int set(Descriptor& descriptor, int attribute, int type, int64_t count, const void* values) {
  if (descriptor.finalized) return refuse(kDnnBadParameter, "the descriptor is finalized");
  const auto* const known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& each) {
    return each.kind == descriptor.kind && each.attribute == attribute;
  });
  if (known == std::end(kKnown)) return refuse(kDnnBadParameter, "the descriptor has no such attribute");
  if (known->type != type) return refuse(kDnnAttributeType, "the attribute is of another type");
  if (values == nullptr) return refuse(kDnnNullPointer, "the values are nowhere");
  if (count < 1 || count > known->most) return refuse(kDnnBadParameter, "so many values cannot be");
  if (type == kDnnOfDescriptor)
    for (int64_t i = 0; i < count; ++i) {
      const auto* const part = static_cast<Descriptor* const*>(values)[i];
      if (part == nullptr) return refuse(kDnnNullPointer, "a descriptor is missing");
      if (!part->finalized) return refuse(kDnnNotFinalized, "a descriptor is not finalized");
    }
  Descriptor::Value& value = descriptor.values[attribute];
  value.type = type, value.count = count;
  const auto* const from = static_cast<const std::byte*>(values);
  value.bytes.assign(from, from + static_cast<size_t>(count) * size_of_value(type));
  return kDnnSuccess;
}

int check_complete(const Descriptor& descriptor) {
  for (const Known& known : kKnown)
    if (known.kind == descriptor.kind && known.needed && !descriptor.has(known.attribute))
      return refuse(kDnnBadParameter, "attribute " + std::to_string(known.attribute) + " is missing");
  return kDnnSuccess;
}

}  // namespace fake_dnn
